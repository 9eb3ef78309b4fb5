//! Chosen answers that become less likely: while their rewards fall, and after they have settled.

use super::*;

/// Rewards of a DPO run whose chosen answers sink towards −3.5 within a hundred steps.
fn sinking(to: u64) -> Tape {
    with_logps(to, None)
}

/// The same with log-probabilities of chosen answers that fall by `nats` from −25.
fn with_logps(to: u64, nats: Option<f64>) -> Tape {
    let mut tape = fresh();
    tape.begin("dpo", serde_json::json!({"method": {"dpo": {"beta": 0.1}}}));
    sink(tape, to, nats, &[])
}

/// The same as a log of another program, with other readings in it.
fn foreign(to: u64, others: &[(&'static str, f64)]) -> Tape {
    let mut tape = Tape::new(None, 0);
    tape.add(Event::Hello {
        run: "made up".into(),
        engine: "trainer_state".into(),
        pid: 0,
        host: "another program".into(),
    });
    tape.begin("trainer_state", serde_json::json!({}));
    sink(tape, to, Some(60.0), others)
}

fn sink(mut tape: Tape, to: u64, nats: Option<f64>, others: &[(&'static str, f64)]) -> Tape {
    for step in 1..=to {
        let sunk = 1.0 - (-(step as f64 - 1.0) / 20.0).exp();
        let chosen = -3.5 * sunk + noise(step);
        let rejected = -5.0 * sunk;
        let mut values = vec![
            ("train/loss", 0.69 - 0.3 * sunk),
            ("rewards/chosen", chosen),
            ("rewards/rejected", rejected),
            ("rewards/margins", chosen - rejected),
        ];
        values.extend(nats.map(|nats| ("logps/chosen", -25.0 - nats * sunk)));
        values.extend(others);
        tape.step(step, &values);
    }
    tape
}

#[test]
fn falling_chosen_rewards_warn_until_they_have_settled() {
    let found = sinking(120).found("displacement").expect("they sink");
    assert_eq!(found.status, Status::Warn);
    let said = found.evidence.to_string();
    assert!(said.contains("100 steps before"), "{said}");
    let fix = found.fix;
    assert!(
        fix.contains("method.dpo.beta") && fix.contains("-s method.dpo.nll_weight=1"),
        "{fix}"
    );
    assert_eq!(sinking(400).found("displacement"), None);
}

/// Answers of a few tokens that became meaningless: settling does not help.
#[test]
fn lost_chosen_answers_warn_even_after_they_have_settled() {
    assert_eq!(with_logps(400, Some(60.0)).found("displacement"), None);
    let found = with_logps(400, Some(200.0)).found("displacement").unwrap();
    let said = found.evidence.to_string();
    assert!(said.contains("log-probability of chosen answers"), "{said}");
}

#[test]
fn logs_of_dpo_by_other_programs_are_judged_and_those_of_other_methods_are_not() {
    let found = foreign(120, &[]).found("displacement").expect("they sink");
    assert!(
        found.fix.contains("a higher beta, or rpo_alpha=1"),
        "{}",
        found.fix
    );
    // KTO's, ORPO's and CPO's.
    for other in ["kl", "log_odds_ratio", "nll_loss"] {
        let tape = foreign(120, &[(other, 0.5)]);
        assert_eq!(tape.found("displacement"), None, "{other}");
    }
}

#[test]
fn a_reference_that_is_not_the_start_is_found_in_logs_of_other_programs() {
    let apart = [
        ("rewards/chosen", 0.5),
        ("rewards/rejected", -0.3),
        ("rewards/margins", 0.8),
    ];
    let found = foreign(30, &apart).found("preference_start").unwrap();
    assert_eq!((found.status, found.evidence.0.len()), (Status::Fail, 1));
    assert!(found.fix.contains("disable_dropout=True"), "{}", found.fix);
    let start = foreign(30, &[]);
    assert_eq!(start.found("preference_start"), None);
    let kto: Vec<_> = apart.into_iter().chain([("kl", 0.0)]).collect();
    assert_eq!(foreign(30, &kto).found("preference_start"), None);
}
