//! `llmtui report`: a run, a pipeline with its runs, or another program's log as one document. Only reads, and writes the document.

mod requested;

use super::exit::{Exit, Failure};
use super::progress::{adapter_words, trained_words};
use super::subject::{LogArgs, Subject, fold_log};
use super::{Context, run_ref};
use crate::base::files::{open_plain, read_small_text, write_atomic};
use crate::base::text::{one_line, shown};
use crate::diagnosis::{Diagnosis, diagnose};
use crate::pipeline::{PipelineDir, PipelineError};
use crate::plan::request::Request;
use crate::plan::target::of_run;
use crate::plan::{gpus, plan};
use crate::report::{
    HEAD, PipelineReport, Price, RunReport, html, is_report_of, markdown, picture, picture_png,
    pipeline_html, pipeline_markdown, pipeline_picture, pipeline_png,
};
use crate::run::index::{self, ResolveError};
use crate::run::{RunDir, RunState};
use crate::tasks;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Write a report of a run: curves, findings, samples, evaluations, data, machine and spec in one file
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui report shakespeare --to report.html
  llmtui report runs/… --to report.md
  llmtui report runs/… --to curves.svg
  llmtui report speedrun
  llmtui report outputs/runs/Nov24_10-00-00 --to tensorboard.html

The HTML file is self-contained (no network) and follows the reader's light or dark mode. An SVG or \
PNG file has the curves and heatmaps on one white page, for print and papers.")]
pub struct Args {
    /// A run or a pipeline: directory, id or part of an id; or another program's log (llmtui watch --list)
    #[arg(value_name = "RUN|LOG")]
    pub run: String,
    #[command(flatten)]
    pub log: LogArgs,
    /// Output file: .html, .md, .svg or .png; replaces an earlier report of the same run, no other file
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub to: PathBuf,
    /// Replace any existing file
    #[arg(long)]
    pub force: bool,
    /// Folder of evaluations (see llmtui eval --out)
    #[arg(long, value_name = "DIR", default_value = "evals")]
    pub evals: PathBuf,
    /// Cost of the machine in dollars per hour; default: a rough price for known GPUs
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub price: Option<f64>,
}

/// What is written, by the end of the file's name.
#[derive(Debug, Clone, Copy)]
enum Form {
    Html,
    Markdown,
    Picture,
    Pixels,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let kind = args.to.extension().unwrap_or_default().to_string_lossy();
    let form = match kind.to_lowercase().as_str() {
        "html" | "htm" => Form::Html,
        "md" => Form::Markdown,
        "svg" => Form::Picture,
        "png" => Form::Pixels,
        _ => {
            let what = format!(
                "{} is not an .html, .md, .svg or .png file",
                shown(&args.to)
            );
            let hint =
                "--to report.html; an .svg becomes a PDF by rsvg-convert, Inkscape or a browser";
            return Err(Failure::user_error(one_line(&what), hint).into());
        }
    };
    let bytes = match PipelineDir::resolve(&cx.runs_dir, &args.run) {
        Ok(dir) => {
            args.log.refuse_for("a pipeline")?;
            of_pipeline(&dir, args, form, cx)?
        }
        Err(PipelineError::Unknown { .. }) => {
            let told = match Subject::named(&args.run, &args.log, cx)? {
                Subject::Run(run) => RunData::of(&run, args, &args.evals, cx)?,
                Subject::Log(found) => RunData::of_log(fold_log(&found, &args.log)?, args),
            };
            replaces_nothing_else(args, &told.state.run)?;
            match form {
                Form::Html => html(&told.sheet()).into_bytes(),
                Form::Markdown => markdown(&told.sheet()).into_bytes(),
                Form::Picture => picture(&told.sheet()).into_bytes(),
                Form::Pixels => picture_png(&told.sheet()).map_err(too_large)?,
            }
        }
        Err(error) => return Err(super::pipeline::failed(&error).into()),
    };
    write_atomic(&args.to, &bytes).map_err(|e| Failure::not_written(&args.to, &e))?;
    outln!("{}", shown(&args.to))?;
    Ok(Exit::Done)
}

/// Refuses to overwrite a file that is not a report of this run.
fn replaces_nothing_else(args: &Args, id: &str) -> Result<(), Failure> {
    let to = &args.to;
    // A folder is refused where it is written.
    if args.force || to.symlink_metadata().is_err() || to.is_dir() {
        return Ok(());
    }
    let mut head = Vec::new();
    let read = open_plain(to).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    if read.is_ok() && is_report_of(id, &head) {
        return Ok(());
    }
    let what = format!("{} already exists and is not a report of {id}", shown(to));
    let hint = "name another file with --to, or replace it with --force";
    Err(Failure::user_error(one_line(&what), hint))
}

fn too_large(error: std::io::Error) -> Failure {
    Failure::user_error(error.to_string(), "--to report.svg has no such limit")
}

/// All runs of a pipeline in one document.
fn of_pipeline(
    dir: &PipelineDir,
    args: &Args,
    form: Form,
    cx: &Context,
) -> anyhow::Result<Vec<u8>> {
    let mut state = dir
        .state()
        .map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?;
    replaces_nothing_else(args, &state.id)?;
    // Evaluations of the pipeline lie in its folder.
    let own = dir.path().join("evals");
    let evals = if own.is_dir() { &own } else { &args.evals };
    let mut told = Vec::new();
    for stage in &mut state.stages {
        let Some(id) = &stage.run else {
            continue;
        };
        match index::resolve(&cx.runs_dir, id) {
            Ok(run) => told.push(RunData::of(&run, args, evals, cx)?),
            Err(ResolveError::Unknown { .. }) => {
                let (name, id) = (&stage.name, one_line(id));
                errln!("note: the run of stage {name} is gone: {id}");
                stage.message = "(its run is gone)".into();
            }
            Err(error) => return Err(run_ref::not_found(id, &error, cx).into()),
        }
    }
    let album = PipelineReport {
        state: &state,
        sheets: told.iter().map(RunData::sheet).collect(),
    };
    Ok(match form {
        Form::Html => pipeline_html(&album).into_bytes(),
        Form::Markdown => pipeline_markdown(&album).into_bytes(),
        Form::Picture => pipeline_picture(&album).into_bytes(),
        Form::Pixels => pipeline_png(&album).map_err(too_large)?,
    })
}

/// All that is known of a run.
struct RunData {
    state: RunState,
    diagnosis: Diagnosis,
    spec: String,
    asked: String,
    trained: Option<String>,
    predicted_bytes: Option<u64>,
    results: Vec<tasks::Kept>,
    price: Option<Price>,
}

impl RunData {
    fn of(run: &RunDir, args: &Args, evals: &Path, cx: &Context) -> anyhow::Result<RunData> {
        let mut state = run_ref::fold(run)?;
        if state.run.is_empty() {
            state.run = run.id().into();
        }
        let request = state.head.as_ref().and_then(of_run);
        let predicted_bytes = request.as_ref().map(|request| plan(request).p50_bytes());
        let results = tasks::kept(evals, &run.names(), &cx.env);
        let text = |path: PathBuf| read_small_text(&path, 1 << 20).unwrap_or_default();
        let (asked, spec) = (text(run.asked_path()), text(run.spec_path()));
        Ok(RunData {
            diagnosis: diagnose(&state),
            spec: requested::marked(&asked, &spec),
            asked: requested::read(&asked, &spec),
            trained: request
                .as_ref()
                .zip(state.head.as_ref())
                .and_then(|(request, head)| trained(request, head.n_params)),
            predicted_bytes,
            results: results
                .map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?,
            price: price(&state, args.price),
            state,
        })
    }

    /// Of a log: there is no spec, and evaluations here are of other runs.
    fn of_log(state: RunState, args: &Args) -> RunData {
        RunData {
            diagnosis: diagnose(&state),
            spec: String::new(),
            asked: String::new(),
            trained: None,
            predicted_bytes: None,
            results: Vec::new(),
            price: price(&state, args.price),
            state,
        }
    }

    fn sheet(&self) -> RunReport<'_> {
        RunReport {
            state: &self.state,
            diagnosis: &self.diagnosis,
            spec: self.spec.clone(),
            asked: self.asked.clone(),
            trained: self.trained.clone(),
            predicted_bytes: self.predicted_bytes,
            results: self.results.clone(),
            price: self.price.clone(),
        }
    }
}

fn dollars(text: &str) -> Result<f64, String> {
    let price = text.trim_start_matches('$').parse();
    let price = price
        .ok()
        .filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "not a price: dollars per hour, such as 2.50".into())
}

/// What was said, else what renting the run's GPUs costs by the table of plans.
fn price(state: &RunState, said: Option<f64>) -> Option<Price> {
    if let Some(dollars) = said {
        let source = String::new();
        return Some(Price { dollars, source });
    }
    let gpus = state.machine.as_ref()?["gpus"].as_array()?;
    let known = gpus
        .iter()
        .map(|gpu| gpus::find(gpu["name"].as_str()?)?.price);
    let known: Vec<gpus::Price> = known.collect::<Option<_>>()?;
    let first = known.first()?;
    Some(Price {
        dollars: known.iter().map(|price| price.dollars()).sum(),
        source: format!("{} GPU, {}", known.len(), first.words()),
    })
}

/// `, of which 2.44M train (1.78 %): LoRA rank 8 (all)`, of all parameters, those of adapters among them; nothing where all
/// weights train.
fn trained(request: &Request, n_params: u64) -> Option<String> {
    let words = trained_words(request.n_trainable(), n_params);
    let adapter = adapter_words(request).map_or_else(String::new, |words| format!(": {words}"));
    (!words.is_empty()).then(|| words + &adapter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{models, reference_request};

    /// The share was of the base model, beside a number that counts the adapters.
    #[test]
    fn what_trains_is_a_share_of_the_parameters_that_are_shown() {
        let mut request = reference_request(models::find("gpt2").unwrap());
        request.frozen = vec!["mlp".into()];
        let all = 2 * request.n_trainable();
        let words = trained(&request, all).unwrap();
        assert!(words.ends_with(" train (50.00 %)"), "{words}");
        assert_eq!(trained(&request, request.n_trainable()), None);
    }
}
