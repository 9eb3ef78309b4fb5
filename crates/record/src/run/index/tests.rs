//! Summaries of small, long, resumed, crashed and strange logs.

mod best;
mod queue;
mod saved;

use super::*;
use crate::base::clock::ManualClock;
use crate::base::finding::Finding;
use crate::run::LogWriter;
use crate::run::state::outcome_word;
use crate::wire::{Envelope, Num, VERSION, Values};
use std::sync::Arc;

fn new_run(runs: &Path, name: &str, at: u64) -> RunDir {
    RunDir::create(runs, name, "", "", &ManualClock::at(at)).unwrap()
}

fn log(run: &RunDir, events: impl IntoIterator<Item = Event>) {
    let clock = Arc::new(ManualClock::at(5_000));
    let (mut sender, thread) = LogWriter::open(&run.events_path(), clock, |_| {}).unwrap();
    for event in events {
        sender.emit(event).unwrap();
    }
    drop(sender);
    thread.finish().unwrap();
}

fn hello() -> Event {
    Event::Hello {
        run: "x".into(),
        engine: "0".into(),
        pid: 1,
        host: "h".into(),
    }
}

fn started(max_steps: u64) -> Event {
    Event::Started {
        name: "x".into(),
        method: "pretrain".into(),
        spec: serde_json::json!({"a": 1}),
        n_params: 800,
        vocab_size: 65,
        max_steps,
        batch_tokens: 768,
        epoch_tokens: 1000,
        resumed_from: None,
        precision: None,
        unigram_entropy: None,
    }
}

fn values(id: &str, x: f64) -> Values {
    [(id.to_string(), Num(x))].into()
}

fn stepped(step: u64, loss: f64) -> Event {
    Event::Stepped {
        step,
        tokens: step,
        values: values("train/loss", loss),
    }
}

fn evaluated(step: u64, loss: f64) -> Event {
    Event::Evaluated {
        step,
        tokens: step,
        values: values("val/loss", loss),
        n_windows: 1,
        whole: true,
        seconds: 0.1,
    }
}

fn finished(outcome: Outcome, step: u64) -> Event {
    Event::Finished {
        outcome,
        step,
        tokens: 0,
        val_loss: None,
        best: None,
        train_loss: None,
        seconds: 2.5,
        message: String::new(),
    }
}

#[test]
fn statuses_follow_the_lock_and_the_last_word() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let status = |run: &RunDir| summarize(run).unwrap().status;
    assert_eq!(status(&run), RunStatus::Empty);
    let claim = run.claim().unwrap();
    assert_eq!(status(&run), RunStatus::Live);
    log(&run, [hello(), started(10), stepped(1, 4.0)]);
    drop(claim);
    assert_eq!(status(&run), RunStatus::Crashed);
    for (outcome, expected) in [
        (Outcome::Stopped, RunStatus::Stopped),
        (Outcome::Failed, RunStatus::Failed),
        (Outcome::Completed, RunStatus::Finished),
        (Outcome::Refused, RunStatus::Failed),
        (Outcome::Crashed, RunStatus::Failed),
    ] {
        log(&run, [hello(), stepped(1, 4.0), finished(outcome, 1)]);
        assert_eq!(status(&run), expected);
        // Lists and screens of one run use one word.
        assert_eq!(outcome_word(outcome), expected.word());
    }
    log(&run, [hello()]);
    assert_eq!(status(&run), RunStatus::Crashed);
}

#[test]
fn a_run_whose_resume_was_refused_stands_as_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "a", 1);
    let status = || summarize(&run).unwrap().status;
    let begun = |last| [hello(), started(9), stepped(3, 2.0), finished(last, 3)];
    log(&run, begun(Outcome::Completed));
    assert_eq!(refusal(&run), None);
    for outcome in [Outcome::Invalid, Outcome::Refused, Outcome::Starved] {
        log(&run, [hello(), finished(outcome, 3)]);
        assert_eq!(status(), RunStatus::Finished, "{outcome:?}");
        assert!(refusal(&run).is_some(), "{outcome:?}");
    }
    // An engine that took steps speaks for the run, and so does the first one.
    log(&run, begun(Outcome::Starved));
    assert_eq!(status(), RunStatus::Failed);
    assert_eq!(refusal(&run), None);
    log(&run, [hello(), stepped(4, 2.0)]);
    assert_eq!(status(), RunStatus::Crashed);
    log(&run, [hello(), finished(Outcome::Invalid, 4)]);
    assert_eq!(status(), RunStatus::Crashed);
    let new = new_run(dir.path(), "b", 2);
    log(&new, [hello(), finished(Outcome::Invalid, 0)]);
    assert_eq!(summarize(&new).unwrap().status, RunStatus::Failed);
    assert_eq!(refusal(&new), None);
}

#[test]
fn a_run_that_failed_before_its_first_step_is_told_from_one_that_lost_its_steps() {
    let dir = tempfile::tempdir().unwrap();
    let early = |name: &str, events: Vec<Event>, outcome| {
        let run = new_run(dir.path(), name, 1);
        log(&run, events);
        log(&run, [finished(outcome, 0)]);
        summarize(&run).unwrap().failed_before_its_first_step()
    };
    let began = || vec![hello(), started(10)];
    assert!(early("a", began(), Outcome::Refused));
    assert!(early("b", vec![hello()], Outcome::Invalid));
    assert!(!early("c", began(), Outcome::Stopped));
    let lost = [
        began(),
        vec![stepped(1, 4.0), Event::RolledBack { step: 0 }],
    ];
    assert!(!early("d", lost.concat(), Outcome::Refused));
}

#[test]
fn the_time_of_an_engine_that_died_is_not_lost_by_a_resume() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let mut lines = Vec::new();
    let line = |lines: &mut Vec<String>, t: u64, event: Event| {
        let envelope = Envelope {
            v: VERSION,
            seq: lines.len() as u64 + 1,
            t: UnixMillis(t),
            event,
        };
        lines.push(serde_json::to_string(&envelope).unwrap() + "\n");
    };
    let sampled = Event::Sampled {
        step: 1,
        prompt: String::new(),
        text: String::new(),
        thought: None,
        seconds: 0.1,
    };
    line(&mut lines, 1_000, hello());
    line(&mut lines, 2_000, stepped(1, 4.0));
    // Its last word is none that a list needs.
    line(&mut lines, 99_000, sampled);
    line(&mut lines, 9_000_000, hello());
    line(&mut lines, 9_004_000, stepped(2, 4.0));
    std::fs::write(run.events_path(), lines.concat()).unwrap();
    assert_eq!(summarize(&run).unwrap().seconds, 98.0 + 4.0);
    line(&mut lines, 9_005_000, finished(Outcome::Completed, 2));
    std::fs::write(run.events_path(), lines.concat()).unwrap();
    let seconds = summarize(&run).unwrap().seconds;
    assert_eq!(seconds, 98.0 + 2.5);
    // Comparisons, screens and reports say the same.
    let track = crate::run::compare::Track::of_run(&run).unwrap();
    assert_eq!((track.millis(), track.state.seconds), (100_500, seconds));
    let last = track.state.finished.as_ref().unwrap();
    assert_eq!(
        crate::run::engine_time::words(last.seconds, seconds),
        "0:02 (1:40 in all)"
    );
}

#[test]
fn the_newest_verdict_of_a_log_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let said = |id: &str, title: &str| Event::Diagnosed {
        step: 1,
        finding: Box::new(Finding::pass("numbers").named(id, title)),
    };
    log(&run, [hello(), started(10), stepped(1, 4.0)]);
    assert_eq!(summarize(&run).unwrap().verdict, None);
    // While it is live it has taken too few steps, as `diagnose` says.
    let lock = run.lock().unwrap();
    assert_eq!(summarize(&run).unwrap().verdict.as_deref(), Some(TOO_EARLY));
    drop(lock);
    log(
        &run,
        [
            said(VERDICT, "LEARNING"),
            said(VERDICT, "DIV\x1b[2JERGED"),
            said("diverged", "divergence"),
        ],
    );
    let verdict = summarize(&run).unwrap().verdict.unwrap();
    assert!(
        verdict.starts_with("DIV") && !verdict.contains('\x1b'),
        "{verdict}"
    );
}

#[test]
fn a_run_that_ended_before_it_could_be_judged_has_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let early = Event::Diagnosed {
        step: 1,
        finding: Box::new(Finding::pass("few").named(VERDICT, TOO_EARLY)),
    };
    log(&run, [hello(), started(10), stepped(1, 4.0), early]);
    assert_eq!(summarize(&run).unwrap().status, RunStatus::Crashed);
    assert_eq!(summarize(&run).unwrap().verdict, None);
    let lock = run.lock().unwrap();
    assert_eq!(summarize(&run).unwrap().verdict.as_deref(), Some(TOO_EARLY));
    drop(lock);
}

#[test]
fn answers_are_summed_up_by_reward_and_pass_at_1_and_the_epoch_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let step = |step, reward: f64| Event::Stepped {
        step,
        tokens: step,
        values: [("reward", reward), ("epochs", step as f64 / 8.0)]
            .map(|(id, x)| (id.to_string(), Num(x)))
            .into(),
    };
    log(&run, [hello(), started(9), step(1, 0.5), passed(1, 0.75)]);
    log(
        &run,
        [step(4, 0.25), passed(4, 0.5), step(5, 0.9), passed(5, 1.0)],
    );
    log(
        &run,
        [hello(), Event::RolledBack { step: 4 }, step(4, 0.25)],
    );
    let summary = summarize(&run).unwrap();
    assert_eq!(summary.pass_at_1, Some(0.5));
    assert_eq!(
        summary.best_pass_at_1,
        Some(0.75),
        "what was rolled back is gone"
    );
    assert_eq!((summary.reward, summary.epochs), (Some(0.25), Some(0.5)));
    assert_eq!((summary.val_loss, summary.train_loss), (None, None));
}

#[test]
fn a_summary_counts_what_still_counts() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let steps =
        |range: std::ops::RangeInclusive<u64>| range.map(|i| stepped(i, 4.0 - i as f64 / 100.0));
    log(&run, [hello(), started(100)]);
    log(&run, steps(1..=40));
    log(&run, [evaluated(20, 3.0), evaluated(40, 1.0)]);
    log(&run, [hello(), Event::RolledBack { step: 20 }]);
    let summary = summarize(&run).unwrap();
    assert_eq!((summary.step, summary.max_steps), (20, 100));
    assert_eq!(
        summary.best_val_loss,
        Some(3.0),
        "the rolled-back 1.0 is gone"
    );
    log(&run, steps(21..=60));
    log(
        &run,
        [evaluated(60, f64::NAN), finished(Outcome::Stopped, 60)],
    );
    let summary = summarize(&run).unwrap();
    assert_eq!(summary.step, 60);
    assert_eq!(summary.val_loss, Some(3.0), "NaN is no loss");
    // The mean of the newest quarter.
    assert_eq!(summary.train_loss, Some(3.47));
    assert!((summary.seconds - 2.5).abs() < 1e-9);
    assert!(summary.curve.len() > 10, "{:?}", summary.curve);
    assert!(
        summary.curve.is_sorted_by(|a, b| a > b),
        "{:?}",
        summary.curve
    );
}

fn rescued(step: u64, from: u64) -> Event {
    Event::Rescued {
        step,
        from,
        why: "a spike".into(),
        skipped: (from, from + 1),
        lr: (Num(1e-3), Num(5e-4)),
        moments_reset: false,
        count: 1,
        at_most: 3,
        undo: None,
    }
}

fn undone(step: u64, rescue: u64) -> Event {
    Event::RescueUndone {
        step,
        tokens: step,
        rescue,
        why: "a spike".into(),
        lr: (Num(5e-4), Num(1e-3)),
        whole: true,
        lost: 0,
    }
}

fn passed(step: u64, share: f64) -> Event {
    Event::Evaluated {
        step,
        tokens: step,
        values: values("eval/pass@1", share),
        n_windows: 1,
        whole: true,
        seconds: 0.1,
    }
}

/// Lists and screens say the same of a run whose rescue was undone, and of one that was rescued once more.
#[test]
fn an_undone_rescue_brings_back_what_the_list_shows_as_it_does_on_the_dashboard() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let agree = |expected: (u64, Option<f64>, Option<f64>, Option<f64>)| {
        let list = summarize(&run).unwrap();
        let state = crate::run::compare::Track::of_run(&run).unwrap().state;
        let losses = || {
            state
                .evaluations
                .iter()
                .map(crate::run::state::Evaluation::val_loss)
        };
        let losses = || losses().filter(|loss| loss.is_finite());
        let fold = (
            state.step,
            losses().next_back(),
            losses().min_by(f64::total_cmp),
            state.latest("eval/pass@1"),
        );
        assert_eq!(fold, expected);
        let listed = (list.step, list.val_loss, list.best_val_loss, list.pass_at_1);
        assert_eq!(listed, expected);
    };
    log(&run, [hello(), started(900)]);
    log(&run, (1..=500).map(|i| stepped(i, 4.0)));
    log(
        &run,
        [evaluated(300, 3.0), evaluated(400, 1.0), passed(400, 0.5)],
    );
    log(&run, [evaluated(490, 2.0), evaluated(500, 0.5)]);
    log(&run, [Event::RolledBack { step: 300 }, rescued(300, 480)]);
    agree((300, Some(3.0), Some(3.0), None));
    log(&run, [stepped(301, 4.0), evaluated(301, 0.25)]);
    log(&run, [Event::RolledBack { step: 300 }, undone(490, 300)]);
    // The last evaluation was beyond what the undo takes up again.
    agree((490, Some(2.0), Some(1.0), Some(0.5)));
    // What a resume takes is not what a rescue took.
    log(&run, [hello(), Event::RolledBack { step: 350 }]);
    log(&run, [Event::RolledBack { step: 350 }, undone(400, 350)]);
    agree((400, Some(3.0), Some(3.0), None));
}

#[test]
fn a_best_that_an_engine_said_at_its_end_goes_with_its_step() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let mut end = finished(Outcome::Stopped, 500);
    if let Event::Finished { best, .. } = &mut end {
        *best = Some(crate::wire::Best {
            step: 500,
            metric: "val/loss".into(),
            value: Num(0.5),
            direction: crate::wire::Direction::Lower,
        });
    }
    log(&run, [hello(), started(900), evaluated(300, 3.0), end]);
    assert_eq!(summarize(&run).unwrap().best_val_loss, Some(0.5));
    log(&run, [hello(), Event::RolledBack { step: 300 }]);
    assert_eq!(summarize(&run).unwrap().best_val_loss, Some(3.0));
}

#[test]
fn the_small_curve_leaves_out_what_was_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let spike = |i: u64| stepped(i, if i > 400 { 100.0 } else { 2.0 });
    log(&run, [hello(), started(900)]);
    log(&run, (1..=500).map(spike));
    log(&run, [Event::RolledBack { step: 300 }, rescued(300, 401)]);
    log(&run, (301..=600).map(|i| stepped(i, 2.0)));
    let flat = |run: &RunDir| {
        let curve = summarize(run).unwrap().curve;
        assert!(curve.len() > 10, "{curve:?}");
        assert!(curve.iter().all(|loss| *loss == 2.0), "{curve:?}");
    };
    flat(&run);
    // What an undone rescue trained lies between steps that count.
    let run = new_run(dir.path(), "y", 1);
    let steps =
        |range: std::ops::RangeInclusive<u64>, loss| range.map(move |step| stepped(step, loss));
    log(&run, [hello(), started(900)]);
    log(&run, steps(1..=500, 2.0));
    log(&run, [Event::RolledBack { step: 300 }, rescued(300, 401)]);
    log(&run, steps(301..=800, 50.0));
    log(&run, [Event::RolledBack { step: 300 }, undone(500, 300)]);
    log(&run, steps(501..=900, 2.0));
    flat(&run);
}

#[test]
fn the_pace_of_now_begins_at_the_newest_engine_roll_back_or_pause() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let mut lines = Vec::new();
    let mut base = |t: u64, event: Event| {
        let envelope = Envelope {
            v: VERSION,
            seq: lines.len() as u64 + 1,
            t: UnixMillis(t * 1000),
            event,
        };
        lines.push(serde_json::to_string(&envelope).unwrap() + "\n");
        std::fs::write(run.events_path(), lines.concat()).unwrap();
        let summary = summarize(&run).unwrap();
        (summary.base_step, summary.base_seconds)
    };
    let phase = |phase, step| Event::PhaseChanged { phase, step };
    // A branch from step 500.
    assert_eq!(base(10, hello()), (0, 0.0));
    assert_eq!(base(12, Event::RolledBack { step: 500 }), (500, 2.0));
    assert_eq!(base(15, phase(Phase::Training, 500)), (500, 5.0));
    base(20, stepped(510, 2.0));
    base(21, phase(Phase::Evaluating, 510));
    assert_eq!(base(23, phase(Phase::Training, 510)), (500, 5.0));
    base(24, stepped(520, 2.0));
    base(25, phase(Phase::Paused, 520));
    assert_eq!(base(90, phase(Phase::Training, 520)), (520, 80.0));
    // The next engine, a day later.
    assert_eq!(base(86_400, hello()), (520, 80.0));
}

/// A log beyond what is read quickly, whose middle says what its ends do not: the best evaluation, an evaluation that a resume
/// has undone, a pause between two engines, and the longer training of the second.
fn long(dir: &Path) -> RunDir {
    let run = new_run(dir, "x", 1);
    let steps = |range: std::ops::RangeInclusive<u64>| range.map(|i| stepped(i, 1e5 / i as f64));
    log(&run, [hello(), started(30_000), evaluated(10, 9.0)]);
    log(&run, steps(1..=20_000));
    log(&run, [evaluated(15_000, 1.5), evaluated(20_000, 0.5)]);
    log(&run, [finished(Outcome::Stopped, 20_000), hello()]);
    log(&run, [Event::RolledBack { step: 18_000 }, started(50_000)]);
    log(&run, steps(18_001..=50_000));
    log(&run, [evaluated(50_000, 2.0)]);
    run
}

#[test]
fn a_long_log_is_summarised_as_a_short_one() {
    let dir = tempfile::tempdir().unwrap();
    let run = long(dir.path());
    let size = std::fs::metadata(run.events_path()).unwrap().len();
    assert!(size > 4 << 20, "{size}");
    let first = summarize(&run).unwrap();
    assert_eq!((first.step, first.max_steps), (50_000, 50_000));
    assert_eq!(first.val_loss, Some(2.0));
    assert_eq!(first.best_val_loss, Some(1.5), "0.5 was rolled back");
    assert_eq!(
        first.status,
        RunStatus::Crashed,
        "the second engine said no end"
    );
    assert_eq!(first.method, "pretrain");
    assert_eq!(first.curve.len(), CURVE);
    let mut whole = 0.0;
    let mut spent = crate::run::engine_time::EngineTime::default();
    for line in std::fs::read_to_string(run.events_path()).unwrap().lines() {
        let envelope = decode_envelope(line).unwrap();
        spent.take(envelope.t, &envelope.event);
        whole = spent.seconds();
    }
    assert!(
        (first.seconds - whole).abs() < 1e-9,
        "{} {whole}",
        first.seconds
    );

    // What was found is kept, and what comes behind it is read.
    assert!(run.summary_path().exists());
    assert_eq!(summarize(&run).unwrap(), first);
    log(
        &run,
        [evaluated(50_001, 1.0), finished(Outcome::Completed, 50_001)],
    );
    let then = summarize(&run).unwrap();
    assert_eq!((then.step, then.best_val_loss), (50_001, Some(1.0)));
    assert_eq!(then.status, RunStatus::Finished);

    // Kept of another log, or damaged: it does not count.
    for damage in [b"{}".to_vec(), Vec::new()] {
        std::fs::write(run.summary_path(), damage).unwrap();
        assert_eq!(summarize(&run).unwrap(), then);
    }
    let text = std::fs::read_to_string(run.events_path()).unwrap();
    std::fs::write(run.events_path(), text.replace("1.5", "1.25")).unwrap();
    assert_eq!(summarize(&run).unwrap().val_loss, Some(1.0));
}

#[test]
fn the_list_is_newest_first_and_shows_the_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    assert!(list(&dir.path().join("none")).unwrap().0.is_empty());
    new_run(dir.path(), "old", 1);
    new_run(dir.path(), "new", 1_000_000);
    std::fs::create_dir(dir.path().join("not-a-run")).unwrap();
    std::fs::create_dir(dir.path().join("broken")).unwrap();
    std::fs::write(dir.path().join("broken/run.json"), "{").unwrap();
    // A link whose run is gone is no run either.
    std::os::unix::fs::symlink(dir.path().join("gone"), dir.path().join("dead")).unwrap();
    let (runs, unreadable) = list(dir.path()).unwrap();
    let names: Vec<&str> = runs.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["new", "old"]);
    assert_eq!(unreadable.len(), 1);
}

#[test]
fn a_run_is_found_by_id_beginning_end_or_path() {
    let dir = tempfile::tempdir().unwrap();
    let a = new_run(dir.path(), "alpha", 1);
    let b = new_run(dir.path(), "beta", 1_000_000_000_000);
    let find = |word: &str| resolve(dir.path(), word).map(|r| r.id().to_string());
    assert_eq!(find(a.id()).unwrap(), a.id());
    assert_eq!(find("1970").unwrap(), a.id());
    assert_eq!(find(&b.id()[b.id().len() - 9..]).unwrap(), b.id());
    assert_eq!(find(a.path().to_str().unwrap()).unwrap(), a.id());
    assert!(find("gamma").unwrap_err().to_string().contains(b.id()));
    assert!(matches!(find(""), Err(ResolveError::Unknown { .. })));
    let twin = RunDir::create(dir.path(), "alpha", "", "", &ManualClock::at(1)).unwrap();
    let said = find("1970").unwrap_err().to_string();
    assert!(said.contains(twin.id()) && said.contains(a.id()), "{said}");
}

#[test]
fn a_name_means_the_newest_run_of_that_name() {
    let dir = tempfile::tempdir().unwrap();
    let old = new_run(dir.path(), "alpha", 1);
    let new = new_run(dir.path(), "alpha", 1_000_000_000_000);
    new_run(dir.path(), "beta", 2_000_000_000_000);
    let find = |word: &str| resolve(dir.path(), word).unwrap().id().to_string();
    assert_eq!(find("alpha"), new.id());
    assert_eq!(find(old.id()), old.id());
}

#[test]
fn the_newest_live_run_is_the_one_with_a_held_lock() {
    let dir = tempfile::tempdir().unwrap();
    let old = new_run(dir.path(), "old", 1);
    let middle = new_run(dir.path(), "middle", 1_000);
    new_run(dir.path(), "new", 2_000);
    assert!(newest_live(dir.path()).unwrap().is_none());
    let _claims = (old.claim().unwrap(), middle.claim().unwrap());
    assert_eq!(newest_live(dir.path()).unwrap().unwrap().id(), middle.id());
    // Beside another one: of this machine alone.
    let beside = |run: &RunDir| newest_live_beside(dir.path(), run).unwrap();
    assert_eq!(beside(&old).unwrap().id(), middle.id());
    let mut header = middle.header().unwrap();
    header.host = "another machine".into();
    let text = serde_json::to_string(&header).unwrap();
    std::fs::write(middle.header_path(), text).unwrap();
    assert!(beside(&old).is_none());
}

#[test]
fn kinds_are_read_without_decoding() {
    let line = crate::wire::encode(&crate::wire::Envelope {
        v: 1,
        seq: u64::MAX,
        t: UnixMillis(u64::MAX),
        event: hello(),
    });
    assert_eq!(kind_of(&line), Some("Hello"));
    assert_eq!(kind_of("{}"), None);
    let unicode = format!("{{\"v\":1,{}", "ä".repeat(100));
    assert_eq!(kind_of(&unicode), None);
}

/// A run's directory under another name.
fn copied(run: &RunDir, name: &str) -> std::path::PathBuf {
    let to = run.path().with_file_name(name);
    std::fs::create_dir(&to).unwrap();
    std::fs::copy(run.header_path(), to.join("run.json")).unwrap();
    to
}

#[test]
fn copies_of_a_run_are_told_apart_by_their_folders() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "alpha", 1);
    let copy = copied(&run, "my-backup");
    let find = |word: &str| resolve(dir.path(), word).map(|r| r.folder());
    assert_eq!(find(run.id()).unwrap(), run.folder());
    assert_eq!(find("my-backup").unwrap(), "my-backup");
    assert_eq!(find("alpha").unwrap(), run.folder());
    assert_eq!(find(copy.to_str().unwrap()).unwrap(), "my-backup");
    // What a list shows finds that very run.
    let (runs, _) = list(dir.path()).unwrap();
    assert_eq!(runs.len(), 2);
    for shown in &runs {
        let found = resolve(dir.path(), &shown.id).unwrap();
        assert_eq!(found.path(), shown.path);
        assert_eq!(shown.created_as, run.id());
    }
    // With the original gone, two copies share its id.
    copied(&run, "other-backup");
    std::fs::remove_dir_all(run.path()).unwrap();
    let said = find(run.id()).unwrap_err().to_string();
    assert!(
        said.contains("my-backup") && said.contains("other-backup"),
        "{said}"
    );
    // The newest of a name is no answer where nothing can be undone.
    let said = resolve_one(dir.path(), "alpha").unwrap_err().to_string();
    assert!(
        said.contains("my-backup") && said.contains("other-backup"),
        "{said}"
    );
}

#[test]
fn of_runs_that_began_in_the_same_minute_the_later_one_is_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    // Their ids end at random: several pairs, so that no order of ids passes for the order of their starts.
    for pair in 0..8 {
        let name = format!("r{pair}");
        new_run(dir.path(), &name, 1_000);
        let later = new_run(dir.path(), &name, 2_000);
        assert_eq!(resolve(dir.path(), &name).unwrap(), later);
    }
}

/// A run of 5 steps that was resumed to 15 is one of 15.
#[test]
fn what_a_resume_changed_takes_the_place_of_what_was_asked_for() {
    let asked = "# Requested: quickstart -s train.max_steps=5 -s lr=1e-3\n\
                 # Changed at step 5: -s max_steps=15 -s engine.threads=2\nextends: quickstart\n";
    assert_eq!(
        changed_by(asked),
        ["max_steps=15", "lr=1e-3", "engine.threads=2"]
    );
    assert_eq!(
        changed_by("# Requested -s a=1\nb: # Changed at step 1: -s a=2\n"),
        ["a=1"]
    );
}

#[test]
fn a_request_names_its_preset() {
    let of = |heading: &str| preset_of(&format!("{heading}\nextends: other\n"));
    assert_eq!(of("# Requested: smoke -s lr=1e-3 -s seed=2"), "smoke");
    assert_eq!(of("# Requested: specs/mine.yaml"), "specs/mine.yaml");
    assert_eq!(of("# Requested: --branch smoke-a2b7@40 -s lr=1e-3"), "");
    assert_eq!(of("# Requested"), "");
    assert_eq!(preset_of(""), "");
}
