//! `llmtui stop`: end a live run so that it can be resumed.

use super::Context;
use super::control::Controlled;
use super::exit::{Exit, Failure};
use super::run_ref;
use crate::base::human;
use crate::base::text::one_line;
use crate::run::state::Finish;
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
    let finish = run.wait()?;
    let id = one_line(&run.run.folder());
    orderly(&id, &finish)?;
    let step = human::grouped(run.state.step);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{id} stopped at step {step}")?;
    if let Some(kept) = run.state.checkpoints.last() {
        let step = human::grouped(kept.step);
        let resume = run_ref::command("resume", run.run.path(), &cx.runs_dir);
        writeln!(out, "{resume} continues from step {step}")?;
    }
    if let Some(note) = run_ref::of_a_pipeline(&run.run, cx) {
        writeln!(out, "{note}")?;
    }
    Ok(Exit::Done)
}

/// An error where the run ended otherwise than by the stop: its end was not saved, or it failed meanwhile.
fn orderly(id: &str, finish: &Finish) -> Result<(), Failure> {
    match Exit::from(finish.outcome) {
        Exit::Done => Ok(()),
        exit => Err(Failure {
            exit,
            what: format!(
                "{id} ended at step {}: {}",
                human::grouped(finish.step),
                one_line(&finish.message)
            ),
            hint: format!("llmtui logs {id}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::Outcome;

    #[test]
    fn a_stop_whose_end_was_not_saved_is_no_success() {
        let finish = |outcome| Finish {
            t: UnixMillis(0),
            outcome,
            step: 1_200,
            val_loss: None,
            best: None,
            train_loss: None,
            seconds: 1.0,
            message: "the disk is full".into(),
        };
        for outcome in [Outcome::Stopped, Outcome::Completed] {
            assert!(orderly("a", &finish(outcome)).is_ok());
        }
        let starved = orderly("a", &finish(Outcome::Starved)).unwrap_err();
        assert_eq!(starved.exit, Exit::Machine);
        assert_eq!(starved.what, "a ended at step 1,200: the disk is full");
        let failed = orderly("a", &finish(Outcome::Failed)).unwrap_err();
        assert_eq!(failed.exit, Exit::Training);
    }
}
