//! `llmtui report`: a run as one document. Only reads, and writes the document.

use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::files::{read_small_text, write_atomic};
use crate::base::text::one_line;
use crate::diagnosis::diagnose;
use crate::plan::plan;
use crate::plan::target::of_run;
use crate::report::{Sheet, html, markdown};
use crate::run::{RunDir, RunState};
use crate::spec;
use crate::tasks;
use std::path::PathBuf;

/// Write a run down: curves, findings, samples, evaluations, data, machine and spec in one file
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui report shakespeare --to report.html
  llmtui report runs/… --to report.md

The HTML file holds its pictures and its style, fetches nothing, and is light or dark as the reader's system is.")]
pub struct Args {
    /// A run: its directory, its id or a part of it
    #[arg(value_name = "RUN")]
    pub run: String,
    /// The file to write, .html or .md; one that is there is replaced
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub to: PathBuf,
    /// Folder of evaluations (see llmtui eval --out)
    #[arg(long, value_name = "DIR", default_value = "evals")]
    pub evals: PathBuf,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let kind = args.to.extension().unwrap_or_default().to_string_lossy();
    let write = match kind.to_lowercase().as_str() {
        "html" | "htm" => html,
        "md" => markdown,
        _ => {
            let what = format!("{} is neither .html nor .md", args.to.display());
            return Err(Failure::yours(one_line(&what), "--to report.html").into());
        }
    };
    let run = run_ref::named(&args.run, cx)?;
    let state = run_ref::fold(&run)?;
    let diagnosis = diagnose(&state);
    let (spec, predicted_bytes) = spec_text(&run, &state);
    let asked = read_small_text(&run.asked_path(), 1 << 20).unwrap_or_default();
    let config_dir = cx.env.config_dir.as_deref();
    let results = tasks::kept(&args.evals, run.id(), config_dir);
    let sheet = Sheet {
        state: &state,
        diagnosis: &diagnosis,
        spec,
        asked,
        predicted_bytes,
        results: results.map_err(|e| Failure::yours(one_line(&e.to_string()), e.hint()))?,
    };
    write_atomic(&args.to, write(&sheet).as_bytes()).map_err(|e| {
        let what = format!("{}: {e}", args.to.display());
        Failure::machine(one_line(&what), "check the folder and the room there")
    })?;
    say!("{}", args.to.display())?;
    Ok(Exit::Done)
}

/// The resolved spec, and the memory that the plan gives it. Of a spec that this program cannot read the text alone.
fn spec_text(run: &RunDir, state: &RunState) -> (String, Option<u64>) {
    let text = read_small_text(&run.spec_path(), 1 << 20).unwrap_or_default();
    let predicted = state.head.as_ref().and_then(|head| {
        let request = of_run(&head.spec, head.vocab_size, head.epoch_tokens)?;
        Some(plan(&request).p50_bytes())
    });
    (with_origins(run, &text).unwrap_or(text), predicted)
}

/// Beside each value of the spec whether the request said it.
fn with_origins(run: &RunDir, text: &str) -> Option<String> {
    let asked = read_small_text(&run.asked_path(), 1 << 20).ok()?;
    let asked = spec::yaml::key_lines(&asked);
    let by_line: std::collections::HashMap<usize, String> = spec::yaml::key_lines(text)
        .into_iter()
        .map(|(path, line)| (line, path))
        .collect();
    let marked = text.lines().enumerate().map(|(at, line)| {
        let said = by_line
            .get(&(at + 1))
            .is_some_and(|path| asked.contains_key(path));
        match said && !line.trim_end().ends_with(':') {
            true => format!("{line}  # asked for\n"),
            false => format!("{line}\n"),
        }
    });
    Some(marked.collect())
}
