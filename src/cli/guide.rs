//! `llmtui guide`: answers to the questions that come up, filled with the facts of this machine, a spec and a run.

mod metrics;

use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::near::did_you_mean;
use crate::base::text::{one_line, wrap};
use crate::guide::{self, Asked, Found, Hit, Page, Shown, Subject, Trainer};
use crate::hardware::Summary;
use crate::plan::calibration::Machine;
use crate::plan::target;
use crate::plan::{Device, Plan, gpus, plan, probe};
use crate::run::{RunState, index};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;

/// Answer a question: can this machine train it, which method, why unstable, how much data …
///
/// Also a symptom (the model never stops), a rule of the diagnosis, a metric, a setting: what it means, how to check, what to do.
/// Without a question: lists pages and symptoms. Pages use the facts of this machine, of --spec and of --run (default: the
/// newest run).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui guide
  llmtui guide why is my loss spiking
  llmtui guide the model never stops
  llmtui guide what is lora.alpha
  llmtui guide can I do grpo on an 8b model with 24 GB
  llmtui guide fit --spec size-1b
  llmtui guide overfitting --run shakespeare")]
pub struct Args {
    /// Your question, or the name of a page, a symptom, a rule, a metric or a setting
    #[arg(value_name = "QUESTION")]
    pub question: Vec<String>,
    /// Use the facts of this run: directory, id or part of an id. Default: the newest
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Use the facts of this spec: a preset, a file or a model. Default: the run's
    #[arg(long, value_name = "SPEC")]
    pub spec: Option<String>,
    /// Print JSON: all pages and symptoms, or the best answer with its text and the others
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    if args.question.is_empty() {
        let text = match args.json {
            true => format!("{}\n", super::out::json(&contents_json())?),
            false => cx.words(contents()),
        };
        out.write_all(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    let question = args.question.join(" ");
    let found = guide::ask(&question, &metrics::of_the_engine());
    let Some(best) = found.hits.first() else {
        return Err(no_answer(&question, &found).into());
    };
    let shown = match best {
        Hit::Page(page) => Some(filled(page, &question, args, cx)?),
        _ => None,
    };
    let text = match args.json {
        true => format!(
            "{}\n",
            super::out::json(&answer_json(&found, shown.as_ref()))?
        ),
        false => {
            let width = cx.columns().unwrap_or(100).min(110);
            cx.words(answer(&found, shown.as_ref(), width))
        }
    };
    out.write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// A page with the facts of machine, spec and run.
fn filled(page: &Page, question: &str, args: &Args, cx: &Context) -> anyhow::Result<Shown> {
    let state = state(args, cx)?;
    let here = crate::hardware::provider(cx.hardware.as_deref(), &cx.env)?.machine();
    let asked = asked(question, &here.summary(), cx);
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
    Ok(page.fill(&subject))
}

/// A question that nothing answers: what it may have meant.
fn no_answer(question: &str, found: &Found) -> Failure {
    let guesses = found.guesses.iter().map(Hit::id);
    let near: Vec<&str> = found.near.as_deref().into_iter().chain(guesses).collect();
    let list = "llmtui guide lists pages and symptoms";
    let hint = match near.is_empty() {
        true => list.into(),
        false => format!("{} {list}", did_you_mean(near.join(", "))),
    };
    Failure::user_error(format!("nothing answers `{}`", one_line(question)), hint)
}

/// The answers that are shown as a whole, in lines of at most `width` columns, and the names of the others.
fn answer(found: &Found, shown: Option<&Shown>, width: usize) -> String {
    let mut text = String::new();
    for (at, hit) in found.hits.iter().take(found.whole).enumerate() {
        if at > 0 {
            text.push('\n');
        }
        let body = match (hit, shown) {
            (Hit::Page(_), Some(shown)) => shown.text.clone(),
            _ => hit.text(),
        };
        let _ = write!(text, "{}\n\n", hit.title());
        for line in guide::plain(&body).lines() {
            // What follows a `- ` is indented below it.
            let (mark, words) = guide::item(line);
            let rest = " ".repeat(mark.len());
            for line in wrap(words, width, mark, &rest) {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    if let Some(missing) = shown.map(|shown| &shown.missing).filter(|m| !m.is_empty()) {
        let _ = write!(
            text,
            "\nMore detail with {}: --run RUN, --spec SPEC\n",
            missing.join(" and ")
        );
    }
    let others: Vec<String> = others(found)
        .map(|hit| named(&hit.title(), hit.id()))
        .collect();
    if !others.is_empty() {
        text.push_str("\nSee also:\n");
        text.extend(others);
    }
    if let Some(Hit::Page(page)) = found.hits.first() {
        let _ = write!(text, "\nPages: llmtui guide {}\n", page.see.join(" | "));
    }
    text
}

/// What is only named.
fn others(found: &Found) -> impl Iterator<Item = &Hit> {
    found.hits.iter().skip(found.whole)
}

/// A row of a list: what to ask for it, and what it is.
fn named(title: &str, id: &str) -> String {
    format!("  {id:<24} {title}\n")
}

fn answer_json(found: &Found, shown: Option<&Shown>) -> Value {
    let mut answers = found.hits.iter().take(found.whole).map(|hit| {
        let mut value = match hit {
            Hit::Page(page) => head(page),
            Hit::Entry(entry) => json!({
                "id": entry.id, "title": entry.title, "area": entry.area, "rules": entry.rules,
                "cause": entry.cause, "check": entry.check, "fix": entry.fix,
            }),
            hit => json!({"id": hit.id(), "title": hit.title()}),
        };
        value["kind"] = json!(hit.kind());
        value["text"] = json!(hit.text());
        value
    });
    let mut best = answers.next().unwrap_or_default();
    if let Some(shown) = shown {
        best["text"] = json!(shown.text);
        best["missing"] = json!(shown.missing);
    }
    best["more"] = answers.collect();
    best["also"] = others(found)
        .map(|hit| json!({"kind": hit.kind(), "id": hit.id(), "title": hit.title()}))
        .collect();
    best
}

fn head(page: &Page) -> Value {
    json!({"id": page.id, "question": page.title, "see": page.see, "rules": page.rules})
}

fn contents() -> String {
    let mut text = String::from(
        "Ask in your own words, or for one of these: llmtui guide NAME\n\nQuestions\n",
    );
    for page in guide::pages() {
        text.push_str(&named(page.title, page.id));
    }
    text.push_str("\nSymptoms, by area: llmtui guide AREA lists them\n");
    for area in guide::areas() {
        let count = area.entries.len();
        text.push_str(&named(&format!("{} ({count})", area.title), area.id));
    }
    text.push_str(
        "\nAlso any rule of the diagnosis, metric or setting: llmtui guide kl_runaway, grad_norm, lora.alpha\n",
    );
    text
}

fn contents_json() -> Value {
    let pages = guide::pages();
    let areas = guide::areas().iter().map(|area| {
        let entries = area.entries.iter();
        let entries: Vec<Value> = entries
            .map(|entry| json!({"id": entry.id, "title": entry.title, "rules": entry.rules}))
            .collect();
        json!({"id": area.id, "title": area.title, "entries": entries})
    });
    json!({
        "pages": pages.iter().map(head).collect::<Vec<_>>(),
        "areas": areas.collect::<Vec<_>>(),
    })
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
