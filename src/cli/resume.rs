//! `llmtui resume`: continue a paused run, or one that ended early.

use super::control::{Controlled, not_running};
use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::text::one_line;
use crate::link::launch::{EngineOptions, Launcher};
use crate::run::index::{self, RunStatus};
use crate::wire::Command;
use std::io::Write;

/// Continue a paused run, or start the engine of one that ended early from its newest checkpoint
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run's directory, id or name; default: the newest live run
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let run = run_ref::find(args.run.as_deref(), cx)?;
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
