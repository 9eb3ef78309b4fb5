//! `llmtui stop`: end a live run so that it can be resumed.

use super::Context;
use super::control::Controlled;
use super::exit::{Exit, Failure};
use super::run_ref;
use crate::base::human;
use crate::base::text::one_line;
use crate::run::state::Finish;
use crate::wire::{Command, Outcome, StopWhen};
use std::io::Write;
use std::path::Path;

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
    let logs = run_ref::command("logs", run.run.path(), &cx.runs_dir);
    orderly(&id, &finish, &logs)?;
    let kept = run.state.checkpoints.last().map(|kept| kept.step);
    let mut lines = stopped(&id, &finish, kept, run.run.path(), &cx.runs_dir);
    lines.extend(run_ref::of_a_pipeline(&run.run, &cx.runs_dir));
    writeln!(
        std::io::stdout(),
        "{}",
        lines.join(
            "
"
        )
    )?;
    Ok(Exit::Done)
}

/// Where a run stopped, and how it goes on from the checkpoint of step `kept`. One that was faster has nothing left to do.
pub fn stopped(
    id: &str,
    finish: &Finish,
    kept: Option<u64>,
    run: &Path,
    runs_dir: &Path,
) -> Vec<String> {
    let step = human::grouped(finish.step);
    if finish.outcome == Outcome::Completed {
        return vec![format!("{id} completed all its steps at step {step}")];
    }
    let at = format!("{id} stopped at step {step}");
    let on = resume_hint(kept, run, runs_dir);
    [at].into_iter().chain(on).collect()
}

/// `llmtui resume … continues from step 500`
pub fn resume_hint(kept: Option<u64>, run: &Path, runs_dir: &Path) -> Option<String> {
    let step = human::grouped(kept?);
    let resume = run_ref::command("resume", run, runs_dir);
    Some(format!("{resume} continues from step {step}"))
}

/// An error where the run ended otherwise than by the stop: its end was not saved, or it failed meanwhile. `logs` is the command
/// that shows why.
pub fn orderly(id: &str, finish: &Finish, logs: &str) -> Result<(), Failure> {
    match Exit::from(finish.outcome) {
        Exit::Done => Ok(()),
        exit => Err(Failure {
            exit,
            what: format!(
                "{id} ended at step {}: {}",
                human::grouped(finish.step),
                one_line(&finish.message)
            ),
            hint: logs.into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;

    fn finish(outcome: Outcome) -> Finish {
        Finish {
            t: UnixMillis(0),
            outcome,
            step: 1_200,
            val_loss: None,
            best: None,
            train_loss: None,
            seconds: 1.0,
            message: "the disk is full".into(),
        }
    }

    #[test]
    fn a_stopped_run_goes_on_and_a_finished_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("a");
        let lines = |outcome, kept| stopped("a", &finish(outcome), kept, &run, dir.path());
        let told = lines(Outcome::Stopped, Some(1_000));
        assert_eq!(told[0], "a stopped at step 1,200");
        assert!(told[1].starts_with("llmtui resume a"), "{told:?}");
        assert!(told[1].ends_with("continues from step 1,000"), "{told:?}");
        assert_eq!(lines(Outcome::Stopped, None).len(), 1);
        let told = lines(Outcome::Completed, Some(1_200));
        assert_eq!(told, ["a completed all its steps at step 1,200"]);
    }

    #[test]
    fn a_stop_whose_end_was_not_saved_is_no_success() {
        for outcome in [Outcome::Stopped, Outcome::Completed] {
            assert!(orderly("a", &finish(outcome), "").is_ok());
        }
        let starved = orderly("a", &finish(Outcome::Starved), "llmtui logs a").unwrap_err();
        assert_eq!(
            (starved.exit, &*starved.hint),
            (Exit::Machine, "llmtui logs a")
        );
        assert_eq!(starved.what, "a ended at step 1,200: the disk is full");
        let failed = orderly("a", &finish(Outcome::Failed), "").unwrap_err();
        assert_eq!(failed.exit, Exit::Training);
    }
}
