//! `llmtui attach`: watch a live run, or open a finished one.

use super::{
    Context,
    exit::{Exit, Failure},
    progress::Progress,
    run_ref, workbench,
};
use crate::link::{Incoming, open};
use crate::run::RunDir;
use crate::wire::encode;
use std::io::Write;

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
    let run = run_ref::find(args.run.as_deref(), cx)?;
    let terminal = cx.stdin_is_terminal && cx.stdout_is_terminal;
    if terminal && !args.headless && !args.json {
        return workbench::open(crate::ui::StartView::Run(run), cx);
    }
    follow(&run, args.json, cx)
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
