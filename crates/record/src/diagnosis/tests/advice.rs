//! Causes and advice where a setting of the spec explains what is seen, and advice of several findings in one report.

use super::*;

/// A run from random weights with these settings of the model, ended after 400 steps.
fn model(settings: serde_json::Value) -> Tape {
    let mut tape = Tape {
        state: RunState::new(),
        seq: 0,
    };
    let mut model = serde_json::json!({"d_model": 64, "n_head": 4, "init_std": 0.02});
    for (key, value) in settings.as_object().unwrap() {
        model[key] = value.clone();
    }
    let spec = serde_json::json!({
        "model": model,
        "train": {"from": null, "clip_norm": 1.0},
        "optimizer": {"adamw": {"lr": 0.001, "weight_decay": 0.1}},
        "schedule": {"cosine": {"warmup_steps": 100}},
    });
    tape.begin("pretrain", spec);
    tape.ends_at(400);
    tape
}

impl Tape {
    fn ends_at(&mut self, max_steps: u64) {
        self.state.head.as_mut().unwrap().max_steps = max_steps;
    }

    fn probe(&mut self, step: u64, layers: &[(&str, f64)]) {
        let two = |x: f64| [x, x].map(Num).to_vec();
        let layers = layers.iter().map(|(id, x)| (id.to_string(), two(*x)));
        let layers = layers.collect();
        self.add(Event::Probed { step, layers });
    }
}

/// From 7,063 to 26, as with logits multiplied by 10,000; ln 65 is 4.174.
fn loud(upto: u64) -> Tape {
    let mut tape = model(serde_json::json!({"logit_scale": 1e4}));
    for step in 1..=upto {
        let values = [
            (
                "train/loss",
                7063.0 / (step as f64).powf(0.93) + noise(step),
            ),
            ("entropy", 0.001),
            ("grad_norm", 30_000.0),
            ("clipped", 1.0),
            ("update_ratio", 1.4e-3),
        ];
        tape.step(step, &values);
    }
    tape
}

/// Six times the loss of a uniform guess at the end of a run was LEARNING.
#[test]
fn a_run_that_ends_above_a_uniform_guess_has_not_learned() {
    let diagnosis = loud(400).diagnose();
    assert_eq!(diagnosis.verdict, Verdict::NotLearning);
    assert!(diagnosis.failed());
    let found = diagnosis.findings.iter().find(|f| f.id == "not_learning");
    let found = found.unwrap();
    assert_eq!(found.changes(), ["model.logit_scale=1"]);
    let said = found.evidence.to_string();
    assert!(said.contains("guessing gives 4.174"), "{said}");
    assert!(said.contains("model.logit_scale is 10000"), "{said}");
    // The rate is not what is wrong, and nor is the clipping of gradients 30,000 times too large.
    let advised: Vec<String> = diagnosis.advice().flat_map(Finding::changes).collect();
    assert!(
        advised.iter().all(|change| change == "model.logit_scale=1"),
        "{advised:?}"
    );
    // Half of its steps are a fair share; a young run that comes down is told what is wrong with it, no more.
    assert_eq!(loud(201).diagnose().verdict, Verdict::NotLearning);
    let young = loud(199).diagnose();
    assert_eq!(young.verdict, Verdict::Learning);
    let warned = young.advised().unwrap();
    assert_eq!(
        (warned.id.as_str(), warned.changes()),
        ("initial_loss", vec!["model.logit_scale=1".to_string()])
    );
    // One that is too short for any other judgement ends there as well.
    let mut short = loud(60);
    assert_eq!(short.diagnose().verdict, Verdict::Learning);
    short.ends_at(60);
    assert_eq!(short.diagnose().verdict, Verdict::NotLearning);
    // Of another model the same loss names no setting.
    let mut plain = loud(400);
    plain.state.head.as_mut().unwrap().spec["model"]["logit_scale"] = serde_json::Value::Null;
    let found = plain.found("not_learning").unwrap();
    assert!(found.changes().is_empty(), "{}", found.fix);
    // From 19 to below a guess it has learned.
    let mut back = model(serde_json::json!({"init_std": 1.0}));
    for step in 1..=400 {
        let loss = 3.2 + 16.0 / step as f64 + noise(step);
        back.step(step, &[("train/loss", loss), ("entropy", 0.5)]);
    }
    assert_ne!(back.diagnose().verdict, Verdict::NotLearning);
}

/// Scores that began at 339 under a scale of 1,000 had "grown"; the rate that was advised made the run worse.
#[test]
fn attention_that_is_saturated_by_a_setting_is_not_blamed_on_the_rate() {
    let run = |settings: serde_json::Value, first: f64| {
        let mut tape = model(settings);
        for step in 1..=400 {
            tape.step(step, &[("train/loss", learning(step))]);
            if step % 25 == 1 {
                let share = (step - 1) as f64 / 400.0;
                let largest = first + (2300.0 - first) * share;
                let layers = [
                    ("attn_entropy/layer", 0.002),
                    ("attn_logit_max/layer", largest),
                ];
                tape.probe(step, &layers);
            }
        }
        tape.found("attention_collapse").unwrap()
    };
    let scaled = run(serde_json::json!({"attention_scale": 1000.0}), 339.0);
    assert_eq!(scaled.changes(), ["model.attention_scale=0.25"]);
    let said = scaled.evidence.to_string();
    assert!(said.contains("it began at 339"), "{said}");
    let wide = run(serde_json::json!({"init_std": 1.0}), 215.0);
    assert_eq!(wide.changes(), ["model.init_std=0.02"]);
    let unknown = run(serde_json::json!({}), 215.0);
    assert_eq!(unknown.changes(), ["model.qk_norm=true"]);
    assert!(!unknown.cause.contains("grown"), "{}", unknown.cause);
    let grown = run(serde_json::json!({}), 0.1);
    assert!(grown.cause.contains("grown"), "{}", grown.cause);
    assert_eq!(grown.changes(), ["lr=1e-4", "model.qk_norm=true"]);
}

/// They were said to be frozen, or every target masked.
#[test]
fn weights_of_zero_are_named() {
    let mut tape = model(serde_json::json!({"init_std": 0.0}));
    for step in 1..=400 {
        tape.step(step, &[("train/loss", 4.174_387), ("grad_norm", 0.0)]);
        if step % 25 == 1 {
            let layers = ["weight_std/layer", "update_ratio/layer", "grad_norm/layer"];
            tape.probe(step, &layers.map(|id| (id, 0.0)));
        }
    }
    let found = tape.found("not_learning").unwrap();
    assert!(found.evidence.to_string().contains("are 0"), "{found:?}");
    assert_eq!(found.changes(), ["model.init_std=0.02"]);
    assert_eq!(tape.status("idle_layer"), None, "no block is frozen");
}

/// An update of 1.4e-3, where 1e-3 is typical, was evidence of a rate that is too low.
#[test]
fn typical_updates_are_no_evidence_of_a_low_rate() {
    let slow = |ratio: f64| {
        let mut tape = model(serde_json::json!({}));
        tape.ends_at(10_000);
        for step in 1..=400 {
            let loss = 4.17 - 8e-4 * step as f64 + noise(step) / 10.0;
            tape.step(step, &[("train/loss", loss), ("update_ratio", ratio)]);
        }
        let lost = tape
            .found("not_learning")
            .map(|found| (found.status, found.evidence.to_string()));
        (tape.status("lr_too_low"), lost)
    };
    assert_eq!(slow(1.4e-3), (None, None));
    assert_eq!(slow(5e-4), (Some(Status::Warn), None));
}

/// A decay of 10 % a step was not seen: the model was as sure as it was right.
#[test]
fn weights_that_shrink_under_a_large_decay_are_named() {
    let run = |decay: f64, last: f64| {
        let mut tape = model(serde_json::json!({}));
        let spec = &mut tape.state.head.as_mut().unwrap().spec;
        spec["optimizer"]["adamw"]["weight_decay"] = decay.into();
        for step in 1..=400 {
            let values = [
                ("train/loss", learning(step)),
                ("entropy", learning(step)),
                ("update_ratio", 0.14),
            ];
            tape.step(step, &values);
            if step % 25 == 1 {
                let spread = 0.018 + (last - 0.018) * step as f64 / 400.0;
                tape.probe(step, &[("weight_std/layer", spread)]);
            }
        }
        tape.found("weight_decay")
    };
    // lr is 0.001.
    let found = run(100.0, 0.007).unwrap();
    assert_eq!(found.status, Status::Warn);
    assert_eq!(found.changes(), ["weight_decay=0.1"]);
    let said = found.evidence.to_string();
    assert!(!said.contains("underconfident"), "{said}");
    assert_eq!(run(0.1, 0.007), None, "the usual decay");
    assert_eq!(run(100.0, 0.02), None, "weights that grow");
}

/// Lines that are no events were skipped in silence: a log of nothing else was a run that is TOO EARLY.
#[test]
fn damaged_lines_of_a_log_are_reported() {
    let mut whole = RunState::new();
    assert_eq!(diagnose(&whole).findings, []);
    whole.damaged = 800;
    let diagnosis = diagnose(&whole);
    assert!(diagnosis.failed());
    let said = diagnosis.findings[0].evidence.to_string();
    assert!(
        said.starts_with("800 damaged lines of the log skipped"),
        "{said}"
    );
    let mut part = fresh().steps(1, 100, learning);
    part.state.damaged = 1;
    let found = part.found("events").unwrap();
    assert_eq!(found.status, Status::Warn);
    assert_eq!(
        found.evidence.to_string(),
        "1 damaged line of the log skipped"
    );
}
