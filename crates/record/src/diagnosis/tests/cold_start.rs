//! RL runs after a supervised cold start: readings of the one phase do not apply to the other.

use super::*;

const COLD: u64 = 100;

/// A run with a cold start and `norm` as its gradient norm; RL steps have a reward in place of a loss.
fn run(steps: u64, norm: impl Fn(u64) -> f64, loss: f64, entropy: f64) -> Tape {
    let mut tape = Tape::new(None, 0);
    let mut spec = tape.state.head.as_ref().unwrap().spec.clone();
    spec["rollout"] = serde_json::json!({"cold_start_steps": COLD});
    tape.begin("grpo", spec);
    for step in 1..=steps {
        let learned = loss + (4.17 - loss) * (-(step as f64) / 20.0).exp();
        let (what, value) = match step <= COLD {
            true => ("train/loss", learned),
            false => ("reward", 0.5),
        };
        let norm = norm(step);
        tape.step(
            step,
            &[(what, value), ("grad_norm", norm), ("entropy", entropy)],
        );
    }
    tape
}

#[test]
fn a_zero_gradient_is_not_a_baseline() {
    // Most groups have equal rewards: then there is no gradient.
    let sparse = run(400, |s| if s % 4 == 0 { 0.4 } else { 0.0 }, 1.0, 1.0);
    let found = sparse.found("gradient_spike").unwrap();
    assert_eq!(found.status, Status::Pass, "{found:?}");
    let spiked = |s: u64| match s {
        390 => 9.0,
        s if s % 2 == 0 => 0.4,
        _ => 0.0,
    };
    let found = run(400, spiked, 1.0, 1.0).found("gradient_spike").unwrap();
    let said = found.evidence.to_string();
    assert!(said.starts_with("23 times its baseline"), "{said}");
    // Of rewards alone that is a batch with an unsolved prompt; of a text it is not.
    assert_eq!(found.status, Status::Pass);
    let mut text = fresh();
    for s in 1..=400 {
        let values = [("train/loss", learning(s)), ("grad_norm", spiked(s))];
        text.step(s, &values);
    }
    let found = text.found("gradient_spike").unwrap();
    let said = found.evidence.to_string();
    assert_eq!(found.status, Status::Warn);
    assert!(said.starts_with("23 times its baseline"), "{said}");
}

#[test]
fn a_non_finite_gradient_is_not_a_multiple() {
    let tape = run(400, |s| if s == 300 { f64::NAN } else { 0.4 }, 1.0, 1.0);
    let said = tape.found("gradient_spike").unwrap().evidence.to_string();
    assert_eq!(said, "NaN at step 300");
}

#[test]
fn the_gradient_baseline_restarts_after_a_cold_start() {
    let larger = |s: u64| if s <= COLD { 0.05 } else { 1.0 };
    let found = run(160, larger, 1.0, 1.0).found("gradient_spike").unwrap();
    assert_eq!(found.status, Status::Pass, "{found:?}");
}

#[test]
fn the_loss_of_a_cold_start_is_not_a_leak_during_rollouts() {
    let norm = |_| 1.0;
    let found = run(COLD, norm, 0.01, 0.01).found("leak").unwrap();
    assert_eq!(found.status, Status::Warn);
    assert_eq!(found.evidence.0[0].step, Some(COLD));
    assert_eq!(run(COLD + 100, norm, 0.01, 0.01).found("leak"), None);
}

#[test]
fn a_leak_has_the_step_of_its_reading() {
    let mut tape = run(COLD, |_| 1.0, 0.01, 0.01);
    tape.step(COLD + 5, &[("grad_norm", 1.0)]);
    let found = tape.found("leak").unwrap();
    let said = found.evidence.to_string();
    assert!(said.contains("at step 100"), "{said}");
}

/// A run of this many steps with held-out readings: step and value.
fn evaluated(steps: u64, id: &str, readings: &[(u64, f64)]) -> Diagnosis {
    let mut tape = run(steps, |_| 1.0, 1.0, 1.0);
    for (step, value) in readings {
        tape.add(Event::Evaluated {
            step: *step,
            tokens: *step,
            values: [(id.to_string(), Num(*value))].into(),
            n_windows: 200,
            whole: false,
            seconds: 0.0,
        });
    }
    tape.diagnose()
}

/// What supervised training had gained was called the gain of RL, also where RL lost it.
#[test]
fn gains_of_rl_are_measured_from_the_end_of_the_cold_start() {
    for id in ["eval/pass@1", "eval/reward"] {
        let ends = |last: f64| {
            let readings = [(0, 0.1), (50, 0.4), (100, 0.6), (200, 0.6), (400, last)];
            evaluated(400, id, &readings).verdict
        };
        assert_eq!(ends(0.6), Verdict::Stable, "{id}");
        assert_eq!(ends(0.3), Verdict::NotLearning, "{id}");
        assert_eq!(ends(0.85), Verdict::Learning, "{id}");
    }
}

#[test]
fn an_rl_phase_without_a_second_evaluation_is_not_judged() {
    let readings = [(0, 0.1), (50, 0.4), (100, 0.6)];
    for id in ["eval/pass@1", "eval/reward"] {
        let found = evaluated(COLD + 50, id, &readings);
        assert_eq!(found.verdict, Verdict::TooEarly, "{id}");
        assert!(
            found.summary.contains("too few evaluations"),
            "{}",
            found.summary
        );
        // Before the first rollout it is the cold start that is judged.
        let before = evaluated(COLD, id, &readings);
        assert_ne!(before.verdict, Verdict::NotLearning, "{id}");
    }
    assert_eq!(
        evaluated(COLD, "eval/pass@1", &readings).verdict,
        Verdict::Learning
    );
    // Nor by the loss of the cold start.
    assert_eq!(
        run(400, |_| 1.0, 1.0, 1.0).diagnose().verdict,
        Verdict::TooEarly
    );
}

/// Two of two steps with equal rewards: the run was "too early" to be judged, and "reward hacking: ok" the only word about it.
#[test]
fn a_short_run_whose_rewards_are_all_equal_had_no_learning_signal() {
    let short = |std: f64, ended: bool| {
        let mut tape = Tape::new(None, 0);
        let spec = tape.state.head.as_ref().unwrap().spec.clone();
        tape.begin("grpo", spec);
        for step in 1..=2 {
            tape.step(
                step,
                &[("reward", 0.25), ("reward_std", std), ("grad_norm", 0.0)],
            );
        }
        if ended {
            tape.add(Event::Finished {
                outcome: crate::wire::Outcome::Completed,
                step: 2,
                tokens: 2,
                val_loss: None,
                best: None,
                train_loss: None,
                seconds: 1.0,
                message: String::new(),
            });
        }
        tape
    };
    let equal = short(0.0, true);
    let found = equal.found("constant_reward").unwrap();
    assert_eq!(found.status, Status::Warn);
    let told = found.evidence.to_string();
    assert!(told.starts_with("no learning signal in 2 steps"), "{told}");
    let diagnosis = equal.diagnose();
    assert_eq!(diagnosis.verdict, Verdict::TooEarly);
    assert!(
        diagnosis.summary.contains("no learning signal"),
        "{}",
        diagnosis.summary
    );
    assert!(short(0.1, true).found("constant_reward").is_none());
    // One that goes on may have had two hard prompts.
    assert!(short(0.0, false).found("constant_reward").is_none());
}
