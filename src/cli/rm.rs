//! `llmtui rm`: delete runs with their checkpoints.

use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::human;
use crate::base::text::one_line;
use crate::run::index::RunSummary;
use crate::run::lineage::find_parent;
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
        let (all, _unreadable) = index::list(&cx.runs_dir)?;
        for run in &runs {
            writeln!(out, "{}", describe(run))?;
            let children = children(run, &runs, &all);
            if !children.is_empty() {
                writeln!(out, "  from it came {}, which stay", children.join(", "))?;
            }
        }
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

/// The runs that began from a run and stay: one whose adapter stands on its checkpoint does not open without it.
fn children(run: &RunDir, gone: &[RunDir], all: &[RunSummary]) -> Vec<String> {
    let stays = |child: &&RunSummary| !gone.iter().any(|run| run.folder() == child.id);
    let of_it = |child: &&RunSummary| {
        let parent = child.parent.as_ref();
        let parent = parent.and_then(|parent| find_parent(parent, all));
        parent.is_some_and(|parent| parent.id == run.folder())
    };
    let children = all.iter().filter(stays).filter(of_it);
    children.map(|child| one_line(&child.id)).collect()
}

/// `2026-11-21-1422-shakespeare-k3qf: 3 checkpoints, 29.1 MiB`
fn describe(run: &RunDir) -> String {
    let n = run.checkpoints().len();
    let checkpoints = if n == 1 { "checkpoint" } else { "checkpoints" };
    let size = human::bytes(super::gc::size(run.path()));
    format!("{}: {n} {checkpoints}, {size}", one_line(&run.folder()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;
    use crate::run::Parent;

    #[test]
    fn a_run_that_is_deleted_names_those_that_came_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let sft = RunDir::create(dir.path(), "sft", "{}", "", &clock).unwrap();
        let parent = Parent {
            run: sft.id().into(),
            step: 24,
        };
        let child = |name: &str| {
            let run = RunDir::create(dir.path(), name, "{}", "", &clock).unwrap();
            let mut header = run.header().unwrap();
            header.parent = Some(parent.clone());
            std::fs::write(run.header_path(), serde_json::to_vec(&header).unwrap()).unwrap();
            run
        };
        let (dpo, other) = (child("dpo"), child("kto"));
        let (all, _) = index::list(dir.path()).unwrap();
        let told = children(&sft, &[sft.clone(), other], &all);
        assert_eq!(told, [dpo.folder()]);
        assert!(children(&dpo, std::slice::from_ref(&dpo), &all).is_empty());
    }
}
