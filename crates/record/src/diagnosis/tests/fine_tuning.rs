//! Weights that were trained already: training that makes them worse, pairs that teach nothing, and which rates are advised.

use super::*;

/// A run from a model, of so many steps in all.
fn tuned(method: &str, max_steps: u64, spec: serde_json::Value) -> Tape {
    let mut tape = Tape {
        state: RunState::new(),
        seq: 0,
    };
    tape.add(Event::Started {
        name: "made up".into(),
        method: method.into(),
        spec,
        n_params: 1,
        vocab_size: VOCAB,
        max_steps,
        batch_tokens: 1,
        epoch_tokens: 1,
        resumed_from: None,
        precision: None,
        unigram_entropy: None,
    });
    tape
}

fn spec(lr: f64) -> serde_json::Value {
    serde_json::json!({"train": {"from": "base"}, "optimizer": {"adamw": {"lr": lr}}})
}

/// Such a run was stable, at exit code 0.
#[test]
fn a_loss_that_ends_above_its_start_is_not_learning() {
    let rises = |s: u64| 1.5 + 0.42 * (1.0 - (-(s as f64) / 25.0).exp()) + noise(s);
    let tape = tuned("sft", 1_000, spec(1e-3)).steps(1, 400, rises);
    let diagnosis = tape.diagnose();
    assert_eq!(diagnosis.verdict, Verdict::NotLearning);
    assert!(diagnosis.failed());
    let found = tape.found("not_learning").unwrap();
    assert!(found.cause.contains("too high"), "{}", found.cause);
    assert!(found.fix.contains("-s lr=1e-4"), "{}", found.fix);
    assert_eq!(rises(1), 1.5 + 0.42 * (1.0 - (-0.04_f64).exp()) + noise(1));
}

/// Too high a rate throws the weights far away; they come back nearly to where they were.
#[test]
fn a_loss_that_falls_back_towards_its_start_is_judged_at_the_end() {
    let back = |s: u64| match s {
        1 => 0.31,
        s => 0.34 + 0.4 * (-(s as f64) / 40.0).exp() + 0.3 * noise(s),
    };
    let at = |max_steps| tuned("pretrain", max_steps, spec(5e-3)).steps(1, 300, back);
    let goes_on = at(1_000);
    assert_eq!(goes_on.status("not_learning"), None);
    assert_eq!(goes_on.diagnose().verdict, Verdict::TooEarly);
    let ended = at(300);
    assert_eq!(ended.status("not_learning"), Some(Status::Warn));
    assert_eq!(ended.diagnose().verdict, Verdict::NotLearning);
    // Four hundredths are enough, though one reading is as noisy.
    let slightly = |s: u64| back(s) - if s > 1 { 0.017 } else { 0.0 };
    let ended = tuned("pretrain", 300, spec(5e-3)).steps(1, 300, slightly);
    assert_eq!(ended.status("not_learning"), Some(Status::Warn));
    // A rate that was warmed up again, and decays.
    let deeper = |s: u64| back(s) - if s > 150 { 0.06 } else { 0.0 };
    let healthy = tuned("pretrain", 300, spec(5e-3)).steps(1, 300, deeper);
    assert_eq!(healthy.status("not_learning"), None);
}

/// The first batch of a fine-tuning is easier or harder than the others by chance.
#[test]
fn an_easy_first_batch_is_no_worse_run() {
    for first in [0.7, 1.0, 1.6] {
        let loss = |s: u64| match s {
            1 => first,
            s => 1.2 + 8.0 * noise(7 * s + s / 6),
        };
        let tape = tuned("sft", 400, spec(1e-5)).steps(1, 400, loss);
        assert_eq!(tape.status("not_learning"), None, "{first}");
        assert_ne!(tape.diagnose().verdict, Verdict::NotLearning, "{first}");
    }
    // The surrogate of a policy begins at 0.
    let surrogate = |s: u64| 1e-4 + 1e-4 * s as f64;
    let tape = tuned("online_dpo", 400, spec(1e-6)).steps(1, 400, surrogate);
    assert_eq!(tape.status("not_learning"), None);
}

/// Pairs whose loss and held-out accuracy settle at these values.
fn pairs(method: &str, settings: serde_json::Value, loss: f64, accuracy: f64) -> Tape {
    let mut spec = spec(1e-6);
    spec["method"] = serde_json::json!({method: settings});
    let mut tape = tuned(method, 400, spec);
    for s in 1..=400 {
        let share = (-(s as f64) / 50.0).exp();
        let loss = loss + (0.6931 - loss) * share + 0.05 * noise(s);
        tape.step(s, &[("train/loss", loss), ("rewards/accuracies", accuracy)]);
        if s % 100 == 0 {
            tape.add(Event::Evaluated {
                step: s,
                tokens: s,
                values: [
                    ("val/loss".to_string(), Num(loss)),
                    ("val/rewards/accuracies".to_string(), Num(accuracy)),
                ]
                .into(),
                n_windows: 320,
                whole: false,
                seconds: 0.0,
            });
        }
    }
    tape
}

/// Sides that a coin chose ended as stable, with a loss of ln 2.
#[test]
fn pairs_whose_sides_are_chance_are_not_learned() {
    let none = || serde_json::json!({});
    for method in ["dpo", "reward"] {
        let shuffled = pairs(method, none(), 0.6927, 0.53);
        assert_eq!(
            shuffled.diagnose().verdict,
            Verdict::NotLearning,
            "{method}"
        );
        let found = shuffled.found("not_learning").unwrap();
        assert_eq!(found.status, Status::Warn);
        assert!(found.cause.contains("chosen"), "{}", found.cause);
        let learned = pairs(method, none(), 0.65, 0.53);
        assert_eq!(learned.status("not_learning"), None, "{method}");
        // A small beta moves the loss little, and ranks the pairs.
        let ranked = pairs(method, none(), 0.69, 0.7);
        assert_eq!(ranked.status("not_learning"), None, "{method}");
        assert_ne!(ranked.diagnose().verdict, Verdict::NotLearning);
    }
    // Other losses have other values of a coin.
    let hinge = pairs("dpo", serde_json::json!({"loss": "hinge"}), 0.6927, 0.53);
    assert_eq!(hinge.status("not_learning"), None);
    let orpo = pairs("orpo", none(), 0.6927, 0.53);
    assert_eq!(orpo.status("not_learning"), None);
}

/// 1e-3 was the advice for every run: a thousand times what preferences of a trained model bear.
#[test]
fn a_rate_too_low_is_raised_to_what_the_method_bears() {
    let fix = |method: &str, lr: f64, adapter: bool| {
        let mut spec = spec(lr);
        if adapter {
            spec["adapter"] = serde_json::json!({"lora": {"rank": 4}});
        }
        let mut tape = tuned(method, 1_000, spec);
        for s in 1..=300 {
            let values = [("train/loss", 1.2 + noise(s)), ("update_ratio", 1e-8)];
            tape.step(s, &values);
        }
        let found = tape.found("not_learning").unwrap();
        assert!(found.cause.contains("too low"), "{}", found.cause);
        (found.evidence.to_string(), found.fix)
    };
    for (method, lr, adapter, due) in [
        ("pretrain", 1e-9, false, "lr=1e-5"),
        ("sft", 1e-5, false, "lr=1e-4"),
        ("sft", 1e-8, true, "lr=2e-4"),
        ("dpo", 1e-9, false, "lr=1e-6"),
        ("kto", 1e-9, true, "lr=1e-5"),
        ("reward", 1e-9, true, "lr=1e-4"),
    ] {
        let (_, fix) = fix(method, lr, adapter);
        assert!(fix.contains(due), "{method} {lr}: {fix}");
    }
    assert!(
        fix("sft", 1e-9, false)
            .0
            .contains("1e-5 to 1e-4 is typical")
    );
    assert!(
        fix("dpo", 1e-9, false)
            .0
            .contains("1e-6 to 3e-5 is typical")
    );
    // From random weights as before.
    let mut fresh = fresh();
    for s in 1..=300 {
        let values = [("train/loss", 4.17 + noise(s)), ("update_ratio", 3e-8)];
        fresh.step(s, &values);
    }
    let found = fresh.found("not_learning").unwrap();
    assert!(
        found.fix.contains("lr=1e-1") && found.evidence.to_string().contains("1e-3 is typical")
    );
}

/// The kind of training that another program does is not in its log.
#[test]
fn a_rate_too_low_of_another_program_gets_no_value() {
    let mut tape = Tape::new(Some("base"), 0);
    tape.add(Event::Hello {
        run: "made up".into(),
        engine: "csv".into(),
        pid: 0,
        host: "another program".into(),
    });
    for s in 1..=300 {
        tape.step(s, &[("train/loss", 1.2 + noise(s)), ("update_ratio", 1e-8)]);
    }
    let fix = tape.found("not_learning").unwrap().fix;
    assert_eq!(fix, "raise the learning rate by factors of 10");
}

/// SFT on answers with one right form reached a loss of 3e-4 in its first 1,000 steps.
#[test]
fn answers_learned_to_the_end_are_no_leak() {
    let run = |method: &str, entropy: Option<f64>| {
        let mut tape = fresh();
        let spec = serde_json::json!({"train": {"from": null}});
        tape.begin(method, spec);
        tape.state.head.as_mut().unwrap().unigram_entropy = entropy;
        for s in 1..=400 {
            let x = 4.17 * (-(s as f64) / 40.0).exp();
            tape.step(s, &[("train/loss", x), ("entropy", x)]);
        }
        tape.status("leak")
    };
    assert_eq!(run("sft", None), None);
    assert_eq!(run("sft", Some(3.3)), Some(Status::Warn), "of whole texts");
    assert_eq!(run("pretrain", None), Some(Status::Warn));
}
