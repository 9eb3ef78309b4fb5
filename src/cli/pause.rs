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
    let stop = run_ref::command("stop", run.run.path(), &cx.runs_dir);
    let (name, unsaved) = (one_line(&run.run.folder()), unsaved(&run.state, &stop));
    writeln!(
        std::io::stdout(),
        "{name} is paused{unsaved}; {resume} continues it"
    )?;
    Ok(Exit::Done)
}

/// What a kill would cost meanwhile: a pause holds the run in memory and saves nothing.
fn unsaved(state: &RunState, stop: &str) -> String {
    let saved = state.checkpoints.iter().map(|kept| kept.step).max();
    let step = state.step;
    let at = human::grouped(step);
    match (saved, step) {
        (_, 0) => String::new(),
        (Some(saved), step) if saved >= step => format!(" at step {at}, which is saved"),
        (Some(saved), step) => format!(
            " at step {at}, {} behind its newest checkpoint: {stop} saves them",
            steps(step - saved)
        ),
        (None, step) => format!(
            " at step {at}, and none of its {} is saved: {stop} saves them",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::run::state::CheckpointMark;

    #[test]
    fn a_pause_says_what_a_kill_would_cost() {
        let mut state = RunState::new();
        let unsaved = |state: &RunState| unsaved(state, "llmtui stop a");
        assert_eq!(unsaved(&state), "");
        state.step = 1_240;
        let said = unsaved(&state);
        assert!(said.contains("none of its 1,240 steps is saved"), "{said}");
        assert!(said.ends_with("llmtui stop a saves them"), "{said}");
        for (step, phrase) in [
            (1_000, "240 steps behind its newest checkpoint"),
            (1_239, " 1 step behind"),
            (1_240, "which is saved"),
        ] {
            state.checkpoints.push(CheckpointMark {
                t: UnixMillis(0),
                step,
                path: String::new(),
                bytes: 1,
                by: None,
                seconds: 0.0,
                best: false,
                val_loss: None,
            });
            let said = unsaved(&state);
            assert!(said.contains(phrase), "{said}");
        }
    }
}
