//! `llmtui attach`: watch a live run, or open a finished one.

use super::{
    Context,
    exit::{Exit, Failure},
    progress::Progress,
    run_ref, workbench,
};
use crate::base::text::shown;
use crate::link::{Incoming, open};
use crate::run::{RunDir, index};
use crate::wire::encode;
use std::io::Write;
use std::path::Path;

/// Open a run in the workbench: live if it is running, otherwise from its log
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run's directory, name or unambiguous prefix; default: the newest live run
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Print progress lines instead of opening the workbench
    #[arg(long)]
    pub headless: bool,
    /// Print the run's events, one JSON object per line (implies --headless)
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    let run = match (&args.run, index::newest_live(&cx.runs_dir)?) {
        (None, None) => return Err(none_live(&cx.runs_dir)?.into()),
        _ => run_ref::find(args.run.as_deref(), cx)?,
    };
    let terminal = cx.stdin_is_terminal && cx.stdout_is_terminal;
    if terminal && !args.headless && !args.json {
        return workbench::open(crate::ui::StartView::Run(run), cx);
    }
    follow(&run, args.json, cx)
}

/// No run is named and none is live: the newest one can be looked at.
fn none_live(runs_dir: &Path) -> anyhow::Result<Failure> {
    let what = format!("no live run in {}", shown(runs_dir));
    let (runs, _unreadable) = index::list(runs_dir)?;
    Ok(match runs.first() {
        Some(run) => {
            let what = format!(
                "{what}; the newest run is {}, {}",
                run.id,
                run.status.word()
            );
            Failure::user_error(what, run_ref::command("attach", &run.path, runs_dir))
        }
        None => Failure::user_error(what, "llmtui runs"),
    })
}

/// Prints a run's events from first to last. Leaving does not affect the run.
pub fn follow(run: &RunDir, json: bool, cx: &Context) -> anyhow::Result<Exit> {
    super::run_ref::check_log(run)?;
    let mut link = open(run, &cx.env)?;
    let mut out = std::io::stdout().lock();
    let mut progress = Progress::new();
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) => {
                super::out::warn(&envelope);
                let lines = progress.lines_for(&envelope);
                if json {
                    out.write_all(encode(&*envelope).as_bytes())?;
                } else {
                    for line in lines {
                        writeln!(out, "{}", cx.words(line))?;
                    }
                }
            }
            Incoming::CaughtUp => {}
            Incoming::Closed(Some(why)) => {
                let hint = run_ref::command("train --resume", run.path(), &cx.runs_dir);
                return Err(Failure::machine(why, hint).into());
            }
            Incoming::Closed(None) => break,
        }
    }
    // Of a run that was deleted there is nothing to come back to.
    if !json && run.path().exists() {
        for line in progress.next_steps(run.path(), &cx.runs_dir) {
            writeln!(out, "{}", cx.words(line))?;
        }
    }
    // If the watched run failed, so does this command; a run without a final event was killed.
    let finished = progress.state().finished.as_ref();
    Ok(finished.map_or(Exit::Machine, |f| f.outcome.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    #[test]
    fn where_no_run_is_live_the_newest_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(none_live(dir.path()).unwrap().hint, "llmtui runs");
        let run = RunDir::create(dir.path(), "a", "{}", "", &SystemClock::new()).unwrap();
        let told = none_live(dir.path()).unwrap();
        let newest = format!("the newest run is {}", run.folder());
        assert!(told.what.contains(&newest), "{told:?}");
        assert!(told.hint.starts_with("llmtui attach "), "{told:?}");
    }
}
