//! A loss that rises again, alone and with the validation loss: it was called STABLE.

use super::*;

/// A fall from 4 to 2 in 1,500 steps, then a slow rise of 0.4 in 1,500 more; `val` adds a validation loss every 100 steps.
fn falls_and_rises(val: Option<f64>) -> Tape {
    let loss = |step: u64| {
        let (fall, rise) = (step.min(1_500) as f64, step.saturating_sub(1_500) as f64);
        let ripple = if step.is_multiple_of(2) { 0.02 } else { -0.02 };
        4.0 - 2.0 * fall / 1_500.0 + 0.4 * rise / 1_500.0 + ripple
    };
    let mut tape = fresh();
    for step in 1..=3_000 {
        tape.step(step, &[("train/loss", loss(step)), ("grad_norm", 1.0)]);
        if let Some(rise) = val
            && step.is_multiple_of(100)
        {
            let behind = step.saturating_sub(1_500) as f64 / 1_500.0;
            let fall = 2.0 * step.min(1_500) as f64 / 1_500.0;
            tape.evaluate(step, 4.0 - fall + rise * behind);
        }
    }
    tape
}

#[test]
fn a_rise_that_the_validation_loss_shares_is_no_stable_run() {
    let found = falls_and_rises(Some(0.4)).diagnose();
    assert_eq!(found.verdict, Verdict::NotLearning, "{found:?}");
    let cause = &found.basis.evidence.to_string();
    assert!(
        cause.contains("rising") && cause.contains("val loss"),
        "{cause}"
    );
    let alone = falls_and_rises(None).diagnose();
    assert_eq!(alone.verdict, Verdict::NotLearning, "{alone:?}");
    // The data became harder; what was held out shows that nothing was lost.
    let harder = falls_and_rises(Some(0.0)).diagnose();
    assert_eq!(harder.verdict, Verdict::Stable, "{harder:?}");
}

/// A sparse log whose newest 20 readings reach back to before the fall's end.
#[test]
fn a_steep_rise_at_the_end_is_a_divergence_if_the_validation_loss_agrees() {
    let diverged = |val: bool| {
        let mut tape = fresh();
        for at in 1..=400_u64 {
            let loss = match at {
                ..=380 => 9.7 - 7.7 * at as f64 / 380.0,
                _ => 2.0 + 0.4 * (at - 380) as f64,
            };
            tape.step(10 * at, &[("train/loss", loss), ("grad_norm", 1.0)]);
            if val && at.is_multiple_of(10) {
                tape.evaluate(10 * at, loss);
            }
        }
        tape.diagnose().verdict
    };
    assert_eq!(diverged(true), Verdict::Diverged);
    assert_ne!(diverged(false), Verdict::Stable);
}

/// Of the first pass nothing can be memorized: a rate that is too high lifts the validation loss as well.
#[test]
fn nothing_is_memorized_in_the_first_epoch() {
    let run = |epochs: f64| {
        let mut tape = fresh();
        for step in 1..=1_000_u64 {
            let loss = 3.0 - 1e-3 * step as f64;
            let epochs = epochs * step as f64 / 1_000.0;
            tape.step(
                step,
                &[("train/loss", loss), ("grad_norm", 1.0), ("epochs", epochs)],
            );
            if step.is_multiple_of(100) {
                tape.evaluate(step, 3.0 + 2e-4 * step as f64);
            }
        }
        tape.diagnose().verdict
    };
    assert_eq!(run(3.0), Verdict::Overfitting);
    assert_ne!(run(0.9), Verdict::Overfitting);
}

/// A loss with a weighted likelihood in it is not nats per token: healthy runs were to be initialized anew.
#[test]
fn losses_of_preferences_are_not_held_against_a_uniform_guess() {
    for method in ["orpo", "cpo", "simpo", "dpo", "kto"] {
        let mut tape = fresh();
        tape.begin(method, serde_json::json!({"method": {method: {}}}));
        let tape = tape.steps(1, 300, |s| 16.0 - 5.5 * s as f64 / 300.0 + noise(s));
        let found = tape.diagnose();
        assert_eq!(found.verdict, Verdict::Learning, "{method}: {found:?}");
    }
}
