//! `llmtui stop`: end a live run so that it can be resumed.

use super::control::Controlled;
use super::{Context, exit::Exit, run_ref};
use crate::base::human;
use crate::wire::{Command, StopWhen};
use std::io::Write;

/// Stop a live run after a checkpoint; `llmtui resume` continues it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run's directory, id or name; default: the newest live run
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Stop without a checkpoint: steps since the last one are lost
    #[arg(long)]
    pub now: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let mut run = Controlled::connect(args.run.as_deref(), cx)?;
    let when = match args.now {
        true => StopWhen::Now,
        false => StopWhen::AfterCheckpoint,
    };
    run.command(Command::Stop { when })?;
    run.wait();
    let (id, step) = (run.run.id(), human::grouped(run.state.step));
    let mut out = std::io::stdout().lock();
    writeln!(out, "{id} stopped at step {step}")?;
    if let Some(kept) = run.state.checkpoints.last() {
        let step = human::grouped(kept.step);
        let resume = run_ref::command("resume", run.run.path(), &cx.runs_dir);
        writeln!(out, "{resume} continues from step {step}")?;
    }
    Ok(Exit::Done)
}
