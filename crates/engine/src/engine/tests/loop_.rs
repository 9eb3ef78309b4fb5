//! The order of events in an undisturbed run.

use super::*;
use crate::diagnosis::VERDICT;

#[test]
fn a_run_greets_declares_trains_and_finishes_with_the_whole_split() {
    let run = Run::new(&[]);
    let events = run.go();
    assert!(matches!(&events[0], Event::Hello { run: id, .. } if id == run.job.run_dir.id()));
    let position = |what: fn(&Event) -> bool| events.iter().position(what).unwrap();
    let started = position(|e| matches!(e, Event::Started { .. }));
    let declared = position(|e| matches!(e, Event::MetricsDeclared { .. }));
    let first = position(|e| matches!(e, Event::Stepped { .. }));
    assert!(started < declared && declared < first);
    let evaluated: Vec<(u64, bool)> = events
        .iter()
        .filter_map(|e| match e {
            Event::Evaluated { step, whole, .. } => Some((*step, *whole)),
            _ => None,
        })
        .collect();
    assert_eq!(
        evaluated,
        [(5, false), (10, false), (15, false), (20, true)]
    );
    let Some(Event::Finished {
        outcome: Outcome::Completed,
        step: 20,
        tokens: 1280,
        val_loss: Some(loss),
        ..
    }) = events.last()
    else {
        panic!("{:?}", events.last())
    };
    assert!(loss.0 > 2.0 && loss.0 < 4.3, "{loss:?}");
    let samples = events.iter().filter(|e| matches!(e, Event::Sampled { .. }));
    assert_eq!(samples.count(), 2);
    assert_eq!(run.kept().len(), 2 + usize::from(!run.kept().contains(&15)));
}

/// The whole split is other rows than the batches before. A model that stands still, of which the later is taken, lost to its past
/// where they are harder.
#[test]
fn the_last_evaluation_competes_on_the_rows_that_all_of_them_read() {
    let mut harder = 0;
    for seed in 1..=4 {
        let words = [&format!("seed={seed}"), "eval.every=10", "eval.batches=1"];
        let events = Run::new(&[&words[..], &["lr=1e-12", "min_lr=0"]].concat()).go();
        let losses: Vec<f64> = events
            .iter()
            .filter_map(|e| match e {
                Event::Evaluated { values, .. } => Some(values["val/loss"].0),
                _ => None,
            })
            .collect();
        let [before, last] = losses[..] else {
            panic!("{losses:?}")
        };
        harder += u32::from(last > before);
        let Some(Event::Finished {
            best: Some(best), ..
        }) = events.last()
        else {
            panic!("{events:?}")
        };
        assert_eq!((best.step, best.value.0), (20, last), "{losses:?}");
    }
    assert!(harder > 0, "another seed");
}

/// A list of runs does not wait for an evaluation.
#[test]
fn a_verdict_is_told_before_the_first_evaluation() {
    let run = Run::new(&["train.max_steps=60", "eval.every=50"]);
    let events = run.go();
    let at = |what: fn(&Event) -> bool| events.iter().position(what).unwrap();
    let verdict = at(|e| matches!(e, Event::Diagnosed { finding, .. } if finding.id == VERDICT));
    let twenty = at(|e| matches!(e, Event::Stepped { step: 20, .. }));
    assert_eq!(verdict, twenty + 1);
    assert!(verdict < at(|e| matches!(e, Event::Evaluated { .. })));
}

#[test]
fn every_value_is_declared_and_phases_are_told() {
    let run = Run::new(&["train.max_steps=6"]);
    let events = run.go();
    let (mut phases, mut declared, mut probed) = (Vec::new(), Vec::new(), 0);
    for event in &events {
        match event {
            Event::MetricsDeclared { metrics } => {
                declared.extend(metrics.iter().map(|m| (m.id.clone(), m.per_layer)));
            }
            Event::Stepped { values, .. } | Event::Evaluated { values, .. } => {
                let known = |id: &String| declared.contains(&(id.clone(), false));
                assert!(values.keys().all(known), "{values:?}");
            }
            Event::Probed { step, layers } => {
                let known = |id: &String| declared.contains(&(id.clone(), true));
                assert!(layers.keys().all(known) && *step > 0, "{layers:?}");
                probed += 1;
            }
            Event::PhaseChanged { phase, .. } => phases.push(*phase),
            _ => {}
        }
    }
    assert!(probed > 0, "probes look at the first step");
    assert_eq!(phases[..2], [Phase::Preparing, Phase::Training]);
    for phase in [Phase::Evaluating, Phase::Sampling, Phase::Checkpointing] {
        assert!(phases.contains(&phase), "{phase:?}");
    }
}

#[test]
fn gradient_accumulation_is_one_large_batch() {
    let losses = |words: &[&str]| -> Vec<f64> {
        let events = Run::new(words).go();
        let loss = |e: &Event| match e {
            Event::Stepped { values, .. } => Some(values["train/loss"].0),
            _ => None,
        };
        events.iter().filter_map(loss).collect()
    };
    // The first step's loss is the mean of the losses of its micro-batches, each measured with the same weights.
    let portions = losses(&["train.grad_accum_steps=3", "train.max_steps=1"]);
    let frozen = losses(&[
        "optimizer.adamw.lr=1e-30",
        "schedule.cosine.min_lr=0",
        "train.max_steps=3",
    ]);
    let mean = frozen.iter().sum::<f64>() / 3.0;
    assert!((portions[0] - mean).abs() < 1e-5, "{portions:?} {frozen:?}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let log = |words: &[&str]| loss_log(&[&Run::new(words).go()]);
    let words = ["train.max_steps=8"];
    assert_eq!(log(&words), log(&words));
    assert_ne!(log(&words), log(&["train.max_steps=8", "seed=2"]));
    // A machine's number of threads does not change the numbers of so small a model, evaluations do not consume training's.
    assert_eq!(
        log(&["train.max_steps=8", "eval.every=0"]).first(),
        log(&words).first()
    );
}

#[test]
fn preflight_passes_on_the_quickstart_and_is_quick() {
    let run = Run::new(&["preflight.enabled=true", "train.max_steps=1"]);
    let events = run.go();
    let checks: Vec<(&str, Status, f64)> = events
        .iter()
        .filter_map(|e| match e {
            Event::Checked {
                finding, seconds, ..
            } => Some((finding.id.as_str(), finding.status, *seconds)),
            _ => None,
        })
        .collect();
    assert_eq!(checks.len(), preflight::CHECKS.len());
    // A toy of one step has settings that nobody would want.
    let good = |c: &(&str, Status, f64)| {
        matches!(c.1, Status::Pass | Status::NotApplicable) || c.0 == "settings"
    };
    assert!(checks.iter().all(good), "{events:#?}");
    assert_eq!(finished(&events).0, Outcome::Completed);
    assert!(
        !run.job
            .run_dir
            .checkpoints_path()
            .join(".tmp-preflight")
            .exists()
    );
}

#[test]
fn a_failed_check_refuses_the_run_and_force_goes_on() {
    let mut run = Run::new(&[
        "preflight.enabled=true",
        "train.max_steps=2",
        "model.init_std=1",
    ]);
    let events = run.go();
    let (outcome, step, message) = finished(&events);
    assert_eq!((outcome, step), (Outcome::Refused, 0));
    assert!(
        message.contains("model.init_std is 1, where 0.02 is usual") && message.contains("--force"),
        "{message}"
    );
    // Checks that compute are not started after it, which is reported; cheap checks came before.
    let not_run = |events: &[Event]| -> Vec<String> {
        let not_run = events.iter().filter_map(|e| match e {
            Event::Checked { finding, .. } if finding.status == Status::Unknown => {
                let why = "not run, because a check failed: Loss before training is as expected";
                assert_eq!(finding.evidence.to_string(), why);
                Some(finding.id.clone())
            }
            _ => None,
        });
        not_run.collect()
    };
    let later = ["causal_mask", "same_seed", "overfit", "round_trip"];
    assert_eq!(not_run(&events), later);
    run.job.force = true;
    let forced = run.go();
    assert_eq!(finished(&forced).0, Outcome::Completed);
    assert!(not_run(&forced).is_empty());
}

/// Codes of 8 bits are saved three to an f32: more bytes on the disk than in memory.
#[test]
fn checkpoints_of_8_bit_moments_are_as_large_as_planned() {
    for more in [&[][..], &["train.ema_decay=0.9"]] {
        let words = [
            "optimizer=adamw8bit",
            "model.n_layer=2",
            "model.d_model=128",
            "train.max_steps=10",
            "checkpoint.every=10",
            "eval.every=0",
        ];
        let run = Run::new(&[&words, more].concat());
        let events = run.go();
        assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
        checkpoint_is_as_large_as_predicted(&run, 10);
    }
}
