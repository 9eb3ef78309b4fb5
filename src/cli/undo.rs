//! `llmtui undo`: take the newest rescue of a live run back.

use super::control::Controlled;
use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::human;
use crate::base::text::one_line;
use crate::wire::Command;
use std::io::Write;

/// Undo the latest rescue of a live run: continues from the state before it; shows first what would be discarded
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run's directory, id or name; default: the newest live run
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Do it
    #[arg(short, long)]
    pub yes: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let mut run = Controlled::connect(args.run.as_deref(), cx)?;
    let rescue = run.state.rescued.as_ref();
    let Some(words) = rescue.and_then(|rescue| rescue.undo_words(run.state.step)) else {
        let what = format!("{} has no rescue to undo", run.run.folder());
        return Err(Failure::user_error(
            what,
            run_ref::command("logs", run.run.path(), &cx.runs_dir),
        )
        .into());
    };
    let mut out = std::io::stdout().lock();
    for line in words {
        writeln!(out, "{line}")?;
    }
    if !args.yes {
        let undo = run_ref::command("undo", run.run.path(), &cx.runs_dir);
        writeln!(out, "{undo} --yes does it")?;
        return Ok(Exit::Done);
    }
    run.command(Command::UndoRescue)?;
    let id = one_line(&run.run.folder());
    writeln!(
        out,
        "{id}: the rescue is undone at step {}",
        human::grouped(run.state.step)
    )?;
    Ok(Exit::Done)
}
