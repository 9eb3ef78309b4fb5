//! `llmtui diagnose`: the rules over a run's log, live or finished. Only reads.

use super::exit::{Exit, Failure};
use super::{Context, finding, run_ref};
use crate::diagnosis::{Diagnosis, diagnose};
use crate::run::{RunDir, index};
use std::io::Write;

/// Judge a run: does it learn, has it diverged, does it overfit; with evidence, cause and fix
///
/// Reads the run's log, live or finished. Exit codes: 0 nothing fails, 4 something fails.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run: its directory, its id, a part of it, or its name (the newest of that name)
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Print the findings as JSON: [{id, title, status, place, evidence, signals, cause, fix, expected, source}]
    #[arg(long)]
    pub json: bool,
}

/// Columns of a title.
const TITLE: usize = 14;

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let state = run_ref::fold(&find(&args.run, cx)?)?;
    let diagnosis = diagnose(&state);
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = super::out::json(&diagnosis.findings)?;
        writeln!(out, "{text}")?;
    } else {
        out.write_all(table(&diagnosis).as_bytes())?;
    }
    Ok(match diagnosis.failed() {
        true => Exit::Training,
        false => Exit::Done,
    })
}

/// By path or id, else the newest run of that name.
fn find(word: &str, cx: &Context) -> anyhow::Result<RunDir> {
    let error = match index::resolve(&cx.runs_dir, word) {
        Ok(run) => return Ok(run),
        Err(error) => error,
    };
    let (runs, _) = index::list(&cx.runs_dir)?;
    match runs.iter().find(|run| run.name == word) {
        Some(run) => Ok(RunDir::open(&run.path)?),
        None => Err(Failure::yours(error.to_string(), "llmtui runs").into()),
    }
}

/// ```text
/// LEARNING  train loss 4.15 → 1.76, val 1.88
///
/// ok       preflight       12 checks passed
/// ```
pub(super) fn table(diagnosis: &Diagnosis) -> String {
    let mut text = format!("{}\n", verdict_line(diagnosis));
    if !diagnosis.findings.is_empty() {
        text.push('\n');
    }
    for found in &diagnosis.findings {
        text.push_str(&finding::rows(found, TITLE, ""));
    }
    text
}

/// The verdict in one line, for this verb and for the end of a headless run.
pub(super) fn verdict_line(diagnosis: &Diagnosis) -> String {
    format!("{}  {}", diagnosis.verdict.word(), diagnosis.summary)
}
