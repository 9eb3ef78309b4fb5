//! Runs that wait for another one to end.

use super::*;

/// A run behind another one, whose lock is held.
fn behind(check: fn(&RunSpec, &Env) -> Result<(), String>) -> (Run, Run, crate::base::files::Lock) {
    let first = Run::new(&[]);
    let lock = first.job.run_dir.claim().unwrap();
    let mut second = Run::new(&["max_steps=2"]);
    second.job.after = Some(After {
        run: first.job.run_dir.clone(),
        lock: |_| None,
        check,
    });
    (first, second, lock)
}

fn types(events: &[Event]) -> Vec<&'static str> {
    let words = events.iter().filter_map(|event| match event {
        Event::Hello { .. } => Some("hello"),
        Event::Queued { .. } => Some("queued"),
        Event::Rejected { .. } => Some("rejected"),
        Event::Started { .. } => Some("started"),
        Event::Finished { .. } => Some("finished"),
        _ => None,
    });
    words.collect()
}

fn message(events: &[Event]) -> (Outcome, &str) {
    match events.last() {
        Some(Event::Finished {
            outcome, message, ..
        }) => (*outcome, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_queued_run_begins_when_the_other_has_ended() {
    let (first, second, lock) = behind(|_, _| Ok(()));
    let mut lock = Some(lock);
    let events = second.go_with(&mut |event, send, _| match event {
        Event::Queued { after } => {
            assert_eq!(*after, first.job.run_dir.folder());
            let pause = Request {
                id: 7,
                command: Command::Pause,
            };
            send.send(pause).unwrap();
        }
        Event::Rejected { id, why } => {
            assert_eq!(*id, 7);
            assert!(why.contains("waits for"), "{why}");
            lock.take();
        }
        _ => {}
    });
    let expected = ["hello", "queued", "rejected", "started", "finished"];
    assert_eq!(types(&events), expected);
    assert_eq!(message(&events).0, Outcome::Completed);
}

#[test]
fn a_stop_ends_the_wait() {
    for by_flag in [true, false] {
        let (_first, second, _lock) = behind(|_, _| Ok(()));
        let events = second.go_with(&mut |event, send, flag| {
            if !matches!(event, Event::Queued { .. }) {
                return;
            }
            if by_flag {
                flag.store(true, std::sync::atomic::Ordering::Relaxed);
                return;
            }
            let command = Command::Stop {
                when: StopWhen::AfterCheckpoint,
            };
            send.send(Request { id: 1, command }).unwrap();
        });
        assert_eq!(types(&events), ["hello", "queued", "finished"]);
        assert_eq!(message(&events).0, Outcome::Stopped);
    }
}

#[test]
fn a_resume_that_is_stopped_in_the_queue_says_its_own_step_and_no_time() {
    let (_first, mut second, _lock) = behind(|_, _| Ok(()));
    let after = second.job.after.take();
    second.go();
    second.job.after = after;
    second.job.resume = true;
    let clock = Arc::new(crate::base::clock::ManualClock::at(0));
    let shared = clock.clone();
    let events = second.go_by(shared, &mut |event, _, flag| {
        if matches!(event, Event::Queued { .. }) {
            clock.advance(std::time::Duration::from_secs(3_600));
            flag.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let Some(Event::Finished { step, seconds, .. }) = events.last() else {
        panic!("{events:?}");
    };
    assert_eq!((*step, *seconds), (2, 0.0));
}

/// The run in the middle of a queue was stopped: the last one waits for the first.
#[test]
fn the_wait_passes_on_to_what_a_run_waited_for_that_ended_in_the_queue() {
    let (first, mut second, lock) = behind(|_, _| Ok(()));
    let runs_dir = first.job.run_dir.path().parent().unwrap();
    let middle = RunDir::create(runs_dir, "middle", "", "", &SystemClock::new()).unwrap();
    let after = first.job.run_dir.folder();
    let log = in_envelopes(&[Event::Queued {
        after: after.clone(),
    }]);
    let log: Vec<String> = log.iter().map(crate::wire::encode).collect();
    std::fs::write(middle.events_path(), log.concat()).unwrap();
    second.job.after.as_mut().unwrap().run = middle;
    let mut lock = Some(lock);
    let events = second.go_with(&mut |event, _, _| {
        if let Event::Queued { after: other } = event {
            assert_eq!(*other, after);
            lock.take();
        }
    });
    assert_eq!(types(&events), ["hello", "queued", "started", "finished"]);
}

#[test]
fn a_run_behind_a_stage_waits_for_its_pipeline() {
    use crate::base::files::try_lock;
    let (first, mut second, lock) = behind(|_, _| Ok(()));
    drop(lock);
    let of_pipeline = |run: &RunDir| Some(run.path().join("pipeline.lock"));
    second.job.after.as_mut().unwrap().lock = of_pipeline;
    let mut lock = try_lock(&of_pipeline(&first.job.run_dir).unwrap()).unwrap();
    assert!(lock.is_some());
    let events = second.go_with(&mut |event, _, _| {
        if matches!(event, Event::Queued { .. }) {
            lock.take();
        }
    });
    assert_eq!(types(&events), ["hello", "queued", "started", "finished"]);
}

#[test]
fn memory_is_checked_when_the_turn_has_come() {
    let (_first, mut second, lock) = behind(|_, _| Err("800 GB are needed".into()));
    drop(lock);
    let events = second.go();
    assert_eq!(types(&events), ["hello", "finished"]);
    assert_eq!(message(&events), (Outcome::Starved, "800 GB are needed"));
    second.job.force = true;
    assert_eq!(message(&second.go()).0, Outcome::Completed);
}
