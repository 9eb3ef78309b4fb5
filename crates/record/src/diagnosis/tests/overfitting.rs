//! Validation loss that rises for good while training loss falls.

use super::*;

#[test]
fn overfitting_needs_both_signals_and_patience() {
    let run = |train: fn(u64) -> f64, val: &[f64]| {
        let mut tape = fresh().steps(1, 100 * val.len() as u64, train);
        val.iter()
            .zip(1..)
            .for_each(|(x, i)| tape.evaluate(100 * i, *x));
        tape
    };
    let rising = [3.0, 2.6, 2.4, 2.5, 2.6, 2.7];
    let over = run(learning, &rising);
    let found = over.found("overfitting").unwrap();
    assert_eq!(found.status, Status::Warn);
    assert!(
        found
            .fix
            .starts_with("stop; -s eval.patience=3 saves each new best"),
        "{}",
        found.fix
    );
    assert_eq!(over.diagnose().verdict, Verdict::Overfitting);
    assert_eq!(
        run(learning, &rising[..5]).status("overfitting"),
        Some(Status::Pass),
        "two after the best"
    );
    let small = [3.0, 2.6, 2.4, 2.41, 2.415, 2.41];
    assert_eq!(
        run(learning, &small).status("overfitting"),
        Some(Status::Pass),
        "within noise"
    );
    let both = run(|s| 2.0 + 0.0005 * s as f64 + noise(s), &rising);
    assert_eq!(
        both.status("overfitting"),
        Some(Status::Pass),
        "training rises, too"
    );
}

/// Dropout in the policy alone is what `preference_start` fails.
#[test]
fn methods_with_a_reference_are_not_advised_to_use_dropout() {
    let fix = |method: &str, settings: serde_json::Value| {
        let mut tape = fresh();
        let spec = serde_json::json!({"method": {method: settings}, "train": {"from": "base"}});
        tape.begin(method, spec);
        let mut tape = tape.steps(1, 600, learning);
        for (x, i) in [3.0, 2.6, 2.4, 2.5, 2.6, 2.7].into_iter().zip(1..) {
            tape.evaluate(100 * i, x);
        }
        tape.found("overfitting").unwrap().fix
    };
    for method in ["dpo", "kto"] {
        let fix = fix(
            method,
            serde_json::json!({"beta": 0.1, "reference": "auto"}),
        );
        let keys = format!("lower the learning rate, or raise method.{method}.beta");
        assert!(fix.contains(&keys) && !fix.contains("dropout"), "{fix}");
    }
    let orpo = fix("orpo", serde_json::json!({"beta": 0.1}));
    assert!(orpo.contains("-s model.dropout=0.1"), "{orpo}");
}

/// The rule was silent where tasks were asked after each evaluation.
#[test]
fn evaluations_of_tasks_do_not_hide_validation_losses() {
    let mut tape = fresh().steps(1, 1_000, learning);
    for step in [600, 800, 1_000] {
        tape.evaluate(step, learning(step) - 0.5);
        tape.add(Event::Evaluated {
            step,
            tokens: step,
            values: [("eval/arc".to_string(), Num(0.4))].into(),
            n_windows: 100,
            whole: false,
            seconds: 0.0,
        });
    }
    assert_eq!(tape.status("train_above_val"), Some(Status::Warn));
}
