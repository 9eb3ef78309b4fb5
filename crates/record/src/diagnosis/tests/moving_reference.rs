//! A reference that moves: the loss jumps at each move by design, and no rule may take that for damage.

use super::*;

/// Steps of DPO whose reference moves after every 100th, which brings the loss back to ln 2, the norm with it, and the rewards on
/// held-out pairs; between two moves it falls.
fn moved(steps: u64, is_known: bool, extra: impl Fn(u64) -> f64) -> Tape {
    let mut tape = Tape::new(Some("base"), 0);
    let mut spec = tape.state.head.as_ref().unwrap().spec.clone();
    spec["method"] = serde_json::json!({"dpo": {"beta": 0.1}});
    spec["train"]["sync_ref_model"] = is_known.into();
    spec["train"]["ref_model_sync_steps"] = 100.into();
    spec["train"]["log_every"] = 1.into();
    tape.begin("dpo", spec);
    for step in 1..=steps {
        let since = ((step - 1) % 100) as f64;
        let loss = 0.693 - 0.6 * (1.0 - (-since / 10.0).exp()) + 0.1 * noise(step);
        let norm = 0.5 + 4.0 * (-since / 3.0).exp();
        let values = [
            ("train/loss", loss + extra(step)),
            ("grad_norm", norm),
            ("rewards/accuracies", 0.9),
        ];
        tape.step(step, &values);
        if step % 25 == 0 {
            // It comes behind the move of its step.
            let val = if step % 100 == 0 { 0.693 } else { loss };
            tape.evaluate(step, val);
        }
    }
    tape
}

#[test]
fn a_jump_at_a_move_is_no_fault() {
    for steps in [405, 418, 425, 450, 499, 500] {
        let diagnosis = moved(steps, true, |_| 0.0).diagnose();
        let bad = |f: &&Finding| f.status != Status::Pass;
        let bad: Vec<&Finding> = diagnosis.findings.iter().filter(bad).collect();
        assert!(bad.is_empty(), "{steps}: {bad:?}");
        // At the end of an interval too there is a loss to judge.
        let is_early = diagnosis.verdict == crate::diagnosis::Verdict::TooEarly;
        assert!(steps < 450 || !is_early, "{steps}");
    }
    // The same curve with a reference that stays: from 0.09 to ln 2 at once.
    let still = moved(405, false, |_| 0.0).diagnose();
    let warned = still.findings.iter().any(|f| f.status != Status::Pass);
    assert!(warned, "{still:?}");
}

/// What breaks between two moves is seen, and words name the move.
#[test]
fn a_loss_that_explodes_behind_a_move_is_one() {
    let broken = |step: u64| if step > 450 { 3.0 } else { 0.0 };
    let found = moved(495, true, broken).found("diverged").unwrap();
    assert_eq!(found.status, Status::Fail, "{found:?}");
    let said = found.evidence.to_string();
    assert!(
        said.contains("behind the reference's move after step 400"),
        "{said}"
    );
    let nan = |step: u64| if step == 405 { f64::NAN } else { 0.0 };
    let found = moved(405, true, nan).found("diverged").unwrap();
    assert_eq!(found.status, Status::Fail, "at once: {found:?}");
}
