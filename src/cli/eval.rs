//! `llmtui eval`: tasks put to one model or to several, with standard errors, differences and all answers kept.

mod show;

use super::Context;
use super::exit::{Exit, Failure, absent};
use super::model_ref;
use crate::base::child::Child;
use crate::base::clock::Clock;
use crate::base::files::read_small_text;
use crate::base::human;
use crate::base::paths::misnamed;
use crate::base::text::{one_line, shown};
use crate::data::chat::{AUTO, Template};
use crate::data::tokenizer::{self, Tokenizer};
use crate::engine::checkpoint::{Fault, Manifest};
use crate::engine::export::ExportError;
use crate::link::signals;
use crate::models::{ModelSource, Parts};
use crate::tasks::{self, Loaded, Outcome, Prepared, Progress, Request, Run, Task, TaskError};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Evaluate models on tasks: accuracies with standard errors, differences; saves every answer
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui eval runs/…/checkpoints/step-001000
  llmtui eval HuggingFaceTB/SmolLM2-135M --tasks arc_easy,hellaswag --limit 200
  llmtui eval base-model my-run --tasks gsm8k,./mine.yaml --json

Prompts, tokens and metrics follow lm-evaluation-harness 0.4; docs/evaluation.md says what differs. Rows of public tasks come from the hub and its cache; missing \
ones are reported before anything is computed. Answers are written to --out as JSON lines; an interrupted evaluation \
continues where it stopped, and answered items are not asked again. See docs/evaluation.md.")]
pub struct Args {
    /// Checkpoint folders, runs (their best checkpoint), Hugging Face model folders, GGUF files or hub ids; others are
    /// compared with the first
    #[arg(value_name = "MODEL", required_unless_present_any = ["list", "answers"])]
    pub models: Vec<String>,
    /// Tasks, by name or path of a .yaml file. Default: the synthetic ones, which need no network
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tasks: Vec<String>,
    /// Use only the first N rows of each task; of one with groups (mmlu) as many of each group
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Few-shot examples before each prompt, instead of the task's own number
    #[arg(long, value_name = "N")]
    pub shots: Option<usize>,
    /// Longest answer in tokens, thoughts included, instead of the task's own: models that think first need thousands
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_new_tokens: Option<u64>,
    /// Put the prompts of tasks that generate answers into the model's chat template, each as one user turn
    #[arg(long)]
    pub chat: bool,
    /// Score existing answers, without a model: JSON lines `{"answer": TEXT}`, one per item of the one task, in
    /// order
    #[arg(long, value_name = "FILE", conflicts_with = "models")]
    pub answers: Option<PathBuf>,
    /// Folder for the answers
    #[arg(long, value_name = "DIR", default_value = "evals")]
    pub out: PathBuf,
    /// Also show the results of each group of a task (subjects of mmlu)
    #[arg(long)]
    pub groups: bool,
    /// List the tasks
    #[arg(long)]
    pub list: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Largest file of answers.
const MAX_ANSWERS: u64 = 1 << 30;

/// Asked where nobody says what.
const BY_DEFAULT: &[&str] = &[
    "made_arithmetic",
    "made_sort",
    "made_recall",
    "made_needle_16",
];

/// A model on the command line.
pub(super) struct Asked {
    /// As it was named.
    word: String,
    /// For tables.
    name: String,
    path: PathBuf,
    fingerprint: String,
    /// What stands in front of its prompts; known once it was loaded.
    begins_with: Option<String>,
    /// By task.
    outcomes: Vec<Outcome>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    if args.list {
        let listed = tasks::list(&cx.env).map_err(|e| failed(&e))?;
        let own = cx.env.config_dir.as_ref().map(|dir| dir.join("tasks"));
        for (what, fix) in own.iter().flat_map(|folder| misnamed(folder)) {
            errln!("note: {what}; {fix}");
        }
        return write(&match args.json {
            true => format!("{}\n", super::out::json(&show::listed(&listed))?),
            false => show::list(&listed),
        });
    }
    // Names first, rows last: a word that names nothing is reported before any row is downloaded.
    let tasks = named(args, cx)?;
    let found = args.models.iter().map(|word| find(word, cx));
    let mut models = found.collect::<anyhow::Result<Vec<Asked>>>()?;
    let mut prepared = prepare(args, tasks, cx)?;
    if let Some(file) = &args.answers {
        models.push(elsewhere(file, &prepared)?);
    }
    // What cannot be asked is refused before any model is: nothing has been computed or written then.
    let chat = prepared.iter().any(|task| task.task.config().chat);
    let parts = models.iter().take(args.models.len());
    let parts = parts.map(|model| open(&model.path, chat));
    let parts = parts.collect::<Result<Vec<Parted>, _>>()?;
    let stop = interrupts();
    for (at, parted) in parts.into_iter().enumerate() {
        let refused = ask(args, cx, &mut models[at], parted, &prepared, &stop)?;
        leave_out(&mut prepared, &mut models[..at], refused)?;
    }
    write(&match args.json {
        true => show::json(args, &models, &prepared)?,
        false => cx.words(show::text(args, &models, &prepared)),
    })
}

fn write(text: &str) -> anyhow::Result<Exit> {
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

pub(super) fn failed(error: &TaskError) -> Failure {
    let (what, hint) = (one_line(&error.to_string()), one_line(&error.hint()));
    match error.is_outage() {
        true => Failure::machine(what, hint),
        false => Failure::user_error(what, hint),
    }
}

/// Whether there are the tasks that a spec names in `eval.tasks`.
///
/// # Errors
/// One does not exist, or its file is no task.
pub(super) fn known(tasks: &[String], cx: &Context) -> Result<(), Failure> {
    tasks.iter().try_for_each(|task| {
        let found = tasks::load(task, &cx.env);
        found.map(drop).map_err(|error| {
            let failure = failed(&error);
            Failure {
                what: format!("eval.tasks: {}", failure.what),
                ..failure
            }
        })
    })
}

/// The tasks that are asked for, without their rows.
fn named(args: &Args, cx: &Context) -> anyhow::Result<Vec<Task>> {
    let words: Vec<&str> = match args.tasks.is_empty() {
        true => BY_DEFAULT.to_vec(),
        false => (args.tasks.iter().map(|task| task.trim()))
            .filter(|task| !task.is_empty())
            .collect(),
    };
    if words.is_empty() {
        return Err(Failure::user_error("--tasks is empty", "llmtui eval --list").into());
    }
    all(words.into_iter().map(|word| {
        let mut task = tasks::load(word, &cx.env)?;
        if args.chat {
            task = task.as_turns();
        }
        if let Some(tokens) = args.max_new_tokens {
            task = task.with_max_new_tokens(tokens as usize)?;
        }
        match args.shots {
            Some(shots) => task.with_shots(shots),
            None => Ok(task),
        }
    }))
}

/// All rows of all tasks, before anything is computed.
fn prepare(args: &Args, tasks: Vec<Task>, cx: &Context) -> anyhow::Result<Vec<Prepared>> {
    let read = crate::data::inspect::reading(&cx.env);
    let limit = args.limit.map(|n| n as usize);
    let prepared = all(tasks.into_iter().map(|task| task.prepare(limit, &read)))?;
    Manifest::verify_tasks(&prepared).map_err(|(task, fault)| {
        let what = format!("{task}: the checkpoint of its reward model is damaged: {fault}");
        Failure::user_error(one_line(&what), Fault::HINT)
    })?;
    Ok(prepared)
}

/// Every one of them, or all that cannot be had, named at once.
fn all<T>(results: impl Iterator<Item = Result<T, TaskError>>) -> anyhow::Result<Vec<T>> {
    let (mut had, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(one) => had.push(one),
            Err(error) => errors.push(error),
        }
    }
    match errors.as_slice() {
        [] => Ok(had),
        [error] => Err(failed(error).into()),
        [first, ..] => {
            let lines: Vec<String> = errors.iter().map(|e| one_line(&e.to_string())).collect();
            let mut failure = failed(first);
            failure.what = format!(
                "{} tasks are not available:\n  {}",
                errors.len(),
                lines.join("\n  ")
            );
            Err(failure.into())
        }
    }
}

/// Answers in a file take the place of a model.
fn elsewhere(file: &Path, prepared: &[Prepared]) -> anyhow::Result<Asked> {
    let user_error = |what: String, hint: &str| Failure::user_error(one_line(&what), hint);
    let [task] = prepared else {
        let hint = "name one with --tasks";
        return Err(user_error("--answers is for one task".into(), hint).into());
    };
    if !file.exists() {
        return Err(absent(file).into());
    }
    let text = read_small_text(file, MAX_ANSWERS)
        .map_err(|e| user_error(format!("{}: {e}", shown(file)), "name a file of JSON lines"))?;
    #[derive(serde::Deserialize)]
    struct Line {
        answer: String,
    }
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let answers = lines.map(|(at, line)| {
        let read: Result<Line, _> = serde_json::from_str(line);
        read.map(|line| line.answer).map_err(|e| {
            let what = format!("{}:{}: {e}", shown(file), at + 1);
            user_error(what, "a line is {\"answer\": \"…\"}")
        })
    });
    let answers = answers.collect::<Result<Vec<String>, Failure>>()?;
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    let records = tasks::judge(task, answers).map_err(|e| failed(&e))?;
    let name = shown(file);
    Ok(Asked {
        word: name.clone(),
        name,
        path: file.to_path_buf(),
        fingerprint: tasks::fingerprint(file).map_err(|e| failed(&e))?,
        begins_with: None,
        outcomes: vec![Outcome {
            kept: records.len(),
            records,
            file: whole,
        }],
    })
}

fn find(word: &str, cx: &Context) -> anyhow::Result<Asked> {
    let path = model_ref::find(word, Parts::Everything, cx)?;
    Manifest::verify_if_any(&path)
        .map_err(|e| Failure::user_error(one_line(&e.to_string()), "take another checkpoint"))?;
    let fingerprint = tasks::fingerprint(&path).map_err(|e| failed(&e))?;
    Ok(Asked {
        word: word.into(),
        name: name(&path, word),
        path,
        fingerprint,
        begins_with: None,
        outcomes: Vec::new(),
    })
}

/// A checkpoint is called after its run, what the hub's cache holds after its id, others by their own name.
fn name(path: &Path, word: &str) -> String {
    let part = |path: Option<&Path>| {
        let name = path.and_then(Path::file_name).unwrap_or_default();
        one_line(&name.to_string_lossy())
    };
    let above = path.parent();
    match (part(above).as_str(), Path::new(word).exists()) {
        ("checkpoints", _) => format!(
            "{} {}",
            part(above.and_then(Path::parent)),
            part(Some(path))
        ),
        ("snapshots", false) => one_line(word),
        _ => part(Some(path)),
    }
}

/// Takes tasks out that a model cannot be asked: characters that its tokenizer does not have, answers longer than its
/// context. Fails where none is left.
fn leave_out(
    prepared: &mut Vec<Prepared>,
    before: &mut [Asked],
    refused: Vec<(usize, TaskError)>,
) -> anyhow::Result<()> {
    for (at, error) in refused.into_iter().rev() {
        prepared.remove(at);
        for model in before.iter_mut() {
            model.outcomes.remove(at);
        }
        if prepared.is_empty() {
            let what = one_line(&error.to_string());
            let hint = "this model can answer none of the tasks; llmtui score MODEL FILE measures its loss on any text";
            return Err(Failure::user_error(what, hint).into());
        }
        let mut out = std::io::stderr().lock();
        let _ = writeln!(out, "left out: {}", one_line(&error.to_string()));
    }
    Ok(())
}

/// Runs the tasks on one model; returns those that it cannot answer, by index.
fn ask(
    args: &Args,
    cx: &Context,
    model: &mut Asked,
    parted: Parted,
    prepared: &[Prepared],
    stop: &AtomicBool,
) -> anyhow::Result<Vec<(usize, TaskError)>> {
    let mut refused = Vec::new();
    let folder = args.out.join(folder_name(model));
    let mut parted = Some(parted);
    let mut held: Option<Loaded> = None;
    for (at, task) in prepared.iter().enumerate() {
        let request = Request {
            prepared: task,
            folder: &folder,
            model: &model.name,
            fingerprint: &model.fingerprint,
        };
        let mut run = Run::open(request).map_err(|e| failed(&e))?;
        if !run.is_whole() {
            if let Some(parted) = parted.take() {
                held = Some(load(parted)?);
            }
            let Some(loaded) = &mut held else { continue };
            let mut subject = loaded.subject();
            model.begins_with = Some(subject.begins_with());
            let name = format!("{} · {}", model.name, task.task.config().name);
            let mut display = TaskProgress::new(cx, name);
            let asked = run.evaluate(&mut subject, &mut |progress| {
                display.update(progress);
                match stop.load(Ordering::Relaxed) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            display.end();
            match asked {
                Ok(()) => {}
                Err(error) if error.is_of_the_model() => {
                    refused.push((at, error));
                    continue;
                }
                Err(error) => return Err(failed(&error).into()),
            }
            if !run.is_whole() {
                return Err(stopped(run.answered(), task, &folder).into());
            }
        }
        model.outcomes.push(run.finish());
    }
    Ok(refused)
}

/// The folder of a model's answers: its name in plain characters, and the beginning of its fingerprint.
fn folder_name(model: &Asked) -> String {
    let own = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let plain = model.name.chars().map(|c| if own(c) { c } else { '-' });
    let plain: String = plain.collect();
    let plain = plain.trim_start_matches('.');
    format!("{plain}-{}", &model.fingerprint[..8])
}

/// The shell's exit code after an interrupt: partial results are not a result.
const INTERRUPTED: u8 = 130;

/// An evaluation that was stopped: what is kept of it, and how it goes on.
fn stopped((answered, all): (usize, usize), task: &Prepared, folder: &Path) -> Failure {
    let what = format!(
        "stopped: {} of {} of {} are answered and saved in {}",
        human::grouped(answered as u64),
        human::counted(all as u64, "item"),
        task.task.config().name,
        shown(folder)
    );
    Failure {
        exit: Exit::Program(INTERRUPTED),
        what: one_line(&what),
        hint: "run the same command to continue; answered items are not asked again".into(),
    }
}

/// Set by the first Ctrl-C; a second one ends the program at once, which loses the items in work.
fn interrupts() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let (mut heard, raised) = (signals::interrupts(), Arc::clone(&stop));
    std::thread::spawn(move || {
        while heard.blocking_recv().is_some() {
            if raised.swap(true, Ordering::Relaxed) {
                errln!("\nstopped: answers are saved; run the same command to continue");
                let own = rustix::process::getpid();
                let _ = rustix::process::kill_process(own, rustix::process::Signal::TERM);
            }
            errln!("\nstopping after the current items; Ctrl-C again stops at once");
        }
    });
    stop
}

/// A model whose weights are not read yet.
struct Parted {
    source: ModelSource,
    tokenizer: Tokenizer,
    template: Option<Template>,
}

/// The model but for its weights, with its chat template where a task needs one.
fn open(path: &Path, chat: bool) -> anyhow::Result<Parted> {
    let user_error = |what: String, hint: &str| Failure::user_error(one_line(&what), hint);
    let source = ModelSource::open_whole(path).map_err(|e| user_error(e.to_string(), e.hint()))?;
    if source.config().is_reward_model() {
        let what = format!(
            "{} is a reward model: it has no language-model head and cannot generate",
            shown(path)
        );
        return Err(user_error(what, "llmtui score scores completions with it").into());
    }
    let tokenizer =
        tokenizer::load(source.tokenizer_path(), &Child::of_this_program()).map_err(|e| {
            user_error(
                e.to_string(),
                "put the model's tokenizer into the same folder",
            )
        })?;
    let template = match chat {
        true => Template::choose(AUTO, &tokenizer, &Child::of_this_program())
            .map_err(|e| user_error(e.to_string(), &e.hint()))?,
        false => None,
    };
    Ok(Parted {
        source,
        tokenizer,
        template,
    })
}

fn load(parted: Parted) -> anyhow::Result<Loaded> {
    let loaded = Loaded::load(&parted.source, parted.tokenizer)
        .map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?;
    if !loaded.is_finite() {
        let fault = ExportError::NotFinite(parted.source.path().into());
        return Err(super::export::failed(&fault).into());
    }
    Ok(loaded.with_template(parted.template))
}

/// Says how far a task is: on one line of a terminal, elsewhere every ten seconds.
struct TaskProgress<'a> {
    clock: &'a dyn Clock,
    name: String,
    begun: Duration,
    last: Option<Duration>,
    terminal: bool,
}

/// Length of the line to overwrite.
const COLUMNS: usize = 79;

impl<'a> TaskProgress<'a> {
    fn new(cx: &'a Context, name: String) -> Self {
        TaskProgress {
            clock: &cx.clock,
            name,
            begun: cx.clock.elapsed(),
            last: None,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn update(&mut self, progress: Progress) {
        let now = self.clock.elapsed();
        let step = match self.terminal {
            true => Duration::from_millis(200),
            false => Duration::from_secs(10),
        };
        let since = now.saturating_sub(self.last.unwrap_or(self.begun));
        if since < step {
            return;
        }
        self.last = Some(now);
        let share = progress.work as f64 / progress.of_work.max(1) as f64;
        let spent = now.saturating_sub(self.begun).as_secs_f64();
        let left = spent * (1.0 - share) / share.max(1e-9);
        let line = format!(
            "{}: {} of {}, {} left",
            self.name,
            progress.items,
            human::counted(progress.of as u64, "item"),
            human::seconds(left)
        );
        let shown: String = line.chars().take(COLUMNS).collect();
        let mut out = std::io::stderr().lock();
        let _ = match self.terminal {
            true => write!(out, "\r\x1b[2K{shown}"),
            false => writeln!(out, "{line}"),
        };
        let _ = out.flush();
    }

    fn end(&self) {
        if self.terminal && self.last.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}
