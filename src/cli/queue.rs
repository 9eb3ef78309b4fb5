//! `train --after RUN`: a run that begins when another one has ended.

use super::Context;
use super::exit::Failure;
use super::run_ref::named;
use crate::base::clock::{Clock, pause};
use crate::base::files::is_locked;
use crate::base::text::one_line;
use crate::engine::After;
use crate::pipeline::{PipelineDir, membership};
use crate::plan::start;
use crate::run::{RunDir, index};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A run that was made so lately may be one whose engine is starting.
const YOUNG: Duration = Duration::from_secs(30);
/// So long such an engine is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

/// The live run that a word means, or the last one of the queue behind it; `None`, with a note, if it has ended already. A live
/// pipeline stands for its newest run.
///
/// # Errors
/// No run has that name.
pub fn live(word: &str, cx: &Context) -> anyhow::Result<Option<RunDir>> {
    let run = named(word, cx).or_else(|error| of_pipeline(word, cx).ok_or(error))?;
    await_engine(&run, &cx.clock, PATIENCE);
    let name = one_line(&run.folder());
    if !run.is_alive() && !pipeline_lock(&run).is_some_and(|lock| is_locked(&lock)) {
        errln!("note: {name} has ended: this run begins now");
        return Ok(None);
    }
    let last = index::end_of_queue(&run);
    if last.path() != run.path() {
        let last = one_line(&last.folder());
        errln!("note: {last} is queued behind {name}: this run begins when {last} has ended");
    }
    Ok(Some(last))
}

/// Names the live run of this folder and this machine that another one would begin beside.
pub fn note_live(run: &RunDir, cx: &Context) {
    let live = index::newest_live_beside(&cx.runs_dir, run);
    if let Some(live) = live.ok().flatten() {
        errln!("{}", beside(&live));
    }
}

/// What is said of a live run, or of the last one of a queue.
fn beside(live: &RunDir) -> String {
    let name = one_line(&live.folder());
    match index::waits_for(live).map(|first| one_line(&first.folder())) {
        Some(first) => format!(
            "note: {name} is queued behind {first}: two runs share processors and memory; --after {name} begins when both have ended"
        ),
        None => format!(
            "note: {name} is live: two runs share processors and memory; --after {name} begins when it has ended"
        ),
    }
}

/// Waits until this run has ended, and its pipeline with it; no longer once `is_stopped`.
pub fn wait(run: &RunDir, is_stopped: impl Fn() -> bool) {
    let is_busy = || run.is_alive() || pipeline_lock(run).is_some_and(|lock| is_locked(&lock));
    while !is_stopped() && is_busy() {
        pause(LOOK);
    }
}

/// The newest run of a live pipeline.
fn of_pipeline(word: &str, cx: &Context) -> Option<RunDir> {
    let dir = PipelineDir::resolve(&cx.runs_dir, word).ok()?;
    let state = dir.state().ok().filter(|_| dir.is_live())?;
    let run = state.stages.into_iter().rev().find_map(|stage| stage.run)?;
    index::resolve_one(&cx.runs_dir, &run).ok()
}

/// Waits for the lock of an engine that is just starting: of a new run that has said nothing yet.
fn await_engine(run: &RunDir, clock: &dyn Clock, patience: Duration) {
    let made = run.header().map(|header| header.created);
    let young = made.is_ok_and(|made| clock.now().since(made) < YOUNG);
    let silent = || std::fs::metadata(run.events_path()).map_or(0, |file| file.len()) == 0;
    let end = clock.elapsed() + patience;
    while young && !run.is_alive() && silent() && clock.elapsed() < end {
        pause(LOOK);
    }
}

/// What an engine waits for, given the folder of that run.
///
/// # Errors
/// There is no run.
pub fn after(folder: &Path) -> Result<After, Failure> {
    let run = RunDir::open(folder).map_err(|e| Failure::run(&e))?;
    Ok(behind(run))
}

/// A place behind this run. Whether the machine has enough memory is asked after the wait, when that of the other run is free.
pub fn behind(run: RunDir) -> After {
    let check = |spec: &_, env: &_| {
        let refused = |refusal: start::Refusal| format!("{}; {}", refusal.what, refusal.hint);
        start::check(spec, env).map_err(refused)
    };
    After {
        run,
        lock: pipeline_lock,
        check,
    }
}

/// The lock of the pipeline that trains this run, and others behind it.
fn pipeline_lock(run: &RunDir) -> Option<PathBuf> {
    let of = membership(run, run.path().parent()?)?;
    Some(of.dir.lock_path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    #[test]
    fn a_run_whose_engine_is_starting_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let new = |name: &str| RunDir::create(dir.path(), name, "", "", &clock).unwrap();
        let run = new("a");
        std::thread::scope(|scope| {
            let engine = scope.spawn(|| {
                pause(LOOK * 2);
                run.claim().unwrap()
            });
            await_engine(&run, &clock, Duration::from_secs(60));
            assert!(run.is_alive());
            drop(engine.join().unwrap());
        });
        // One that has said something has ended, and one that is not started is not waited for long.
        let begin = clock.elapsed();
        let ended = new("b");
        std::fs::write(ended.events_path(), "{}\n").unwrap();
        await_engine(&ended, &clock, Duration::from_secs(60));
        await_engine(&new("c"), &clock, LOOK);
        assert!(clock.elapsed() - begin < Duration::from_secs(30));
    }

    /// "is live: … begins when it has ended" was said of a run that waits itself.
    #[test]
    fn a_queued_run_is_not_called_live() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let new = |name: &str| RunDir::create(dir.path(), name, "", "", &clock).unwrap();
        let (first, second) = (new("a"), new("b"));
        let _claims = (first.claim().unwrap(), second.claim().unwrap());
        let live = format!("note: {} is live:", first.folder());
        assert!(beside(&first).starts_with(&live), "{}", beside(&first));
        let after = first.path().display().to_string();
        let line = serde_json::to_string(&crate::wire::Envelope {
            v: 1,
            seq: 1,
            t: crate::base::clock::UnixMillis(0),
            event: crate::wire::Event::Queued { after },
        });
        std::fs::write(second.events_path(), line.unwrap() + "\n").unwrap();
        let told = beside(&second);
        let words = format!("{} is queued behind {}", second.folder(), first.folder());
        assert!(
            told.contains(&words) && told.contains("both have ended"),
            "{told}"
        );
    }

    #[test]
    fn a_wait_ends_with_the_run_or_a_stop() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let run = RunDir::create(dir.path(), "a", "", "", &clock).unwrap();
        let claim = run.claim().unwrap();
        let looks = std::cell::Cell::new(0);
        wait(&run, || {
            looks.set(looks.get() + 1);
            looks.get() > 2
        });
        assert_eq!(looks.get(), 3, "it waits while the run is live");
        drop(claim);
        wait(&run, || false);
    }

    #[test]
    fn a_run_behind_a_stage_is_behind_its_pipeline() {
        use crate::pipeline::Pipeline;
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let run = RunDir::create(dir.path(), "a", "", "", &clock).unwrap();
        assert_eq!(pipeline_lock(&run), None);
        let text = "stages: [{name: a, train: quickstart}, {name: b, train: quickstart}]";
        let pipeline = Pipeline::parse("p", "p", text).unwrap();
        let of = PipelineDir::create(dir.path(), &pipeline, text, &clock).unwrap();
        let mut state = of.state().unwrap();
        state.stages[0].run = Some(run.id().into());
        of.save(&state).unwrap();
        let lock = pipeline_lock(&run).unwrap();
        assert!(!is_locked(&lock));
        let _claim = of.claim().unwrap();
        assert!(is_locked(&lock));
    }
}
