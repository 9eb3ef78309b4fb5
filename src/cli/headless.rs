//! A run whose engine lives in this process: progress lines or events on standard output, or the workbench on top. The
//! run's socket stays open, so others can watch and control it.

use super::engine_cmd::{drive, learn_from};
use super::exit::{Exit, Failure};
use super::notify::Notifier;
use super::progress::Progress;
use super::run_ref;
use super::run_ref::command;
use super::workbench;
use super::{Context, out as door};
use crate::engine::EngineJob;
use crate::link::signals::{self, Hangup};
use crate::link::{AddressError, Endpoint, Host, Incoming, Link, OnPanic};
use crate::ui::StartView;
use crate::wire::{Outcome, encode};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Who is watching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Viewer {
    /// About one line per second.
    Lines,
    /// The wire's envelopes, one per line; the last is `Finished`.
    Json,
    /// The workbench, in this process: `--foreground`.
    Workbench,
}

/// Trains to the end and reports it. If the reader closes the pipe, the run stops after a checkpoint, as with Ctrl-C.
pub fn train(job: EngineJob, viewer: Viewer, cx: &Context) -> anyhow::Result<Exit> {
    let run = job.run_dir.clone();
    let claim = run.claim().map_err(|e| Failure::run(&e))?;
    let advice = job.spec.advice();
    // The engine's first event may trigger a stop: install the signal handlers before.
    let signals = signals::listen(Hangup::Stop);
    let logged = run_ref::logged(&run);
    let complain = match viewer {
        // The screen is the workbench's.
        Viewer::Workbench => |_: &str| {},
        _ => |why: &str| errln!("warning: {why}"),
    };
    let notifier = Notifier::new(&cx.env, run.id(), complain);
    let host = start(job, notifier, claim, cx)?;
    let _end = OnPanic::of_main_thread(host.final_event());
    let stop = host.stop_flag();
    signals.attach(stop.clone(), host.commands());
    let before = host.begin_seq();
    let mut link = host.link();
    if viewer == Viewer::Workbench {
        let shown = workbench::open(StartView::Here(run.clone(), link), cx);
        stop.store(true, Ordering::Relaxed);
        let outcome = host.wait()?;
        learn_from(&run, logged, cx);
        shown?;
        return Ok(outcome.into());
    }
    for advice in &advice {
        errln!(
            "advice: {}: {}; {}",
            advice.place,
            advice.evidence,
            advice.fix
        );
    }
    let mut out = std::io::stdout().lock();
    let place = (run.path(), cx.runs_dir.as_path());
    let printed = match viewer {
        Viewer::Json => print_events(&mut link, &mut out, before, place),
        _ => print_lines(&mut link, &mut out, before, place, &|line| cx.words(line)),
    };
    if printed.is_err() {
        stop.store(true, Ordering::Relaxed);
    }
    let outcome = host.wait()?;
    learn_from(&run, logged, cx);
    printed?;
    Ok(outcome.into())
}

/// The engine with its socket; if none can be had, the run just cannot be watched from elsewhere.
fn start(
    job: EngineJob,
    notifier: Notifier,
    claim: crate::base::files::Lock,
    cx: &Context,
) -> anyhow::Result<Host<Outcome>> {
    let run = job.run_dir.clone();
    let door = match Endpoint::open(&cx.env, &run) {
        Ok(door) => door,
        Err(e @ AddressError::Taken { .. }) => return Err(e.into()),
        Err(e) => {
            errln!("warning: other terminals cannot attach to this run: {e}");
            Endpoint::deferred(&cx.env)
        }
    };
    Ok(Host::start(&run, claim, Some(door), move |io| {
        drive(&job, notifier, io)
    })?)
}

/// Prints the events with `seq` above `before`: after a resume, earlier events are not repeated.
fn print_events(
    link: &mut Link,
    out: &mut dyn Write,
    before: u64,
    place: (&Path, &Path),
) -> anyhow::Result<()> {
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) if envelope.seq > before => {
                out.write_all(encode(&*envelope).as_bytes())?;
                out.flush()?;
            }
            Incoming::Event(envelope) => door::warn(&envelope),
            Incoming::CaughtUp => {}
            Incoming::Closed(None) => return Ok(()),
            Incoming::Closed(Some(why)) => return Err(lost(why, place)),
        }
    }
}

fn print_lines(
    link: &mut Link,
    out: &mut dyn Write,
    before: u64,
    place: (&Path, &Path),
    words: &dyn Fn(String) -> String,
) -> anyhow::Result<()> {
    let mut progress = Progress::new();
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) => {
                door::warn(&envelope);
                let lines = progress.lines_for(&envelope);
                for line in lines.into_iter().filter(|_| envelope.seq > before) {
                    writeln!(out, "{}", words(line))?;
                }
                out.flush()?;
            }
            Incoming::CaughtUp => {}
            Incoming::Closed(None) => break,
            Incoming::Closed(Some(why)) => return Err(lost(why, place)),
        }
    }
    // Of a run that was deleted there is nothing to come back to.
    if place.0.exists() {
        for line in progress.next_steps(place.0, place.1) {
            writeln!(out, "{}", words(line))?;
        }
    }
    Ok(())
}

fn lost(why: String, (run, runs_dir): (&Path, &Path)) -> anyhow::Error {
    Failure::machine(why, command("train --resume", run, runs_dir)).into()
}
