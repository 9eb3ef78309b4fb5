//! Commands to a live engine from the shell: what `stop`, `pause` and `resume` share.

use super::exit::Failure;
use super::{Context, run_ref};
use crate::base::clock::{Clock, SystemClock};
use crate::link::{Incoming, Link, open};
use crate::run::state::Finish;
use crate::run::{RunDir, RunState};
use crate::wire::{Command, Event};
use std::time::Duration;

/// An engine that has said its last frees the run within this time.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// A connection to the engine of a live run, and the run as its log tells it.
pub struct Controlled {
    pub run: RunDir,
    pub state: RunState,
    link: Link,
}

impl Controlled {
    /// Connects to the named run, or to the newest live one, and reads its log.
    ///
    /// # Errors
    /// There is no such run, or no engine holds it.
    pub fn connect(word: Option<&str>, cx: &Context) -> anyhow::Result<Controlled> {
        let run = run_ref::find(word, cx)?;
        let link = open(&run, &cx.env)?;
        if link.is_read_only() {
            let pid = run.header().map_or(0, |header| header.pid);
            let what = format!("the engine of {} cannot be reached", run.folder());
            return Err(Failure::machine(what, format!("kill {pid} saves and stops it")).into());
        }
        if !link.live() {
            let hint = run_ref::command("resume", run.path(), &cx.runs_dir);
            return Err(Failure::yours(format!("{} is not running", run.folder()), hint).into());
        }
        let state = RunState::new();
        let mut controlled = Controlled { run, state, link };
        while !matches!(controlled.next()?, Incoming::CaughtUp) {}
        Ok(controlled)
    }

    /// Sends a command and waits for the engine's answer.
    ///
    /// # Errors
    /// The engine rejects it, or ends before it answers.
    pub fn command(&mut self, command: Command) -> anyhow::Result<()> {
        let sent = self.link.send(command)?;
        loop {
            let Incoming::Event(envelope) = self.next()? else {
                continue;
            };
            match &envelope.event {
                Event::Accepted { id } if *id == sent => return Ok(()),
                Event::Rejected { id, why } if *id == sent => {
                    let what = format!("{} rejected it: {why}", self.run.folder());
                    return Err(Failure::yours(what, "").into());
                }
                _ => {}
            }
        }
    }

    /// Waits until the run has ended and its directory is free again, so that the next command finds it so.
    ///
    /// # Errors
    /// The link broke, or the engine died: nobody knows how the run ended.
    pub fn wait(&mut self) -> anyhow::Result<Finish> {
        let closed = loop {
            if let Err(closed) = self.next() {
                break closed;
            }
        };
        let clock = SystemClock::new();
        while self.run.is_alive() && clock.elapsed() < PATIENCE {
            std::thread::park_timeout(PAUSE);
        }
        self.state.finished.clone().ok_or(closed)
    }

    /// The next arrival, folded; an error once the engine is gone.
    fn next(&mut self) -> anyhow::Result<Incoming> {
        let item = self.link.blocking_recv();
        match &item {
            Incoming::Event(envelope) => self.state.apply(envelope),
            Incoming::CaughtUp => {}
            Incoming::Closed(why) => {
                let what = why.clone().unwrap_or_else(|| "the run has ended".into());
                return Err(Failure::machine(what, "llmtui runs").into());
            }
        }
        Ok(item)
    }
}
