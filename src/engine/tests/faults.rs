//! When things break: damaged checkpoints, losses that are no numbers, bugs.

use super::*;

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
    assert_eq!(outcome, Outcome::Failed);
    assert!(message.contains("model.safetensors"), "{message}");
    assert!(run.checkpoint(5).exists());
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_and_is_never_saved() {
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
