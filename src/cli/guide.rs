//! `llmtui guide`: short pages for the questions that come up, filled with the facts of this machine, a spec and a run.

use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::text::{one_line, wrap};
use crate::guide::{self, Asked, Page, Shown, Subject, Trainer};
use crate::hardware::Summary;
use crate::plan::calibration::Machine;
use crate::plan::target;
use crate::plan::{Device, Plan, gpus, plan, probe};
use crate::run::{RunState, index};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;

/// Answer a question: can this machine train it, which method, why unstable, how much data …
///
/// Without a question: lists them. Pages use the facts of this machine, of --spec and of --run (default: the newest
/// run).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui guide
  llmtui guide why is my loss spiking
  llmtui guide can this machine train a 7B model
  llmtui guide fit --spec size-1b
  llmtui guide overfitting --run shakespeare")]
pub struct Args {
    /// Your question, or a page's name
    #[arg(value_name = "QUESTION")]
    pub question: Vec<String>,
    /// Use the facts of this run: directory, id or part of an id. Default: the newest
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Use the facts of this spec: a preset, a file or a model. Default: the run's
    #[arg(long, value_name = "SPEC")]
    pub spec: Option<String>,
    /// Print JSON: the list of pages, or one page with its text
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    if args.question.is_empty() {
        let pages = guide::pages();
        let text = match args.json {
            true => format!(
                "{}\n",
                super::out::json(&pages.iter().map(head).collect::<Vec<_>>())?
            ),
            false => cx.words(contents(&pages)),
        };
        out.write_all(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    let question = args.question.join(" ");
    let found = guide::find(&question);
    let page = found.first().ok_or_else(|| no_page(&question))?;
    let state = state(args, cx)?;
    let here = crate::hardware::provider(cx.hardware.as_deref(), &cx.env)?.machine();
    let asked = asked(&question, &here.summary(), cx);
    // Facts of the newest run's model answer no question about another one.
    let plan = match asked.is_some() && args.spec.is_none() {
        true => None,
        false => planned(args, state.as_ref(), &here.summary(), cx)?,
    };
    let subject = Subject {
        machine: Some(here.in_one_line()),
        plan,
        run: state.as_ref(),
        asked,
    };
    let shown = page.fill(&subject);
    let text = if args.json {
        let mut value = head(page);
        value["text"] = json!(shown.text);
        value["missing"] = json!(shown.missing);
        format!("{}\n", super::out::json(&value)?)
    } else {
        cx.words(page_words(
            page,
            &shown,
            cx.columns().unwrap_or(100).min(110),
        ))
    };
    out.write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// A question that no page answers, with the pages that there are.
fn no_page(question: &str) -> Failure {
    let known: Vec<&str> = guide::pages().iter().map(|page| page.id).collect();
    let pages = format!(
        "pages: {}; llmtui guide lists their questions",
        known.join(", ")
    );
    let hint = match guide::verb(question) {
        Some(verb) => format!("{verb}; {pages}"),
        None => pages,
    };
    Failure::user_error(format!("no page matches `{}`", one_line(question)), hint)
}

/// A page, filled in, in lines of at most `width` columns.
fn page_words(page: &Page, shown: &Shown, width: usize) -> String {
    let mut text = format!("{}\n\n", page.title);
    for line in guide::plain(&shown.text).lines() {
        // What follows a `- ` is indented below it.
        let (mark, words) = guide::item(line);
        let rest = " ".repeat(mark.len());
        for line in wrap(words, width, mark, &rest) {
            let _ = writeln!(text, "{line}");
        }
    }
    if !shown.missing.is_empty() {
        let _ = write!(
            text,
            "\nMore detail with {}: --run RUN, --spec SPEC\n",
            shown.missing.join(" and ")
        );
    }
    let _ = write!(text, "\nSee also: llmtui guide {}\n", page.see.join(" | "));
    text
}

fn head(page: &Page) -> serde_json::Value {
    json!({"id": page.id, "question": page.title, "see": page.see, "rules": page.rules})
}

fn contents(pages: &[Page]) -> String {
    let mut text = String::from("Questions: llmtui guide NAME, or in your own words\n\n");
    for page in pages {
        let _ = writeln!(text, "  {:<12} {}", page.id, page.title);
    }
    text
}

/// The named run, or the newest one; none where there is no run.
fn state(args: &Args, cx: &Context) -> anyhow::Result<Option<RunState>> {
    if let Some(word) = &args.run {
        return Ok(Some(run_ref::fold(&run_ref::named(word, cx)?)?));
    }
    let runs = index::list(&cx.runs_dir)
        .map(|(runs, _)| runs)
        .unwrap_or_default();
    let newest = runs
        .first()
        .and_then(|run| crate::run::RunDir::open(&run.path).ok());
    Ok(newest.and_then(|run| run_ref::fold(&run).ok()))
}

/// The model that the question names, planned for the first GPU of the machine, or for its processor.
fn asked(question: &str, here: &Summary, cx: &Context) -> Option<Asked> {
    if let Some(gpu) = here.gpus.first() {
        let known = gpus::find(&gpu.name).map(Device::of);
        let device = Device {
            name: one_line(&gpu.name),
            memory: Some(gpu.memory_bytes),
            ..known.unwrap_or_else(|| Device::limit("", None))
        };
        return Asked::of(question, Trainer::Gpu, &device, None);
    }
    let mut device = Device::limit("This machine", Some(here.ram_bytes));
    if cx.hardware.is_none() {
        let speed = Machine::load(&cx.env).speed;
        device.peak_flops = speed.and_then(|speed| speed.of("f32"));
    }
    Asked::of(question, Trainer::Processor, &device, Some(probe::SHARE))
}

/// The plan of `--spec`, or of the run.
fn planned(
    args: &Args,
    state: Option<&RunState>,
    here: &Summary,
    cx: &Context,
) -> anyhow::Result<Option<(String, Plan)>> {
    let named = |word: &String| -> anyhow::Result<_> {
        let request = target::resolve(word, &[], &cx.spec_sources()).map_err(|e| {
            let hint = e.hint();
            Failure::user_error(e.to_string(), hint)
        })?;
        Ok((one_line(word), request))
    };
    let of_run = || {
        let head = state?.head.as_ref()?;
        Some((head.name.clone(), target::of_run(head)?))
    };
    let Some((name, mut request)) = args.spec.as_ref().map(named).transpose()?.or_else(of_run)
    else {
        return Ok(None);
    };
    // The speed of a recorded machine is unknown.
    let machine = match cx.hardware {
        Some(_) => Machine {
            memory: Some(here.ram_bytes),
            ..Machine::default()
        },
        None => Machine::load(&cx.env),
    };
    machine.calibrate(&mut request);
    request.assume();
    Ok(Some((name, plan(&request))))
}
