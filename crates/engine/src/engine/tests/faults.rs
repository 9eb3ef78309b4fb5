//! When things break: damaged checkpoints, losses that are non-finite, bugs.

use super::*;
use crate::engine::broken::NonFinite;
use crate::engine::rescue::StepOutcome;

#[test]
fn a_damaged_checkpoint_is_named_and_an_older_one_continues_to_the_same_bits() {
    let straight = Run::new(&[]);
    let whole = straight.go();
    for file in [
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
        "manifest.json",
    ] {
        let mut run = Run::new(&[]);
        run.job.stop_after = Some(10);
        let first = run.go();
        let path = run.checkpoint(10).join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let second = run.resumed();
        let named = |e: &Event| matches!(e, Event::Warned { code, message, .. } if code == "checkpoint_broken" && message.contains("step-000010"));
        assert!(second.iter().any(named), "{file}");
        assert!(second.contains(&Event::RolledBack { step: 5 }), "{file}");
        assert_eq!(loss_log(&[&whole]), loss_log(&[&first, &second]), "{file}");
    }
}

#[test]
fn nothing_but_damaged_checkpoints_is_an_error_not_a_new_beginning() {
    let mut run = Run::new(&[]);
    run.job.stop_after = Some(5);
    run.go();
    std::fs::remove_file(run.checkpoint(5).join("model.safetensors")).unwrap();
    let events = run.resumed();
    let (outcome, _, message) = finished(&events);
    assert_eq!(outcome, Outcome::Invalid);
    assert!(message.contains("model.safetensors"), "{message}");
    assert!(run.checkpoint(5).exists());
}

#[test]
fn a_loss_that_is_non_finite_ends_the_run_and_is_never_saved() {
    let run = Run::new(&[
        "optimizer.adamw.lr=10",
        "train.clip_norm=0",
        "optimizer.adamw.weight_decay=10",
        "schedule.cosine.warmup_steps=0",
        "train.max_steps=400",
        "eval.every=0",
        "checkpoint.every=1",
    ]);
    let events = run.go();
    let (outcome, step, message) = finished(&events);
    assert_eq!(outcome, Outcome::Failed, "{message}");
    assert!(message.contains("learning rate"), "{message}");
    assert!(
        events
            .iter()
            .any(|e| matches!(e, Event::Warned { code, .. } if code == "non_finite"))
    );
    for kept in run.job.run_dir.checkpoints() {
        assert!(kept.step <= step);
        let model = crate::hf::load(&kept.path).unwrap();
        let finite = |w: &[f32]| w.iter().all(|x| x.is_finite());
        assert!(
            model.params().read_weights(finite).unwrap(),
            "step {}",
            kept.step
        );
    }
}

/// Whatever asks for the save: the rhythm, a command, a signal, the end.
#[test]
fn weights_that_are_non_finite_are_saved_by_nobody() {
    let run = Run::new(&[]);
    opened(&run, |cx, _, checkpoints| {
        let params = cx.state.models.policy.params_mut();
        params.write_weights(|w| w[0] = f32::NAN).unwrap();
        for save in [
            checkpoint::checkpoints::Checkpoints::save,
            checkpoint::checkpoints::Checkpoints::save_or_warn,
            checkpoint::checkpoints::Checkpoints::save_at_the_end,
        ] {
            let error = save(checkpoints, cx).unwrap_err();
            assert_eq!(error.outcome(), Outcome::Failed, "{error}");
            assert!(error.to_string().contains("a weight became NaN"), "{error}");
        }
    });
    assert!(run.kept().is_empty());
}

/// While answers are written there is no loss yet: the run ended as `computing: …`, without a rescue or a verdict.
#[test]
fn a_logit_that_is_non_finite_breaks_a_step_and_an_evaluation_as_a_loss_does() {
    for method in ["method=grpo", "method=rloo", "method=ppo"] {
        let run = super::rollouts::run_of(&[method]);
        opened(&run, |cx, stepper, _| {
            let params = cx.state.models.policy.params_mut();
            params.write_weights(|w| w.fill(f32::NAN)).unwrap();
            let broken = |found: &NonFinite| {
                let said = (found.what, found.value.is_nan(), found.step);
                assert_eq!(said, ("a logit of an answer", true, 0), "{method}");
            };
            match stepper.one_step(cx).unwrap() {
                StepOutcome::Broken(found) => broken(&found),
                _ => panic!("{method}: a step was done"),
            }
            let found = cx.evaluate_now(stepper.experience()).unwrap();
            broken(&found.expect("an evaluation"));
        });
    }
}

#[test]
fn a_checkpoint_with_values_that_are_non_finite_is_called_so_and_not_continued() {
    let step_5 = "the checkpoint of step 5 contains";
    for (file, tensor, what) in [
        (
            "model.safetensors",
            "transformer.wte.weight",
            format!("{step_5} non-finite weights"),
        ),
        (
            "optimizer.safetensors",
            "adamw.square",
            format!("{step_5} non-finite optimizer moments"),
        ),
        (
            "optimizer.safetensors",
            "adamw.steps",
            "a count of steps".into(),
        ),
    ] {
        let mut run = Run::new(&[]);
        run.job.stop_after = Some(5);
        run.go();
        // The file is whole, and its manifest vouches for it: it was saved so.
        let folder = run.checkpoint(5);
        let path = folder.join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..data]).unwrap();
        let from = header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
        bytes[data + from..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let listed = folder.join("manifest.json");
        let text = std::fs::read_to_string(&listed).unwrap();
        let mut manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        let record = super::checkpoint::disk::record_of(&path).unwrap();
        manifest["files"][file] = serde_json::to_value(record).unwrap();
        std::fs::write(&listed, manifest.to_string()).unwrap();

        let (outcome, _, message) = finished(&run.resumed());
        assert_eq!(outcome, Outcome::Invalid, "{tensor}: {message}");
        assert!(message.contains(&what), "{tensor}: {message}");
        assert!(!message.contains("learning rate"), "{message}");
        run.job.fresh_optimizer = true;
        let (outcome, _, message) = finished(&run.resumed());
        let goes_on = tensor == "adamw.square";
        assert_eq!(
            outcome == Outcome::Completed,
            goes_on,
            "{tensor}: {message}"
        );
    }
}

#[test]
fn a_panic_is_caught_and_the_last_event_is_still_finished() {
    let run = Run::new(&[]);
    let (_send, receive) = sync_channel(1);
    let mut events = Vec::new();
    let mut emit = |event: Event| {
        let boom = matches!(event, Event::Stepped { step: 3, .. });
        events.push(event);
        assert!(!boom, "a bug of the test's own");
    };
    let stop = Arc::new(AtomicBool::new(false));
    let outcome = super::run(
        &run.job,
        &mut emit,
        receive,
        stop,
        Arc::new(SystemClock::new()),
    );
    assert_eq!(outcome, Outcome::Crashed);
    let (outcome, step, message) = finished(&events);
    assert_eq!(
        (outcome, step),
        (Outcome::Crashed, 2),
        "the counters before the panicking step's line"
    );
    assert!(
        message.contains("a bug of the test's own") && message.contains("crash.txt"),
        "{message}"
    );
    assert!(run.job.run_dir.path().join("crash.txt").exists());
}

#[test]
fn a_save_that_fails_is_a_warning_and_training_goes_on() {
    let run = Run::new(&[]);
    // A file where the temporary folder would stand: the save of step 5 cannot begin.
    let blocked = run.job.run_dir.checkpoints_path().join(".tmp-step-000005");
    let events = run.go_with(&mut |event, _, _| {
        if matches!(event, Event::Stepped { step: 4, .. }) {
            std::fs::write(&blocked, "in the way").unwrap();
        }
    });
    assert_eq!(finished(&events).0, Outcome::Completed);
    let warned: Vec<u64> = events
        .iter()
        .filter_map(|e| match e {
            Event::Warned { step, code, .. } if code == "checkpoint_failed" => Some(*step),
            _ => None,
        })
        .collect();
    assert_eq!(warned, [5]);
    assert!(run.kept().ends_with(&[20]));
}

/// A run whose save of `step` cannot begin: a folder that cannot be replaced stands where its temporary one would.
fn with_blocked_save(run: &Run, step: u64) -> (Vec<Event>, std::path::PathBuf) {
    let name = format!(".tmp-{}", checkpoint::name_of(step));
    let blocked = run.job.run_dir.checkpoints_path().join(name);
    let events = run.go_with(&mut |event, _, _| {
        if matches!(event, Event::Stepped { step: s, .. } if *s == step - 1) {
            std::fs::write(&blocked, "in the way").unwrap();
        }
    });
    (events, blocked)
}

#[test]
fn a_run_whose_end_cannot_be_saved_has_not_completed_and_a_resume_completes_it() {
    let run = Run::new(&[]);
    let (first, blocked) = with_blocked_save(&run, 20);
    let (outcome, step, message) = finished(&first);
    assert_eq!((outcome, step), (Outcome::Starved, 20));
    assert!(
        message.contains("step 20 could not be saved") && message.contains("is at step 15"),
        "{message}"
    );
    std::fs::remove_file(blocked).unwrap();
    let second = run.resumed();
    assert_eq!(finished(&second).0, Outcome::Completed);
    assert!(run.kept().ends_with(&[20]));
    let whole = Run::new(&[]).go();
    assert_eq!(loss_log(&[&whole]), loss_log(&[&first, &second]));
}

/// The weights of the end were lost where somebody had deleted what was saved before.
#[test]
fn checkpoints_deleted_while_it_trains_cost_only_themselves() {
    let run = Run::new(&[]);
    let folder = run.job.run_dir.checkpoints_path();
    let events = run.go_with(&mut |event, _, _| {
        if matches!(event, Event::Stepped { step: 7, .. }) {
            std::fs::remove_dir_all(&folder).unwrap();
        }
    });
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    assert!(run.kept().ends_with(&[20]));
    let failed =
        |event: &Event| matches!(event, Event::Warned { code, .. } if code == "checkpoint_failed");
    assert!(!events.iter().any(failed));
}

/// What is in the way is named; only a full disk asks for room.
#[test]
fn a_file_in_place_of_the_checkpoints_is_named_and_nothing_is_said_of_room() {
    let run = Run::new(&[]);
    let folder = run.job.run_dir.checkpoints_path();
    let events = run.go_with(&mut |event, _, _| {
        if matches!(event, Event::Stepped { step: 19, .. }) {
            std::fs::remove_dir_all(&folder).unwrap();
            std::fs::write(&folder, "in the way").unwrap();
        }
    });
    let (outcome, step, message) = finished(&events);
    assert_eq!((outcome, step), (Outcome::Starved, 20));
    let fix = format!("move {} away", folder.display());
    assert!(
        message.contains(&fix) && !message.to_lowercase().contains("room"),
        "{message}"
    );
}

#[test]
fn a_stop_whose_save_fails_is_no_orderly_stop() {
    let run = Run::new(&["checkpoint.every=0"]);
    let blocked = run.job.run_dir.checkpoints_path().join(".tmp-step-000003");
    let events = run.go_with(&mut |event, _, stop| {
        if matches!(event, Event::Stepped { step: 3, .. }) {
            std::fs::write(&blocked, "in the way").unwrap();
            stop.store(true, Ordering::Relaxed);
        }
    });
    let (outcome, step, message) = finished(&events);
    assert_eq!((outcome, step), (Outcome::Starved, 3));
    assert!(message.contains("no checkpoint"), "{message}");
}

#[test]
fn what_is_saved_is_not_saved_again_and_what_changed_is() {
    let run = Run::new(&["checkpoint.every=0", "eval.every=0", "sample.every=0"]);
    let events = run.go_with(&mut |event, send, _| {
        let say = |id, command| send.send(Request { id, command }).unwrap();
        if matches!(event, Event::Stepped { step: 3, .. }) {
            say(1, Command::Pause);
            say(2, Command::Checkpoint);
            say(3, Command::Checkpoint);
            let key = "lr".to_string();
            say(4, Command::Adjust { key, value: 1e-4 });
            say(5, Command::Checkpoint);
            say(6, Command::Resume);
        }
    });
    for id in 1..=6 {
        assert!(events.contains(&Event::Accepted { id }), "{id}");
    }
    let saves = |e: &&Event| matches!(e, Event::Checkpointed { step: 3, .. });
    assert_eq!(events.iter().filter(saves).count(), 2);
    let kept = checkpoint::read_state(&run.checkpoint(3)).unwrap();
    assert_eq!(kept.progress.adjustments.lr, Some(1e-4));
}

#[test]
fn a_log_that_tells_of_checkpoints_that_are_gone_is_no_new_beginning() {
    let mut run = Run::new(&[]);
    run.job.stop_after = Some(5);
    let clock = Arc::new(SystemClock::new());
    let path = run.job.run_dir.events_path();
    let (mut log, thread) = crate::run::LogWriter::open(&path, clock, |_| {}).unwrap();
    for event in run.go() {
        log.emit(event).unwrap();
    }
    drop(log);
    thread.finish().unwrap();
    std::fs::remove_dir_all(run.checkpoint(5)).unwrap();
    let (outcome, _, message) = finished(&run.resumed());
    assert_eq!(outcome, Outcome::Invalid);
    assert!(
        message.contains("step 5") && message.contains("--force"),
        "{message}"
    );
    run.job.force = true;
    let anew = run.resumed();
    assert_eq!(finished(&anew).0, Outcome::Completed);
    assert!(anew.contains(&Event::RolledBack { step: 0 }));
    let warned = |e: &Event| matches!(e, Event::Warned { code, .. } if code == "checkpoints_gone");
    assert!(anew.iter().any(warned));
}

#[test]
fn a_run_whose_folder_is_deleted_is_not_created_again_by_a_save() {
    let run = Run::new(&["checkpoint.every=4", "eval.every=0", "sample.every=0"]);
    let folder = run.job.run_dir.path().to_path_buf();
    let events = run.go_with(&mut |event, _, _| {
        if matches!(event, Event::Stepped { step: 6, .. }) {
            std::fs::remove_dir_all(&folder).unwrap();
        }
    });
    assert_eq!(finished(&events).0, Outcome::Starved);
    assert!(!folder.exists());
}
