//! Runs that wait for others.

use super::*;

#[test]
fn the_queue_is_read_from_the_logs_of_live_runs() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second, third, stopped] =
        [(1, "a"), (2, "b"), (3, "c"), (4, "d")].map(|(at, name)| new_run(dir.path(), name, at));
    let behind = |run: &RunDir, other: &RunDir| {
        let after = other.folder();
        log(run, [hello(), Event::Queued { after }]);
    };
    behind(&second, &first);
    behind(&third, &second);
    behind(&stopped, &third);
    let _locks = [&first, &second, &third].map(|run| run.claim().unwrap());
    for run in [&first, &second, &third] {
        assert_eq!(end_of_queue(run).folder(), third.folder());
    }
    assert_eq!(
        summarize(&third).unwrap().queued_after,
        Some(second.folder())
    );
    assert_eq!(summarize(&stopped).unwrap().queued_after, None);
    log(&stopped, [finished(Outcome::Stopped, 0)]);
    assert_eq!(waits_for(&stopped).unwrap().folder(), third.folder());
    // Its turn has come.
    let phase = Event::PhaseChanged {
        phase: Phase::Preparing,
        step: 0,
    };
    log(&third, [phase]);
    assert_eq!(waits_for(&third).map(|run| run.folder()), None);
    assert_eq!(end_of_queue(&first).folder(), second.folder());
}

#[test]
fn a_run_whose_resume_was_stopped_in_the_queue_stands_as_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "a", 1);
    log(&run, [hello(), started(9), stepped(3, 2.0)]);
    log(&run, [finished(Outcome::Completed, 3)]);
    let queued = || Event::Queued { after: "b".into() };
    log(&run, [hello(), queued(), finished(Outcome::Stopped, 3)]);
    let summary = summarize(&run).unwrap();
    assert_eq!((summary.status, summary.step), (RunStatus::Finished, 3));
    assert!(refusal(&run).is_some());
    // Its turn has come: the stop is the run's.
    let phase = Event::PhaseChanged {
        phase: Phase::Preparing,
        step: 3,
    };
    log(&run, [hello(), queued(), phase]);
    log(&run, [finished(Outcome::Stopped, 3)]);
    assert_eq!(summarize(&run).unwrap().status, RunStatus::Stopped);
    assert_eq!(refusal(&run), None);
}
