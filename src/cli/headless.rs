//! A run whose engine lives in this process: progress in lines or events on standard output. The run's
//! socket is open all the while, so others may watch and steer it.

use super::Context;
use super::engine_cmd::{drive, ending};
use super::exit::{Exit, Failure};
use super::progress::Progress;
use crate::engine::EngineJob;
use crate::link::signals::{self, Hangup};
use crate::link::{Host, HostError, Incoming, Link};
use crate::wire::{Outcome, encode};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Who looks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Viewer {
    /// A line about every second.
    Lines,
    /// The wire's envelopes, one a line; the last is `Finished`.
    Json,
}

/// Trains to the end and shows it. A reader who closes the pipe ends the run after a checkpoint, as Ctrl-C does.
pub fn train(job: EngineJob, viewer: Viewer, cx: &Context) -> anyhow::Result<Exit> {
    let run = job.run_dir.clone();
    let claim = run
        .claim()
        .map_err(|e| Failure::yours(e.to_string(), "llmtui runs"))?;
    let advice = job.spec.advice();
    let host = start(job, claim, cx)?;
    let stop = host.stop_flag();
    signals::handle(stop.clone(), host.commands(), Hangup::Stop);
    let mut link = host.link();
    for advice in &advice {
        eprintln!("advice: {}: {}", advice.path, advice.what);
    }
    let mut out = std::io::stdout().lock();
    let printed = match viewer {
        Viewer::Json => print_events(&mut link, &mut out),
        Viewer::Lines => print_lines(&mut link, &mut out, run.path(), &cx.runs_dir),
    };
    if printed.is_err() {
        stop.store(true, Ordering::Relaxed);
    }
    let outcome = host.wait()?;
    printed?;
    Ok(ending(outcome))
}

/// The engine with its socket; without it where the socket cannot be made, which costs only watching from elsewhere.
fn start(
    job: EngineJob,
    claim: crate::base::files::Lock,
    cx: &Context,
) -> Result<Host<Outcome>, HostError> {
    let run = job.run_dir.clone();
    let door = match crate::link::socket_path(&cx.env, run.id()) {
        Ok(_) => Some(&cx.env),
        Err(e) => {
            eprintln!("warning: this run cannot be watched from elsewhere: {e}");
            None
        }
    };
    Host::start(&run, claim, door, move |io| drive(&job, io))
}

/// Prints what is new in the log. Of a run that goes on, the part before is only read.
fn print_events(link: &mut Link, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut caught_up = false;
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) if caught_up => {
                out.write_all(encode(&*envelope).as_bytes())?;
                out.flush()?;
            }
            Incoming::Event(_) => {}
            Incoming::CaughtUp => caught_up = true,
            Incoming::Closed(None) => return Ok(()),
            Incoming::Closed(Some(why)) => return Err(lost(why)),
        }
    }
}

fn print_lines(
    link: &mut Link,
    out: &mut dyn Write,
    run: &Path,
    runs_dir: &Path,
) -> anyhow::Result<()> {
    let mut progress = Progress::new();
    let mut caught_up = false;
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) => {
                let lines = progress.tell(&envelope);
                for line in lines.iter().filter(|_| caught_up) {
                    writeln!(out, "{line}")?;
                }
                out.flush()?;
            }
            Incoming::CaughtUp => caught_up = true,
            Incoming::Closed(None) => break,
            Incoming::Closed(Some(why)) => return Err(lost(why)),
        }
    }
    for line in progress.next_steps(run, runs_dir) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn lost(why: String) -> anyhow::Error {
    Failure::machine(why, "llmtui train --resume auto").into()
}
