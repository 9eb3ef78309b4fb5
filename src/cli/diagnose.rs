//! `llmtui diagnose`: the rules over the log of a run, live or finished, ours or another program's. Only reads.

use super::exit::{Exit, Failure};
use super::subject::{LogArgs, Subject, fold_log};
use super::{Context, finding, run_ref};
use crate::base::finding::Finding;
use crate::base::text::{one_line, wrap};
use crate::data::DataEnv;
use crate::diagnosis::{Diagnosis, diagnose};
use crate::engine::causes::{BUDGET, Cause, test_all};
use crate::run::RunDir;
use std::io::Write;
use std::time::Duration;

/// Diagnose a run: learning, diverged or overfitting; with evidence, cause and fix
///
/// Reads the run's log, live or finished, or the log of another program (llmtui watch --list). --probe also tests causes: it
/// inspects the run's past batches and how far blocks have moved, and trains copies of the latest checkpoint for some steps at
/// other learning rates. Exit codes: 0 no failures, 4 a finding fails.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui diagnose quickstart
  llmtui diagnose my-run --probe
  llmtui diagnose outputs/checkpoint-500/trainer_state.json
  llmtui diagnose my-run --probe --probe-seconds 300 --json")]
pub struct Args {
    /// A run: its directory, its id, a part of it, or its name (the newest of that name); or another program's log
    #[arg(value_name = "RUN|LOG")]
    pub run: String,
    #[command(flatten)]
    pub log: LogArgs,
    /// Print the findings as JSON, the first with id `verdict`: [{id, title, status, place, evidence, signals, cause, fix,
    /// expected, source}]
    #[arg(long)]
    pub json: bool,
    /// Also test causes on the run's data and on copies of its weights: takes about a minute, and as much memory as training
    #[arg(long)]
    pub probe: bool,
    /// Time limit for training copies with --probe, in seconds
    #[arg(long, value_name = "N", requires = "probe", default_value_t = BUDGET.as_secs(), value_parser = clap::value_parser!(u64).range(5..=86_400))]
    pub probe_seconds: u64,
}

/// Columns of a title.
const TITLE: usize = 14;

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let subject = Subject::named(&args.run, &args.log, cx)?;
    // Asked first: an engine that ends in between has then said so in its log.
    let alive = match &subject {
        Subject::Run(run) => run.is_alive(),
        Subject::Log(_) => true,
    };
    let mut state = match &subject {
        Subject::Run(run) => run_ref::fold(run)?,
        Subject::Log(_) if args.probe => {
            let what = "--probe trains copies of a run's weights on its data; a log has neither";
            return Err(Failure::user_error(what, "leave --probe out").into());
        }
        Subject::Log(found) => fold_log(found, &args.log)?,
    };
    if !alive {
        state.orphan();
    }
    let mut diagnosis = diagnose(&state);
    if let Subject::Run(run) = &subject
        && let Some(crashed) = diagnosis.findings.iter_mut().find(|f| f.id == "engine")
    {
        let resume = run_ref::command("resume", run.path(), &cx.runs_dir);
        crashed.fix = format!("{}: {resume}", crashed.fix);
    }
    let rules = diagnosis.findings.len();
    if let Subject::Run(run) = &subject
        && args.probe
    {
        diagnosis.findings.extend(probe(run, args, cx)?);
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = super::out::json(&diagnosis.list())?;
        writeln!(out, "{text}")?;
    } else {
        let tested = diagnosis.findings.split_off(rules);
        out.write_all(cx.words(table(&diagnosis, cx.columns())).as_bytes())?;
        if args.probe {
            writeln!(out, "\ntested")?;
        }
        for found in &tested {
            let rows = finding::rows_in(found, TITLE, "", cx.columns());
            out.write_all(cx.words(rows).as_bytes())?;
        }
        diagnosis.findings.extend(tested);
    }
    Ok(match diagnosis.failed() {
        true => Exit::Training,
        false => Exit::Done,
    })
}

/// The tests of causes, reported one by one on standard error.
fn probe(run: &RunDir, args: &Args, cx: &Context) -> anyhow::Result<Vec<Finding>> {
    let spec = run_ref::spec_of(run)?;
    super::memory::check(&spec, &cx.env)?;
    let data = spec
        .open_data(&DataEnv::from_env(&cx.env))
        .map_err(|e| Failure::data(&e))?;
    let budget = Duration::from_secs(args.probe_seconds);
    let mut on_begin = |cause: &Cause| errln!("testing: {}", cause.title);
    Ok(test_all(
        (run, &spec, &data),
        &cx.clock,
        budget,
        &mut on_begin,
    )?)
}

/// ```text
/// LEARNING  train loss 4.15 → 1.76, val 1.88
///
/// ok       preflight       12 checks passed
/// ```
pub(super) fn table(diagnosis: &Diagnosis, columns: Option<usize>) -> String {
    let line = one_line(&verdict_line(diagnosis));
    let mut text = match columns {
        Some(columns) => wrap(&line, columns, "", "  ").join("\n"),
        None => line,
    };
    text.push('\n');
    if !diagnosis.findings.is_empty() {
        text.push('\n');
    }
    for found in &diagnosis.findings {
        text.push_str(&finding::rows_in(found, TITLE, "", columns));
    }
    text
}

/// The verdict in one line, for this verb and for the end of a headless run.
pub(super) fn verdict_line(diagnosis: &Diagnosis) -> String {
    format!("{}  {}", diagnosis.verdict.word(), diagnosis.summary)
}
