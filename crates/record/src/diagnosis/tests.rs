//! Rules on made-up runs; `tests/diagnosis.rs` tests them on recorded ones.

use super::*;
use crate::base::clock::UnixMillis;
use crate::wire::{Envelope, Event, Num, Values};

mod advice;
mod cold_start;
mod displacement;
mod every_rule;
mod fine_tuning;
mod foreign;
mod forgetting;
mod frequencies;
mod gpu;
mod loss_curve;
mod measured;
mod memory_growth;
mod moving_reference;
mod noise_limited;
mod onset;
mod overfitting;
mod rescued;
mod rising;
mod sparse;
mod spikes;
mod verdict;
mod warnings;
mod watch;

/// ln 65 is 4.174.
const VOCAB: u64 = 65;

/// A run under construction.
struct Tape {
    state: RunState,
    seq: u64,
}

impl Tape {
    fn new(from: Option<&str>, warmup_steps: u64) -> Tape {
        let mut tape = Tape {
            state: RunState::new(),
            seq: 0,
        };
        let spec = serde_json::json!({
            "train": {"from": from, "clip_norm": 1.0},
            "optimizer": {"adamw": {"lr": 0.01}},
            "schedule": {"cosine": {"warmup_steps": warmup_steps}},
        });
        tape.begin("pretrain", spec);
        tape
    }

    fn begin(&mut self, method: &str, spec: serde_json::Value) {
        self.begin_with(method, spec, 1);
    }

    fn begin_with(&mut self, method: &str, spec: serde_json::Value, batch_tokens: u64) {
        self.add(Event::Started {
            name: "made up".into(),
            method: method.into(),
            spec,
            n_params: 1,
            vocab_size: VOCAB,
            max_steps: 10_000,
            batch_tokens,
            epoch_tokens: 1,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        });
    }

    fn add(&mut self, event: Event) {
        self.seq += 1;
        self.state.apply(&Envelope {
            v: 1,
            seq: self.seq,
            t: UnixMillis(self.seq),
            event,
        });
    }

    fn step(&mut self, step: u64, values: &[(&str, f64)]) {
        let values: Values = values
            .iter()
            .map(|(id, x)| (id.to_string(), Num(*x)))
            .collect();
        self.add(Event::Stepped {
            step,
            tokens: step,
            values,
        });
    }

    fn evaluate(&mut self, step: u64, loss: f64) {
        self.add(Event::Evaluated {
            step,
            tokens: step,
            values: [("val/loss".to_string(), Num(loss))].into(),
            n_windows: 240,
            whole: false,
            seconds: 0.0,
        });
    }

    /// Steps `from..=to` with a loss and a gradient norm of 1.
    fn steps(mut self, from: u64, to: u64, loss: impl Fn(u64) -> f64) -> Tape {
        for step in from..=to {
            self.step(step, &[("train/loss", loss(step)), ("grad_norm", 1.0)]);
        }
        self
    }

    fn diagnose(&self) -> Diagnosis {
        diagnose(&self.state)
    }

    fn found(&self, id: &str) -> Option<Finding> {
        self.diagnose().findings.into_iter().find(|f| f.id == id)
    }

    fn status(&self, id: &str) -> Option<Status> {
        self.found(id).map(|f| f.status)
    }
}

fn fresh() -> Tape {
    Tape::new(None, 0)
}

/// The noise of a batch, ±0.03.
fn noise(step: u64) -> f64 {
    [0.01, -0.03, 0.015, -0.005, 0.03, -0.02][step as usize % 6]
}

/// 4.17 towards 1.5.
fn learning(step: u64) -> f64 {
    1.5 + 2.67 * (-(step as f64) / 300.0).exp() + noise(step)
}

#[test]
fn a_calm_run_passes_everything() {
    let mut tape = fresh().steps(1, 1000, learning);
    for step in [250, 500, 750, 1000] {
        tape.evaluate(step, learning(step) + 0.03);
    }
    let diagnosis = tape.diagnose();
    assert!(
        diagnosis.findings.iter().all(|f| f.status == Status::Pass),
        "{diagnosis:#?}"
    );
    assert_eq!(diagnosis.verdict, Verdict::Learning);
    assert!(
        diagnosis.summary.starts_with("train loss 4.1"),
        "{}",
        diagnosis.summary
    );
    let titles: Vec<&str> = diagnosis
        .findings
        .iter()
        .map(|f| f.title.as_str())
        .collect();
    assert_eq!(titles, ["train loss", "val − train", "gradient norm"]);
}

/// Charts begin at the first reading, and so do all descriptions of the start.
#[test]
fn the_summary_starts_at_the_first_reading() {
    let tape = fresh().steps(1, 200, |s| match s {
        1 => 4.152,
        2 => 3.8,
        s => 3.7 - 0.005 * s as f64 + noise(s),
    });
    let diagnosis = tape.diagnose();
    assert_eq!(diagnosis.verdict, Verdict::Learning);
    let summary = diagnosis.summary;
    assert!(summary.starts_with("train loss 4.152 → "), "{summary}");
    // The same for a run that falls fast and then explodes.
    let tape = fresh().steps(1, 200, |s| match s {
        1 => 4.152,
        s if s < 100 => 3.7,
        _ => 9.0,
    });
    let found = tape.found("diverged").unwrap();
    let evidence = found.evidence.to_string();
    let began = "it began at 4.152 and was at 3.700 within five steps";
    assert!(evidence.contains(began), "{evidence}");
}

/// Several numbers of one metric on one screen are labelled.
#[test]
fn means_and_differences_are_labelled() {
    let mut tape = fresh().steps(1, 420, learning);
    tape.evaluate(400, learning(400) + 0.03);
    let told = |id: &str| tape.found(id).unwrap().evidence.to_string();
    let norm = told("gradient_spike");
    assert!(norm.ends_with("steady, median of 200 steps"), "{norm}");
    let gap = told("overfitting");
    // The training loss beside it on the screen is another one: what was subtracted is named.
    assert_eq!(gap, "0.059 = 2.264 − 2.205 at 400");
}

#[test]
fn a_run_that_has_learned_and_stays_is_stable() {
    let tape = fresh().steps(1, 3000, |s| {
        learning(s.min(900)) - noise(900) + noise(s * 7)
    });
    assert_eq!(tape.diagnose().verdict, Verdict::Stable);
    assert_eq!(tape.status("train_loss"), Some(Status::Pass));
}

#[test]
fn nothing_is_reported_before_it_is_known() {
    let empty = diagnose(&RunState::new());
    assert_eq!(
        (empty.verdict, empty.findings.len()),
        (Verdict::TooEarly, 0)
    );
    assert!(!empty.failed() && empty.worst().is_none());
    assert_eq!(fresh().steps(1, 5, |_| 4.2).diagnose().findings, []);
    let flat = Tape::new(None, 500).steps(1, 200, |s| 4.17 + noise(s));
    assert_eq!(flat.diagnose().verdict, Verdict::TooEarly, "in its warm-up");
}

#[test]
fn a_loss_that_is_non_finite_has_diverged() {
    let tape = fresh().steps(1, 99, learning).steps(100, 100, |_| f64::NAN);
    let found = tape.found("diverged").unwrap();
    assert_eq!(
        (found.status, found.place.as_str()),
        (Status::Fail, "step 100")
    );
    assert!(found.fix.contains("-s lr=1e-3"), "{}", found.fix);
    assert_eq!(tape.diagnose().verdict, Verdict::Diverged);
    assert_eq!(tape.found("train_loss"), None, "one rule reports it");
    // A stretch is identified by its first step, even if that is older than the exact readings.
    for (last, said) in [(190, "since step 150"), (9_000, "since step 150")] {
        let tape = fresh()
            .steps(1, 149, learning)
            .steps(150, last, |_| f64::NAN);
        let found = tape.found("diverged").unwrap();
        assert_eq!(found.evidence.to_string(), format!("train loss NaN {said}"));
        assert_eq!(found.place, "step 150");
    }
    let mut gradient = fresh().steps(1, 99, learning);
    let values = [("train/loss", 3.0), ("grad_norm", f64::INFINITY)];
    gradient.step(100, &values);
    let found = gradient.found("diverged").unwrap();
    assert_eq!(found.evidence.to_string(), "gradient norm inf at step 100");
}

#[test]
fn a_loss_above_guessing_has_diverged_and_a_spike_has_not() {
    let high = fresh()
        .steps(1, 20, learning)
        .steps(21, 60, |s| 9.0 + noise(s));
    assert_eq!(high.status("diverged"), Some(Status::Fail));
    assert_eq!(
        high.status("gradient_spike"),
        None,
        "steady norms say nothing"
    );
    assert!(
        high.found("diverged")
            .unwrap()
            .evidence
            .to_string()
            .contains("guessing gives 4.174")
    );
    let spike = fresh().steps(1, 500, |s| if s % 100 < 3 { 60.0 } else { learning(s) });
    assert_eq!(spike.status("diverged"), None);
}

#[test]
fn a_run_that_only_recovered_to_token_frequencies_is_still_diverged() {
    let loss = |s: u64| match s {
        0..=5 => 4.17,
        6..=80 => 150.0 + 100.0 * noise(s),
        _ => 3.6 + noise(s),
    };
    assert_eq!(
        fresh().steps(1, 150, loss).status("diverged"),
        Some(Status::Fail)
    );
    let recovered = fresh()
        .steps(1, 150, loss)
        .steps(151, 600, |s| 2.0 + noise(s));
    assert_eq!(recovered.status("diverged"), None);
}

#[test]
fn losing_most_of_what_was_gained_is_divergence() {
    let lost = fresh()
        .steps(1, 1000, learning)
        .steps(1001, 1100, |s| 3.4 + noise(s));
    let found = lost.found("diverged").unwrap();
    assert!(
        found.evidence.to_string().contains("its best was 1.6"),
        "{}",
        found.evidence
    );
    assert!(found.fix.contains("restart from before it"));
    // Pretrained weights: a uniform prediction is far away, the start is what counts.
    let tuned = Tape::new(Some("base"), 0).steps(1, 100, |s| 1.2 + noise(s) + 0.02 * s as f64);
    assert_eq!(tuned.status("diverged"), Some(Status::Fail));
}

#[test]
fn a_loss_that_stays_at_its_start_is_not_learning_and_the_signals_name_the_cause() {
    let flat = |s: u64| 4.17 + noise(s);
    let plain = fresh().steps(1, 300, flat);
    assert_eq!(plain.diagnose().verdict, Verdict::NotLearning);
    assert!(
        plain
            .found("not_learning")
            .unwrap()
            .cause
            .contains("targets")
    );
    let mut slow = fresh();
    let mut idle = fresh();
    for s in 1..=300 {
        slow.step(s, &[("train/loss", flat(s)), ("update_ratio", 3e-8)]);
        idle.step(s, &[("train/loss", flat(s)), ("grad_norm", 1e-9)]);
    }
    assert_eq!(
        slow.found("not_learning").unwrap().cause,
        "the learning rate is too low"
    );
    assert!(
        idle.found("not_learning")
            .unwrap()
            .cause
            .contains("no gradient")
    );
    let early = Tape::new(None, 250).steps(1, 300, flat);
    assert_eq!(
        early.status("not_learning"),
        None,
        "50 steps after the warm-up"
    );
}

#[test]
fn pretrained_weights_may_not_improve_further() {
    let tuned = Tape::new(Some("base"), 0).steps(1, 400, |s| 1.2 + noise(s));
    assert_eq!(tuned.status("not_learning"), None);
    assert_eq!(tuned.diagnose().verdict, Verdict::Stable);
}

#[test]
fn a_rising_loss_is_a_warning_and_with_large_updates_the_learning_rate_is_too_high() {
    let loss = |s: u64| match s {
        0..=1000 => learning(s),
        s => 1.6 + 0.001 * (s - 1000) as f64 + noise(s),
    };
    let mut tape = fresh().steps(1, 1000, loss);
    (1001..=1400).for_each(|s| tape.step(s, &[("train/loss", loss(s)), ("update_ratio", 2e-3)]));
    assert_eq!(tape.status("train_loss"), Some(Status::Warn));
    assert_eq!(tape.status("lr_too_high"), None, "one signal is not enough");
    (1401..=1600).for_each(|s| tape.step(s, &[("train/loss", loss(s)), ("update_ratio", 3e-2)]));
    let found = tape.found("lr_too_high").unwrap();
    assert_eq!((found.status, found.evidence.0.len()), (Status::Warn, 2));
    assert!(found.fix.contains("-s lr="), "{}", found.fix);
}

#[test]
fn spikes_in_clusters_with_growing_gradients_are_a_learning_rate_too_high() {
    let run = |grows: bool| {
        let mut tape = fresh();
        for s in 1..=600 {
            let spike = if s > 420 && s % 25 == 0 { 2.0 } else { 0.0 };
            let norm = if grows && s > 500 { 3.0 } else { 1.0 };
            tape.step(
                s,
                &[("train/loss", learning(s) + spike), ("grad_norm", norm)],
            );
        }
        tape.status("lr_too_high")
    };
    assert_eq!(run(true), Some(Status::Warn));
    assert_eq!(run(false), None, "spikes alone");
}

#[test]
fn clipping_at_every_step_alone_is_healthy() {
    let mut tape = fresh();
    for s in 1..=1000 {
        let values = [
            ("train/loss", learning(s)),
            ("clipped", 1.0),
            ("update_ratio", 3e-2),
        ];
        tape.step(s, &values);
    }
    assert_eq!(tape.status("lr_too_high"), None);
}

#[test]
fn gradient_spikes_are_counted_after_the_warm_up() {
    let run = |spikes: &[u64], warmup| {
        let mut tape = Tape::new(None, warmup);
        for s in 1..=300 {
            // Below the clipping norm of 1: they reach the optimizer as they are.
            let norm = if spikes.contains(&s) { 0.9 } else { 0.1 };
            tape.step(s, &[("train/loss", learning(s)), ("grad_norm", norm)]);
        }
        tape.found("gradient_spike").unwrap()
    };
    let one = run(&[290], 0);
    assert_eq!(
        (one.status, one.evidence.to_string().as_str()),
        (Status::Pass, "9 times its baseline at step 290"),
        "the loss did not move"
    );
    assert!(
        run(&[210, 220, 230, 240, 250, 260], 0)
            .cause
            .contains("clusters")
    );
    assert_eq!(run(&[290], 295).status, Status::Pass);
}

#[test]
fn a_gradient_spike_counts_with_a_spike_of_the_loss_or_when_it_is_large() {
    let run = |norm: f64, jump: f64, at: u64| {
        let mut tape = Tape::new(None, 0);
        for s in 1..=300 {
            // Early norms fall from 30 to 1 anyway.
            let usual = 1.0 + 29.0 * (-(s as f64) / 15.0).exp();
            let (norm, jump) = if s == at { (norm, jump) } else { (usual, 0.0) };
            tape.step(
                s,
                &[("train/loss", learning(s) + jump), ("grad_norm", norm)],
            );
        }
        tape.found("gradient_spike").unwrap()
    };
    assert_eq!(run(9.0, 1.5, 250).evidence.0.len(), 2);
    assert_eq!(run(9.0, 1.5, 250).status, Status::Warn);
    assert_eq!(run(9.0, 0.0, 250).status, Status::Pass);
    assert_eq!(run(15.0, 0.0, 250).status, Status::Warn);
    assert_eq!(
        run(50.0, 0.0, 33).status,
        Status::Pass,
        "the first 100 steps are silent"
    );
}

/// Readings of four blocks at every tenth step; block 2 has the odd value.
fn odd_block(id: &'static str, usual: f64, odd: f64) -> impl Fn(&mut Tape, u64) {
    move |tape, step| {
        let values = [usual, usual, odd, usual].map(Num).to_vec();
        let layers = [(id.to_string(), values)].into();
        tape.add(Event::Probed { step, layers });
    }
}

#[test]
fn rules_on_blocks_need_two_lasting_signals() {
    type Look = Box<dyn Fn(&mut Tape, u64)>;
    type Looks = Vec<Look>;
    let run = |looks: Looks, upto: u64| {
        let mut tape = fresh().steps(1, 90, learning);
        for step in (100..=upto).step_by(10) {
            tape = tape.steps(step - 9, step, learning);
            looks.iter().for_each(|look| look(&mut tape, step));
        }
        tape
    };
    let look = |id: &'static str, usual, odd| -> Look { Box::new(odd_block(id, usual, odd)) };
    let dead = || look("dead_units/layer", 0.1, 0.9);
    let quiet = || look("grad_norm/layer", 1.0, 0.01);
    let idle = || look("update_ratio/layer", 1e-3, 1e-6);
    let warns = |tape: &Tape, id: &str| tape.status(id) == Some(Status::Warn);
    assert!(warns(&run(vec![dead(), quiet()], 200), "dead_layer"));
    assert!(!warns(
        &run(vec![dead(), look("grad_norm/layer", 1.0, 0.9)], 200),
        "dead_layer"
    ));
    assert!(
        !warns(&run(vec![dead(), quiet()], 110), "dead_layer"),
        "two looks are too few"
    );
    let both = run(vec![idle(), quiet()], 200);
    assert!(
        both.found("idle_layer")
            .unwrap()
            .evidence
            .to_string()
            .contains("block 2")
    );
    assert!(!warns(
        &run(vec![idle(), look("grad_norm/layer", 1.0, 0.5)], 200),
        "idle_layer"
    ));
    let sharp = || look("attn_entropy/layer", 0.6, 0.01);
    assert!(warns(
        &run(vec![sharp(), look("attn_logit_max/layer", 9.0, 250.0)], 200),
        "attention_collapse"
    ));
    assert!(!warns(
        &run(vec![sharp(), look("attn_logit_max/layer", 9.0, 30.0)], 200),
        "attention_collapse"
    ));
}

#[test]
fn data_waits_warnings_and_lost_events_are_reported() {
    let mut tape = fresh();
    (1..=30).for_each(|s| tape.step(s, &[("train/loss", 4.0), ("data_wait", 0.4)]));
    assert_eq!(
        tape.found("data_wait").unwrap().evidence.to_string(),
        "40 % of the time"
    );
    tape.add(Event::Warned {
        step: 30,
        code: "x".into(),
        message: "the disk is full".into(),
        hint: String::new(),
    });
    assert_eq!(
        tape.found("warnings").unwrap().evidence.to_string(),
        "the disk is full"
    );
    tape.seq += 3;
    tape.step(31, &[("train/loss", 4.0)]);
    assert_eq!(
        tape.found("events").unwrap().evidence.to_string(),
        "3 never arrived"
    );
}

#[test]
fn a_failed_preflight_check_represents_all() {
    let mut tape = fresh();
    let check = |finding: Finding| Event::Checked {
        finding: finding.into(),
        seconds: 0.1,
        next: None,
    };
    tape.add(check(Finding::pass("fine").named("a", "First")));
    assert_eq!(
        tape.found("preflight").unwrap().evidence.to_string(),
        "1 checks passed"
    );
    tape.add(check(
        Finding::fail("seen", "why", "do").named("b", "Second"),
    ));
    let found = tape.found("preflight").unwrap();
    assert_eq!(found.evidence.to_string(), "Second: seen");
    assert_eq!((found.status, found.fix.as_str()), (Status::Fail, "do"));
}

#[test]
fn preflight_findings_persist_after_a_resume_until_a_check_is_made_again() {
    let mut tape = fresh();
    let check = |finding: Finding| Event::Checked {
        finding: finding.named("cut", "Answers end").into(),
        seconds: 0.1,
        next: None,
    };
    tape.add(check(Finding::warn("31 % are cut", "why", "do")));
    // Killed, and resumed: a resumed run performs no checks.
    tape.add(Event::Hello {
        run: "r".into(),
        engine: "0".into(),
        pid: 2,
        host: "h".into(),
    });
    let said = |tape: &Tape| tape.found("preflight").unwrap().evidence.to_string();
    assert_eq!(said(&tape), "Answers end: 31 % are cut");
    tape.add(check(Finding::pass("all of them")));
    assert_eq!(said(&tape), "1 checks passed");
}

#[test]
fn the_verdict_is_the_first_of_the_list_and_fails_with_it() {
    let tape = fresh().steps(1, 300, |step| 4.0 + noise(step));
    let diagnosis = tape.diagnose();
    let list = diagnosis.list();
    assert_eq!(list[0].id, VERDICT);
    assert_eq!(list[0].title, diagnosis.verdict.word());
    assert_eq!(list[1..], diagnosis.findings);
    assert_eq!(
        diagnosis.failed(),
        list.iter().any(|f| f.status == Status::Fail)
    );
}

#[test]
fn findings_of_unknown_rules_of_a_newer_engine_are_shown() {
    let mut tape = fresh().steps(1, 30, learning);
    let finding = Finding::warn("all heads alike", "why", "do").named("dead_heads", "heads");
    tape.add(Event::Diagnosed {
        step: 30,
        finding: finding.into(),
    });
    assert_eq!(tape.status("dead_heads"), Some(Status::Warn));
    tape.add(Event::RolledBack { step: 20 });
    assert_eq!(tape.status("dead_heads"), None);
}

#[test]
fn every_rule_has_a_unique_id_a_short_title_and_a_source() {
    let mut ids: Vec<&str> = RULES.iter().map(|rule| rule.entry.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), RULES.len());
    for Rule { entry, .. } in RULES {
        assert!(entry.title.chars().count() <= 14, "{}", entry.title);
        assert!(
            entry.summary.ends_with('.') && !entry.source.is_empty(),
            "{}",
            entry.id
        );
    }
}

/// Otherwise a rule next to an engine would never see it, although `llmtui diagnose` does.
#[test]
fn a_watch_keeps_every_metric_that_a_rule_reads() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let named = include_str!("../wire/id.rs").lines().filter_map(|line| {
        let constant = line.trim_start().strip_prefix("pub const ")?;
        let (name, rest) = constant.split_once(": &str = \"")?;
        let of_machine = if line.starts_with(' ') {
            "machine::"
        } else {
            ""
        };
        Some((
            format!("metric::{of_machine}{name}"),
            rest.trim_end_matches("\";"),
        ))
    });
    let read = |path: std::fs::DirEntry| std::fs::read_to_string(path.path()).unwrap();
    let rules = std::fs::read_dir(folder.join("diagnosis/rules"))
        .unwrap()
        .flatten();
    let rules: String = rules.map(read).collect();
    let is_word = |c: char| c.is_ascii_uppercase() || c == '_';
    let mut checked = 0;
    for (name, id) in named {
        // A prefix is not an id: losses on extra sets and results of tasks reach a watch as evaluations.
        let whole = |at: usize| !rules[at + name.len()..].starts_with(is_word);
        if id.ends_with('/') || !rules.match_indices(&name).any(|(at, _)| whole(at)) {
            continue;
        }
        assert!(rules::is_read(id), "{name}");
        checked += 1;
    }
    assert!(checked > 25, "{checked}");
}

#[test]
fn a_failed_engine_and_a_rejected_resume_are_reported_with_their_reasons() {
    let finished = |outcome, message: &str| Event::Finished {
        outcome,
        step: 40,
        tokens: 0,
        val_loss: None,
        best: None,
        train_loss: None,
        seconds: 1.0,
        message: message.into(),
    };
    let hello = || Event::Hello {
        run: "r".into(),
        engine: "0.1.0".into(),
        pid: 1,
        host: "h".into(),
    };
    let engine = |tape: &Tape| {
        let found = diagnose(&tape.state).list();
        found.into_iter().find(|found| found.id == "engine")
    };
    use crate::wire::Outcome;
    let mut tape = Tape::new(None, 10);
    tape.add(finished(Outcome::Invalid, "the training text changed"));
    let found = engine(&tape).unwrap();
    assert_eq!(found.status, Status::Fail);
    let text = found.evidence.to_string();
    assert!(
        text.contains("step 40: the training text changed"),
        "{text}"
    );
    // A finished run is not affected by a rejected resume.
    let mut tape = Tape::new(None, 10);
    tape.step(40, &[("train/loss", 2.0)]);
    tape.add(finished(Outcome::Stopped, "on request"));
    assert_eq!(engine(&tape), None);
    tape.add(hello());
    tape.add(finished(Outcome::Invalid, "the training text changed"));
    let found = engine(&tape).unwrap();
    assert_eq!(found.status, Status::Warn);
    assert!(found.evidence.to_string().contains("text changed"));
}
