//! `llmtui rm`: delete runs with their checkpoints.

use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::human;
use crate::base::text::one_line;
use crate::run::{RunDir, index};
use std::io::{BufRead, Write};

/// Delete runs that are not live, with their checkpoints; asks first
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directories, ids or names of runs
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    // All are looked up before any is deleted: a typo deletes nothing.
    let named = |word: &String| {
        index::resolve_one(&cx.runs_dir, word)
            .map_err(|e| Failure::yours(e.to_string(), "llmtui runs"))
    };
    let mut runs = args.runs.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by(|a, b| a.path().cmp(b.path()));
    runs.dedup();
    for run in &runs {
        let hint = run_ref::command("stop", run.path(), &cx.runs_dir);
        run.check_idle()
            .map_err(|e| Failure::yours(e.to_string(), hint))?;
    }
    let mut out = std::io::stdout().lock();
    if !args.yes {
        if !cx.stdin_is_terminal {
            let what = "rm asks before it deletes, and there is no terminal to ask at";
            return Err(Failure::yours(what, "llmtui rm --yes RUN").into());
        }
        runs.iter()
            .try_for_each(|run| writeln!(out, "{}", describe(run)))?;
        write!(out, "delete? [y/N] ")?;
        out.flush()?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        if !matches!(line.trim(), "y" | "Y" | "yes") {
            return Ok(Exit::Done);
        }
    }
    for run in &runs {
        run.remove()?;
        writeln!(out, "deleted {}", one_line(&run.folder()))?;
    }
    Ok(Exit::Done)
}

/// `2026-11-21-1422-shakespeare-k3qf: 3 checkpoints, 29.1 MiB`
fn describe(run: &RunDir) -> String {
    let n = run.checkpoints().len();
    let checkpoints = if n == 1 { "checkpoint" } else { "checkpoints" };
    let size = human::bytes(super::gc::size(run.path()));
    format!("{}: {n} {checkpoints}, {size}", one_line(&run.folder()))
}
