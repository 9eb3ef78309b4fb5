//! `llmtui pause`: hold a live run in memory.

use super::control::Controlled;
use super::{Context, exit::Exit, run_ref};
use crate::base::text::one_line;
use crate::wire::{Command, Phase};
use std::io::Write;

/// Pause a live run; its process stays, `llmtui resume` continues it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run's directory, id or name; default: the newest live run
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let mut run = Controlled::connect(args.run.as_deref(), cx)?;
    if run.state.phase != Some(Phase::Paused) {
        run.command(Command::Pause)?;
    }
    let resume = run_ref::command("resume", run.run.path(), &cx.runs_dir);
    writeln!(
        std::io::stdout(),
        "{} is paused; {resume} continues it",
        one_line(&run.run.folder())
    )?;
    Ok(Exit::Done)
}
