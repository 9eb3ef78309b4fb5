//! `llmtui resume`: continue a paused run, or one that ended early.

use super::control::{Controlled, not_running};
use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::clock::{Clock, SystemClock};
use crate::base::human::grouped;
use crate::base::text::{one_line, shown};
use crate::link::launch::{EngineOptions, Launcher};
use crate::run::RunDir;
use crate::run::index::{self, RunStatus};
use crate::run::state::Finish;
use crate::wire::Command;
use std::io::Write;
use std::time::Duration;

/// How long an engine may open its data before it counts as one that trains on.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// Continue a paused run, or restart one that stopped early from its latest checkpoint
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run's directory, id or name; default: the newest live run, paused or not
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let run = match (&args.run, index::newest_live(&cx.runs_dir)?) {
        (None, None) => return Err(stopped(cx)?.into()),
        _ => run_ref::find(args.run.as_deref(), cx)?,
    };
    let id = one_line(&run.folder());
    let command = |verb: &str| run_ref::command(verb, run.path(), &cx.runs_dir);
    if run.is_alive() {
        Controlled::connect(args.run.as_deref(), cx)?.command(Command::Resume)?;
    } else {
        let summary = index::summarize(&run)?;
        if summary.status == RunStatus::Finished && !summary.has_steps_left() {
            return Err(not_running(&run, &cx.runs_dir).into());
        }
        let options = EngineOptions {
            resume: true,
            ..EngineOptions::default()
        };
        let logged = run_ref::logged(&run);
        Launcher::this_program(&cx.env)?
            .start_detached(&run, &options)
            .map_err(|e| Failure::machine(e.to_string(), command("logs")))?;
        // It may be refused, or have a step or two left and be over already.
        if !trains(&run, logged)? {
            let state = run_ref::fold_from(&run, logged)?;
            return over(&id, state.newest_end(), command("logs"));
        }
    }
    writeln!(std::io::stdout(), "{id} is training; {}", command("attach"))?;
    if let Some(note) = run_ref::of_a_pipeline(&run, &cx.runs_dir) {
        errln!("note: {note}, once it has ended");
    }
    Ok(Exit::Done)
}

/// Waits until the engine has opened data and checkpoint, and says whether it goes on from there; one that takes longer does.
fn trains(run: &RunDir, logged: u64) -> std::io::Result<bool> {
    let clock = SystemClock::new();
    while run.is_alive() && clock.elapsed() < PATIENCE {
        let state = run_ref::fold_from(run, logged)?;
        if state.head.is_some() && state.newest_end().is_none() {
            break;
        }
        crate::base::clock::pause(PAUSE);
    }
    Ok(run.is_alive())
}

/// A run that has ended by now: how, and its own exit code.
fn over(id: &str, finish: Option<&Finish>, hint: String) -> anyhow::Result<Exit> {
    let Some(finish) = finish else {
        let what = format!("{id} resumed and ended without a final event");
        return Err(Failure::machine(what, hint).into());
    };
    let step = grouped(finish.step);
    match Exit::from(finish.outcome) {
        Exit::Done => {
            writeln!(std::io::stdout(), "{id} resumed and ended at step {step}")?;
            Ok(Exit::Done)
        }
        exit => {
            let why = one_line(&finish.message);
            let what = match finish.outcome.is_refusal() {
                true => format!("{id} did not resume: {why}"),
                false => format!("{id} resumed and ended at step {step}: {why}"),
            };
            Err(Failure { exit, what, hint }.into())
        }
    }
}

/// No run is named and none is live: the newest that could go on. It is not started unasked, for training takes a machine.
fn stopped(cx: &Context) -> anyhow::Result<Failure> {
    let found = run_ref::newest_unfinished(&cx.runs_dir, &|_| true)?;
    let what = format!("no live run in {}", shown(&cx.runs_dir));
    Ok(match found.run {
        Some(run) => {
            let status = index::summarize(&run)?.status.word();
            let what = format!(
                "{what}; the newest unfinished run is {}, {status}",
                run.folder()
            );
            Failure::user_error(what, run_ref::command("resume", run.path(), &cx.runs_dir))
        }
        None => Failure::user_error(what, "llmtui runs"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::Outcome;

    #[test]
    fn a_run_that_is_over_at_once_is_told_with_its_own_exit_code() {
        let finish = |outcome| Finish {
            t: UnixMillis(0),
            outcome,
            step: 1_200,
            val_loss: None,
            best: None,
            train_loss: None,
            seconds: 1.0,
            message: "the loss is NaN".into(),
        };
        let told = |outcome: Option<Outcome>| {
            let over = over("a", outcome.map(finish).as_ref(), "llmtui logs a".into());
            over.map_err(|e| e.downcast::<Failure>().unwrap())
        };
        assert_eq!(told(Some(Outcome::Completed)).unwrap(), Exit::Done);
        let failed = told(Some(Outcome::Failed)).unwrap_err();
        assert_eq!(failed.exit, Exit::Training);
        assert_eq!(
            failed.what,
            "a resumed and ended at step 1,200: the loss is NaN"
        );
        assert_eq!(told(None).unwrap_err().exit, Exit::Machine);
    }
}
