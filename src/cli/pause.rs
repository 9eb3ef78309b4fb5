//! `llmtui pause`: hold a live run in memory.

use super::control::Controlled;
use super::{Context, exit::Exit, run_ref};
use crate::base::human;
use crate::base::text::one_line;
use crate::run::RunState;
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
    let (name, unsaved) = (one_line(&run.run.folder()), unsaved(&run.state));
    writeln!(
        std::io::stdout(),
        "{name} is paused{unsaved}; {resume} continues it"
    )?;
    Ok(Exit::Done)
}

/// What a kill would cost meanwhile: a pause holds the run in memory and saves nothing.
fn unsaved(state: &RunState) -> String {
    let saved = state.checkpoints.iter().map(|kept| kept.step).max();
    let step = state.step;
    let at = human::grouped(step);
    match (saved, step) {
        (_, 0) => String::new(),
        (Some(saved), step) if saved >= step => format!(" at step {at}, which is saved"),
        (Some(saved), step) => format!(
            " at step {at}, {} behind its newest checkpoint: llmtui stop saves them",
            steps(step - saved)
        ),
        (None, step) => format!(
            " at step {at}, and none of its {} is saved: llmtui stop saves them",
            steps(step)
        ),
    }
}

fn steps(n: u64) -> String {
    match n {
        1 => "1 step".into(),
        n => format!("{} steps", human::grouped(n)),
    }
}
