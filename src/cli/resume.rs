//! `llmtui resume`: continue a paused run, or one that ended early.

use super::control::{Controlled, not_running};
use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::text::{one_line, shown};
use crate::link::launch::{EngineOptions, Launcher};
use crate::run::index::{self, RunStatus};
use crate::wire::Command;
use std::io::Write;

/// Continue a paused run, or start the engine of one that ended early from its newest checkpoint
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run's directory, id or name; default: the newest live run, which may be paused
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
        if index::summarize(&run)?.status == RunStatus::Finished {
            return Err(not_running(&run, &cx.runs_dir).into());
        }
        let options = EngineOptions {
            resume: true,
            ..EngineOptions::default()
        };
        Launcher::this_program(&cx.env)?
            .start_detached(&run, &options)
            .map_err(|e| Failure::machine(e.to_string(), command("logs")))?;
    }
    writeln!(std::io::stdout(), "{id} trains on; {}", command("attach"))?;
    Ok(Exit::Done)
}

/// No run is named and none is live: the newest that could go on. It is not started unasked, for training takes a machine.
fn stopped(cx: &Context) -> anyhow::Result<Failure> {
    let found = run_ref::newest_unfinished(&cx.runs_dir, &|_| true)?;
    let what = format!("no live run in {}", shown(&cx.runs_dir));
    Ok(match found.run {
        Some(run) => {
            let status = index::summarize(&run)?.status.word();
            let what = format!(
                "{what}; the newest that is not finished is {}, {status}",
                run.folder()
            );
            Failure::yours(what, run_ref::command("resume", run.path(), &cx.runs_dir))
        }
        None => Failure::yours(what, "llmtui runs"),
    })
}
