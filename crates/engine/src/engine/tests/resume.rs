//! Resuming: bit-exact, from whatever is intact.

use super::*;
use std::collections::BTreeMap;

#[test]
fn twenty_steps_are_ten_and_a_resume_and_ten_byte_for_byte() {
    let straight = Run::new(&[]);
    let whole = straight.go();
    let mut parted = Run::new(&[]);
    parted.job.stop_after = Some(10);
    let first = parted.go();
    assert_eq!(finished(&first).0, Outcome::Stopped);
    assert_eq!(parted.kept(), [5, 10]);
    let second = parted.resumed();
    assert_eq!(finished(&second).0, Outcome::Completed);
    assert_eq!(loss_log(&[&whole]), loss_log(&[&first, &second]));
    same_files(&straight.checkpoint(20), &parted.checkpoint(20));
    let rolled = second
        .iter()
        .find(|e| matches!(e, Event::RolledBack { .. }));
    assert_eq!(rolled, Some(&Event::RolledBack { step: 10 }));
}

/// Back at its beginning a branch had its parent's best again, which it cannot reach.
#[test]
fn what_its_parent_measured_best_is_not_the_best_of_a_branch_that_goes_back() {
    let mut run = Run::new(&["max_steps=10", "eval.every=3", "checkpoint.every=5"]);
    run.job.stop_after = Some(5);
    run.go();
    let own = checkpoint::read_state(&run.checkpoint(5)).unwrap();
    assert!(own.progress.best.is_some_and(|best| best.step == 3));
    let _ = std::fs::remove_dir_all(run.checkpoint(3));
    let parent = crate::run::Parent {
        run: "another".into(),
        step: 5,
    };
    run.job.run_dir.record_parent(parent).unwrap();
    run.job.resume = true;
    opened(&run, |cx, _, checkpoints| {
        assert_eq!(cx.state.progress.best, None);
        cx.state.progress.stale = 2;
        checkpoints.roll_back(cx, 5).unwrap();
        let progress = &cx.state.progress;
        assert_eq!((&progress.best, progress.stale), (&None, 0));
    });
}

/// Readings of what is measured against the steps before, by step, after roll-backs are applied.
fn looking_back(logs: &[&[Event]]) -> BTreeMap<(u64, &'static str), u64> {
    const LOOKING_BACK: [&str; 4] = [
        "grad_spike",
        "noise_scale",
        "gsnr",
        "grad_consistency/expected",
    ];
    let mut read = BTreeMap::new();
    for event in logs.iter().copied().flatten() {
        match event {
            Event::RolledBack { step } => read.retain(|(at, _), _| at <= step),
            Event::Stepped { step, values, .. } => {
                for id in LOOKING_BACK {
                    if let Some(x) = values.get(id) {
                        read.insert((*step, id), x.0.to_bits());
                    }
                }
            }
            _ => {}
        }
    }
    read
}

/// What is measured against the steps before goes on where the checkpoint was, also for the steps right after it.
#[test]
fn readings_that_look_back_are_those_of_a_run_that_never_stopped() {
    let words = &[
        "train.grad_accum_steps=2",
        "train.log_every=1",
        "health.every=1",
    ];
    let straight = Run::new(words);
    let whole = looking_back(&[&straight.go()]);
    assert!(whole.contains_key(&(11, "grad_spike")), "{whole:?}");
    assert!(whole.contains_key(&(11, "noise_scale")), "{whole:?}");
    let mut parted = Run::new(words);
    parted.job.stop_after = Some(10);
    let (first, second) = (parted.go(), parted.resumed());
    assert_eq!(looking_back(&[&first, &second]), whole);
    same_files(&straight.checkpoint(20), &parted.checkpoint(20));
}

/// The line of a step that a process was to stop after was measured too, where an unbroken run has no line.
#[test]
fn a_stop_between_two_log_lines_moves_no_reading_after_it() {
    let words = &[
        "train.grad_accum_steps=2",
        "train.log_every=2",
        "health.every=2",
    ];
    let straight = Run::new(words);
    let whole = looking_back(&[&straight.go()]);
    let mut parted = Run::new(words);
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    let stopped = first
        .iter()
        .any(|event| matches!(event, Event::Stepped { step: 7, .. }));
    assert!(stopped, "the last step of a process has a line");
    assert!(whole.contains_key(&(20, "noise_scale")), "{whole:?}");
    assert_eq!(looking_back(&[&first, &second]), whole);
    same_files(&straight.checkpoint(20), &parted.checkpoint(20));
}

/// As transformers' `logging_steps`: a line has the mean of its steps, wherever the run was stopped and resumed in between.
#[test]
fn the_loss_of_a_line_is_the_mean_of_its_steps() {
    let losses = |runs: &[&[Event]], id: &str| -> Vec<(u64, f64)> {
        let mut found: Vec<(u64, f64)> = Vec::new();
        for event in runs.iter().copied().flatten() {
            match event {
                Event::RolledBack { step } => found.retain(|(at, _)| at <= step),
                Event::Stepped { step, values, .. } => found.push((*step, values[id].0)),
                _ => {}
            }
        }
        found
    };
    let each = losses(&[&Run::new(&["train.log_every=1"]).go()], "train/loss");
    let norms = losses(&[&Run::new(&["train.log_every=1"]).go()], "grad_norm");
    let straight = Run::new(&["train.log_every=6"]);
    let whole = straight.go();
    let lines = losses(&[&whole], "train/loss");
    let mean = |steps: std::ops::RangeInclusive<usize>| {
        let n = steps.clone().count() as f64;
        each[steps.start() - 1..*steps.end()]
            .iter()
            .map(|(_, loss)| loss)
            .sum::<f64>()
            / n
    };
    let due = [
        (1, mean(1..=1)),
        (6, mean(2..=6)),
        (12, mean(7..=12)),
        (18, mean(13..=18)),
        (20, mean(19..=20)),
    ];
    assert_eq!(lines, due);
    // Other readings are those of the step.
    let last = losses(&[&whole], "grad_norm");
    assert_eq!(last[1], norms[5]);
    // Between two lines, at a checkpoint and beside one.
    for stop in [10, 8] {
        let mut parted = Run::new(&["train.log_every=6"]);
        parted.job.stop_after = Some(stop);
        let (first, second) = (parted.go(), parted.resumed());
        let mut all = losses(&[&first, &second], "train/loss");
        all.retain(|(step, _)| *step != stop);
        assert_eq!(all, due, "{stop}");
        let at_stop = losses(&[&first], "train/loss").pop();
        let from = 7;
        assert_eq!(
            at_stop,
            Some((stop, mean(from..=usize::try_from(stop).unwrap())))
        );
        same_files(&straight.checkpoint(20), &parted.checkpoint(20));
    }
}

/// Rules that keep more than moments: bases, curvature with labels that the model draws, an average of the weights; and what training
/// adds at random.
#[test]
fn soap_sophia_an_average_and_noise_resume_to_the_bit() {
    for words in [
        &["optimizer=soap", "optimizer.soap.every=3"][..],
        &["optimizer=sophia", "optimizer.sophia.every=3"],
        &["train.ema_decay=0.9"],
        &["train.ema_decay=0.9", "optimizer=muon"],
        &[
            "train.z_loss=1e-3",
            "method=sft",
            "method.sft.neftune_alpha=5",
        ],
    ] {
        let straight = Run::new(words);
        let whole = straight.go();
        assert_eq!(finished(&whole).0, Outcome::Completed, "{words:?}");
        let mut parted = Run::new(words);
        parted.job.stop_after = Some(9);
        let (first, second) = (parted.go(), parted.resumed());
        assert!(
            loss_log(&[&whole]) == loss_log(&[&first, &second]),
            "{words:?}"
        );
        same_files(&straight.checkpoint(20), &parted.checkpoint(20));
        let losses: Vec<f64> = whole
            .iter()
            .filter_map(|event| match event {
                Event::Evaluated { values, .. } => Some(values.get("val/loss")?.0),
                _ => None,
            })
            .collect();
        assert!(
            losses[losses.len() - 1] < losses[0],
            "{words:?}: {losses:?}"
        );
    }
}

/// The average is what is evaluated and saved; training goes its own way.
#[test]
fn an_average_of_the_weights_changes_evaluations_and_checkpoints_alone() {
    let (plain, averaged) = (Run::new(&[]), Run::new(&["train.ema_decay=0.95"]));
    let (a, b) = (plain.go(), averaged.go());
    let of = |events: &[Event], id: &str| -> Vec<f64> {
        let values = |event: &Event| match event {
            Event::Stepped { values, .. } | Event::Evaluated { values, .. } => {
                values.get(id).map(|x| x.0)
            }
            _ => None,
        };
        events.iter().filter_map(values).collect()
    };
    assert_eq!(of(&a, "train/loss"), of(&b, "train/loss"));
    assert_ne!(of(&a, "val/loss"), of(&b, "val/loss"));
    let weights = |run: &Run| std::fs::read(run.checkpoint(20).join("model.safetensors")).unwrap();
    assert!(weights(&plain) != weights(&averaged));
}

/// Every arithmetic that this machine has.
fn precisions() -> Vec<&'static str> {
    let here = |word: &&str| {
        let precision = serde_json::from_value::<crate::nn::Precision>((*word).into());
        precision.is_ok_and(|p| p.resolve().is_ok())
    };
    ["auto", "f32", "bf16"].into_iter().filter(here).collect()
}

#[test]
fn every_precision_resumes_to_the_bit_with_and_without_checkpointing() {
    for precision in precisions() {
        let precision = format!("precision={precision}");
        let kept = Run::new(&["n_layer=3", &precision]);
        let whole = kept.go();
        let words = ["n_layer=3", &precision, "gradient_checkpointing=true"];
        let mut parted = Run::new(&words);
        parted.job.stop_after = Some(7);
        let (first, second) = (parted.go(), parted.resumed());
        let logs = (loss_log(&[&whole]), loss_log(&[&first, &second]));
        assert!(logs.0 == logs.1, "{precision}: losses differ");
        same_files(&kept.checkpoint(20), &parted.checkpoint(20));
    }
}

/// Dropout draws by micro-step, and the biases of experts are moved by what was seen: both go on where they were.
#[test]
fn dropout_and_experts_resume_to_the_bit_with_and_without_checkpointing() {
    let words = [
        "n_layer=3",
        "dropout=0.2",
        "model.position=rope",
        "model.moe.n_expert=4",
        "model.moe.balancing.bias.rate=0.01",
        "model.moe.scoring=sigmoid",
        "model.moe.shared_d_ff=24",
        "model.moe.shared_gate=true",
        "model.moe.dense_blocks=[0]",
        "grad_accum_steps=2",
    ];
    let kept = Run::new(&words);
    let whole = kept.go();
    let checkpointed = [&words[..], &["gradient_checkpointing=true"]].concat();
    let mut parted = Run::new(&checkpointed);
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    assert_eq!(finished(&second).0, Outcome::Completed);
    let logs = (loss_log(&[&whole]), loss_log(&[&first, &second]));
    assert!(logs.0 == logs.1, "losses differ");
    same_files(&kept.checkpoint(20), &parted.checkpoint(20));
    let load = whole.iter().find_map(|event| match event {
        Event::Stepped { values, .. } => values.get(crate::metrics::id::EXPERT_LOAD).copied(),
        _ => None,
    });
    assert!(load.is_some_and(|load| load.0 >= 1.0), "{load:?}");
}

/// With queries from a latent vector, groups of experts, frozen norms, and samples from a cache of latent vectors.
#[test]
fn latent_attention_resumes_to_the_bit_with_and_without_checkpointing() {
    let words = [
        "n_layer=3",
        "model.position=rope",
        "model.norm=rmsnorm",
        "model.mla.kv_rank=12",
        "model.mla.q_rank=16",
        "model.mla.nope_dim=6",
        "model.mla.rope_dim=4",
        "model.mla.v_dim=8",
        "model.moe.n_expert=4",
        "model.moe.n_group=2",
        "model.moe.top_group=1",
        "train.freeze=[norms]",
    ];
    let kept = Run::new(&words);
    let whole = kept.go();
    let checkpointed = [&words[..], &["gradient_checkpointing=true"]].concat();
    let mut parted = Run::new(&checkpointed);
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    assert_eq!(finished(&second).0, Outcome::Completed);
    let logs = (loss_log(&[&whole]), loss_log(&[&first, &second]));
    assert!(logs.0 == logs.1, "losses differ");
    same_files(&kept.checkpoint(20), &parted.checkpoint(20));
}

/// Parts that are frozen by name keep their weights, and their moments are in no checkpoint.
#[test]
fn a_frozen_router_and_embeddings_stay_and_a_resume_is_exact() {
    let words = [
        "model.position=rope",
        "model.moe.n_expert=4",
        "model.moe.balancing.bias.rate=0.01",
        "train.freeze=[router, embeddings]",
    ];
    let kept = Run::new(&words);
    let whole = kept.go();
    let mut parted = Run::new(&words);
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    let logs = (loss_log(&[&whole]), loss_log(&[&first, &second]));
    assert!(logs.0 == logs.1, "losses differ");
    same_files(&kept.checkpoint(20), &parted.checkpoint(20));
    let spec = &kept.job.spec;
    let data = spec.open_data(&Default::default()).unwrap();
    let begun = crate::engine::TrainState::fresh(spec, &data).unwrap();
    let planned =
        crate::plan::target::of_spec(spec, crate::plan::target::DataSize::of(spec, &data));
    let trained = begun.models.policy.params().n_trainable();
    assert_eq!(planned.n_trainable(), trained as u64, "as planned");
    let mut state = crate::engine::TrainState::blank(spec, &data).unwrap();
    crate::engine::checkpoint::load(&kept.checkpoint(20), &mut state).unwrap();
    let weights = |state: &crate::engine::TrainState, info: &crate::nn::ParamInfo| {
        let weight = state.models.policy.params().weight(info).unwrap();
        weight.flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    for info in state.models.policy.params().infos() {
        let same = weights(&state, info) == weights(&begun, info);
        assert_eq!(same, !info.trains(), "{}", info.name);
    }
}

#[test]
fn the_log_says_which_arithmetic_is_in_force() {
    let events = Run::new(&["precision=f32", "max_steps=1"]).go();
    let said = events.iter().find_map(|event| match event {
        Event::Started { precision, .. } => precision.clone(),
        _ => None,
    });
    assert_eq!(said.as_deref(), Some("f32"));
}

#[test]
fn a_stop_between_two_checkpoints_resumes_exactly_there() {
    let straight = Run::new(&[]);
    let whole = straight.go();
    for when in [StopWhen::AfterCheckpoint, StopWhen::Now] {
        let run = Run::new(&[]);
        let first = run.go_with(&mut at(7, Command::Stop { when }));
        assert_eq!(finished(&first), (Outcome::Stopped, 7, String::new()));
        let second = run.resumed();
        let from = if when == StopWhen::Now { 5 } else { 7 };
        assert!(
            second.contains(&Event::RolledBack { step: from }),
            "{when:?}"
        );
        assert_eq!(
            loss_log(&[&whole]),
            loss_log(&[&first, &second]),
            "{when:?}"
        );
        same_files(&straight.checkpoint(20), &run.checkpoint(20));
    }
}

#[test]
fn a_signal_saves_and_stops() {
    let run = Run::new(&[]);
    let events = run.go_with(&mut |event, _, stop| {
        if matches!(event, Event::Stepped { step: 8, .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(finished(&events).0, Outcome::Stopped);
    assert_eq!(run.kept(), [5, 8]);
}

#[test]
fn live_adjustments_survive_a_resume() {
    let adjust = |key: &str, value| Command::Adjust {
        key: key.into(),
        value,
    };
    let straight = Run::new(&[]);
    let whole = straight.go_with(&mut at(4, adjust("lr", 3e-4)));
    let mut parted = Run::new(&[]);
    parted.job.stop_after = Some(12);
    let first = parted.go_with(&mut at(4, adjust("lr", 3e-4)));
    let second = parted.resumed();
    assert_eq!(loss_log(&[&whole]), loss_log(&[&first, &second]));
    assert_ne!(loss_log(&[&whole]), loss_log(&[&Run::new(&[]).go()]));
}

#[test]
fn without_a_checkpoint_a_resume_begins_anew_and_gets_the_same_numbers() {
    let run = Run::new(&["checkpoint.every=0"]);
    let first = run.go_with(&mut at(
        7,
        Command::Stop {
            when: StopWhen::Now,
        },
    ));
    let second = run.resumed();
    assert!(second.contains(&Event::RolledBack { step: 0 }));
    let whole = Run::new(&["checkpoint.every=0"]).go();
    assert_eq!(loss_log(&[&whole]), loss_log(&[&first, &second]));
}

#[test]
fn a_finished_run_resumes_to_its_end_and_says_its_loss_again() {
    let run = Run::new(&["train.max_steps=5"]);
    let first = run.go();
    let second = run.resumed();
    assert_eq!(finished(&second), (Outcome::Completed, 5, String::new()));
    let loss = |events: &[Event]| match events.last() {
        Some(Event::Finished { val_loss, .. }) => *val_loss,
        _ => None,
    };
    assert!(loss(&first).is_some());
    assert_eq!(loss(&first), loss(&second));
}

#[test]
fn changed_data_and_another_number_of_threads_are_noticed() {
    let mut run = Run::new(&["train.max_steps=6"]);
    run.job.stop_after = Some(5);
    run.go();
    let with = |words: &[&str], force| {
        let mut all = vec!["train.max_steps=6"];
        all.extend(words);
        let job = EngineJob {
            env: Default::default(),
            spec: tiny(&all).0,
            force,
            ..run.job.clone()
        };
        Run {
            job,
            _dir: tempfile::tempdir().unwrap(),
        }
        .resumed()
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.txt");
    let text = crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap();
    std::fs::write(&path, text.replacen("First", "Fifth", 1)).unwrap();
    let events = with(&[&format!("data.path={}", path.display())], false);
    let (outcome, _, message) = finished(&events);
    assert_eq!(outcome, Outcome::Invalid);
    assert!(
        message.contains("text changed") && message.contains("--force"),
        "{message}"
    );
    assert!(message.contains("other.txt"), "{message}");
    // A character more makes another vocabulary, whose weights have other shapes.
    std::fs::write(&path, text.replacen("First", "Fünfte", 1)).unwrap();
    let events = with(&[&format!("data.path={}", path.display())], false);
    let (outcome, _, message) = finished(&events);
    assert_eq!(outcome, Outcome::Invalid);
    assert!(message.contains("tokenizer changed"), "{message}");
    let events = with(&[&format!("data.path={}", path.display())], true);
    let (outcome, _, message) = finished(&events);
    assert_eq!(outcome, Outcome::Invalid);
    assert!(message.contains("even with --force"), "{message}");
    let events = with(&["train.threads=2"], false);
    assert_eq!(finished(&events).0, Outcome::Completed);
    let warned = |e: &Event| matches!(e, Event::Warned { code, message, .. } if code == "not_bit_exact" && message.contains("threads"));
    assert!(events.iter().any(warned));
}

#[test]
fn weights_of_another_run_start_this_one() {
    let first = Run::new(&["train.max_steps=5"]);
    first.go();
    let folder = first.checkpoint(5);
    let from = format!("train.from={}", folder.display());
    let second = Run::new(&["train.max_steps=1", &from]);
    let events = second.go();
    assert_eq!(
        finished(&events).0,
        Outcome::Completed,
        "{:?}",
        finished(&events)
    );
    let loss = |events: &[Event], at: u64| {
        events.iter().find_map(|e| match e {
            Event::Stepped { step, values, .. } if *step == at => Some(values["train/loss"].0),
            _ => None,
        })
    };
    let fresh = Run::new(&["train.max_steps=1"]).go();
    assert!(loss(&events, 1) < loss(&fresh, 1));
}

/// It trained from step 0 as a branch of step 500.
#[test]
fn a_branch_without_its_first_checkpoint_does_not_begin_at_step_0() {
    let mut run = Run::new(&["max_steps=3"]);
    let text = "# Requested: --branch old run@500 -s lr=1 -s name=a@b\n{}\n";
    std::fs::write(run.job.run_dir.asked_path(), text).unwrap();
    let events = run.resumed();
    let (outcome, step, message) = finished(&events);
    assert_eq!((outcome, step), (Outcome::Invalid, 0));
    for part in [
        "old run@500",
        "first checkpoint is missing",
        "make the branch again",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(run.kept().is_empty());
    // No --force makes it one.
    run.job.force = true;
    assert_eq!(finished(&run.resumed()).0, Outcome::Invalid);
    run.job.force = false;
    // From the start there is no checkpoint to miss.
    let text = "# Requested: --branch old@0 -s lr=1\n{}\n";
    std::fs::write(run.job.run_dir.asked_path(), text).unwrap();
    assert_eq!(finished(&run.resumed()).0, Outcome::Completed);
}

/// The best model of the run was forgotten, for good.
#[test]
fn a_checkpoint_whose_line_in_the_log_was_lost_is_reported_at_the_resume() {
    let mut run = Run::new(&[]);
    run.job.stop_after = Some(10);
    let events = run.go();
    let of_10 = |event: &&Event| matches!(event, Event::Checkpointed { step: 10, .. });
    let line = events.iter().find(of_10).unwrap();
    let plain = |event: &Event| match event.clone() {
        Event::Checkpointed {
            path,
            bytes,
            best,
            val_loss,
            by,
            ..
        } => (path, bytes, best, val_loss, by),
        other => panic!("{other:?}"),
    };
    assert!(plain(line).2, "the best so far: {line:?}");
    let at = events.iter().position(|event| event == line).unwrap();
    keep_log(&run, &events[..at]);
    let second = run.resumed();
    let again: Vec<&Event> = second.iter().filter(of_10).collect();
    assert_eq!(again.len(), 1);
    assert_eq!(plain(again[0]), plain(line));
    let place = |wanted: &Event| second.iter().position(|event| event == wanted);
    assert!(place(again[0]) > place(&Event::RolledBack { step: 10 }));
    // What the log has is not said again.
    keep_log(&run, &[&events[..], &second[..]].concat());
    run.job.spec = run.job.spec.clone().to_step(30);
    let third = run.resumed();
    let of_20 = |event: &&Event| matches!(event, Event::Checkpointed { step: 20, .. });
    assert_eq!(second.iter().filter(of_20).count(), 1);
    assert_eq!(third.iter().filter(of_20).count(), 0);
}

/// The stop saved the last step without its evaluation; a pipeline then took an older checkpoint for the best.
#[test]
fn an_evaluation_that_a_stop_broke_off_marks_its_checkpoint_as_the_best_at_the_resume() {
    for last in [10, 20] {
        let run = Run::new(&[]);
        let mut step = 0;
        let first = run.go_with(&mut |event, _, stop| match event {
            Event::Stepped { step: at, .. } => step = *at,
            Event::PhaseChanged {
                phase: Phase::Evaluating,
                ..
            } if step == last => stop.store(true, Ordering::Relaxed),
            _ => {}
        });
        assert_eq!(finished(&first), (Outcome::Stopped, last, String::new()));
        let evaluated = |events: &[Event]| {
            let of_last = |e: &Event| matches!(e, Event::Evaluated { step, .. } if *step == last);
            events.iter().any(of_last)
        };
        assert!(!evaluated(&first), "broken off");
        let second = run.resumed();
        assert!(evaluated(&second));
        let best = |event: &Event| matches!(event, Event::Checkpointed { step, best: true, .. } if *step == last);
        assert_eq!(second.iter().filter(|event| best(event)).count(), 1);
    }
}
