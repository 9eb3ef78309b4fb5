//! Commands to a live engine from the shell: what `stop`, `pause` and `resume` share.

use super::exit::Failure;
use super::{Context, run_ref};
use crate::base::clock::{Clock, SystemClock};
use crate::base::text::one_line;
use crate::link::{Incoming, Link, SendError, open};
use crate::run::index::{self, RunStatus};
use crate::run::state::Finish;
use crate::run::{RunDir, RunState};
use crate::wire::{Command, Event};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An engine that has said its last frees the run within this time.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// A connection to the engine of a live run, and the run as recorded in its log.
pub struct Controlled {
    pub run: RunDir,
    pub state: RunState,
    link: Link,
    runs_dir: PathBuf,
}

/// Why no command reaches a run that has no engine, and what can be done with it.
pub fn not_running(run: &RunDir, runs_dir: &Path) -> Failure {
    let command = |verb: &str| run_ref::command(verb, run.path(), runs_dir);
    let summary = index::summarize(run);
    let finished = summary
        .ok()
        .filter(|summary| summary.status == RunStatus::Finished);
    match finished.map(|summary| summary.has_steps_left()) {
        Some(true) => Failure::user_error(
            format!("{} ended early, by eval.patience", run.folder()),
            format!("go on: {}", command("train --resume")),
        ),
        Some(false) => Failure::user_error(
            format!("{} has completed all its steps", run.folder()),
            format!(
                "train it longer: {} -s max_steps=N",
                command("train --resume")
            ),
        ),
        None => Failure::user_error(
            format!("{} is not running", run.folder()),
            command("resume"),
        ),
    }
}

/// Why no command reaches a run that trains, and what does.
fn out_of_reach(run: &RunDir) -> Failure {
    let (id, holder) = (one_line(&run.folder()), run.holder());
    if let Some(host) = &holder.elsewhere {
        let what = format!("{id} trains on {}", one_line(host));
        return Failure::machine(what, "run the command there");
    }
    let what = format!("the engine of {id} cannot be reached");
    let hint = holder.here();
    let hint = hint.map_or(String::new(), |pid| {
        format!("kill {pid} saves and stops it")
    });
    Failure::machine(what, hint)
}

/// [`not_running`] for a command to an engine: of a finished run there is nothing left to be asked for.
fn no_engine(run: &RunDir, runs_dir: &Path) -> Failure {
    let failure = not_running(run, runs_dir);
    let over = |summary: index::RunSummary| {
        summary.status == RunStatus::Finished && !summary.has_steps_left()
    };
    match index::summarize(run).is_ok_and(over) {
        true => Failure {
            hint: format!(
                "{} shows it",
                run_ref::command("attach", run.path(), runs_dir)
            ),
            ..failure
        },
        false => failure,
    }
}

impl Controlled {
    /// Connects to the named run, or to the newest live one, and reads its log.
    ///
    /// # Errors
    /// There is no such run, or no engine holds it.
    pub fn connect(word: Option<&str>, cx: &Context) -> anyhow::Result<Controlled> {
        let run = run_ref::find(word, cx)?;
        let link = open(&run, &cx.env)?;
        if let Some(pid) = run.suspended_by() {
            let what = format!(
                "the engine of {} is suspended by a signal and cannot receive commands",
                one_line(&run.folder())
            );
            let hint = format!("resume it with kill -CONT {pid}, then run the same command again");
            return Err(Failure::machine(what, hint).into());
        }
        if link.is_read_only() {
            return Err(out_of_reach(&run).into());
        }
        if !link.live() {
            return Err(no_engine(&run, &cx.runs_dir).into());
        }
        let state = RunState::new();
        let mut controlled = Controlled {
            run,
            state,
            link,
            runs_dir: cx.runs_dir.clone(),
        };
        while !matches!(controlled.next()?, Incoming::CaughtUp) {}
        Ok(controlled)
    }

    /// Sends a command and waits for the engine's answer.
    ///
    /// # Errors
    /// The engine rejects it, or ends before it answers.
    pub fn command(&mut self, command: Command) -> anyhow::Result<()> {
        let sent = match self.link.send(command) {
            // How it ended arrives.
            Err(SendError::Closed) => None,
            sent => Some(sent?),
        };
        loop {
            let Incoming::Event(envelope) = self.next()? else {
                continue;
            };
            match &envelope.event {
                Event::Accepted { id } if Some(*id) == sent => return Ok(()),
                Event::Rejected { id, why } if Some(*id) == sent => {
                    let what = format!("{} rejected it: {why}", self.run.folder());
                    return Err(Failure::user_error(what, "").into());
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
            crate::base::clock::pause(PAUSE);
        }
        self.state.newest_end().cloned().ok_or(closed)
    }

    /// The next arrival, folded; an error once the engine is gone.
    fn next(&mut self) -> anyhow::Result<Incoming> {
        let item = self.link.blocking_recv();
        match &item {
            Incoming::Event(envelope) => self.state.apply(envelope),
            Incoming::CaughtUp => {}
            Incoming::Closed(Some(why)) => {
                return Err(Failure::machine(why.clone(), "llmtui runs").into());
            }
            Incoming::Closed(None) => return Err(no_engine(&self.run, &self.runs_dir).into()),
        }
        Ok(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Envelope, Outcome};

    #[test]
    fn what_trains_on_another_machine_is_not_to_be_killed_here() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "a", "{}", "", &SystemClock::new()).unwrap();
        let here = out_of_reach(&run).hint;
        assert!(here.starts_with("kill "), "{here}");
        let mut header = run.header().unwrap();
        let write = |header: &crate::run::Header| {
            let text = serde_json::to_vec(header).unwrap();
            std::fs::write(run.header_path(), text).unwrap();
        };
        header.host = "node3".into();
        write(&header);
        let there = out_of_reach(&run);
        assert!(there.what.ends_with(" trains on node3"), "{there:?}");
        assert_eq!(there.hint, "run the command there");
        (header.host, header.pid) = (String::new(), 0);
        write(&header);
        assert_eq!(out_of_reach(&run).hint, "", "nobody knows its process");
    }

    #[test]
    fn a_run_that_did_all_its_steps_is_not_to_be_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "a", "{}", "", &SystemClock::new()).unwrap();
        let said = |outcome| {
            let event = Event::Finished {
                outcome,
                step: 20,
                tokens: 0,
                val_loss: None,
                best: None,
                train_loss: None,
                seconds: 1.0,
                message: String::new(),
            };
            let (v, seq, t) = (1, 1, UnixMillis(0));
            let line = serde_json::to_string(&Envelope { v, seq, t, event }).unwrap();
            std::fs::write(run.events_path(), format!("{line}\n")).unwrap();
            (
                not_running(&run, dir.path()),
                no_engine(&run, dir.path()).hint,
            )
        };
        let (stopped, asked) = said(Outcome::Stopped);
        assert_eq!(asked, stopped.hint);
        assert!(stopped.what.ends_with(" is not running"), "{stopped:?}");
        assert!(stopped.hint.starts_with("llmtui resume "), "{stopped:?}");
        let (completed, asked) = said(Outcome::Completed);
        // Who stops a run wants no longer one.
        assert!(asked.starts_with("llmtui attach "), "{asked}");
        assert!(completed.what.ends_with(" has completed all its steps"));
        assert!(
            completed.hint.contains("llmtui train --resume "),
            "{completed:?}"
        );
    }
}
