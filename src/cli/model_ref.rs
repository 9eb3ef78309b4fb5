//! Resolving a model reference: a folder, a file, a run, a hub id. Used by every subcommand that takes a model.

use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::clock::{Clock, SystemClock};
use crate::base::human;
use crate::base::near::did_you_mean;
use crate::base::paths::expand_home;
use crate::base::text::{one_line, shown};
use crate::data::source::neighbour;
use crate::hf;
use crate::hub::{Hub, HubConfig, HubError, Pace};
use crate::models::{self, Fetched, HubModel, Parts, SourceError};
use crate::run::index;
use crate::spec;
use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder (or GGUF file, of several parts the first) an argument refers to: itself, a run's best checkpoint or that of a step (`RUN@500`), or the
/// hub's files in the cache, downloaded if necessary.
///
/// # Errors
/// Nothing matches; the message lists what was tried.
pub fn find(word: &str, parts: Parts, cx: &Context) -> anyhow::Result<PathBuf> {
    shown_as(|tell| find_with(word, parts, cx, tell))
}

/// What is done with a callback for downloads, with their progress on standard error, and what was chosen there as a note.
fn shown_as(
    bring: impl FnOnce(&dyn Fn(&Download)) -> anyhow::Result<Fetched>,
) -> anyhow::Result<PathBuf> {
    let display = DownloadProgress::default();
    let found = bring(&|download| display.update(download));
    display.end();
    let Fetched { place, notice } = found?;
    if let Some(notice) = notice {
        errln!("note: {}", one_line(&notice));
    }
    Ok(place)
}

/// The value of `--base-model`.
///
/// # Errors
/// It is no id of the hub.
pub(super) fn base_model(text: &str) -> Result<String, String> {
    match crate::hub::is_repo_id(text) {
        true => Ok(text.into()),
        false => Err("use ORG/NAME, as in the model's URL on the hub".into()),
    }
}

/// [`find`], with a callback for download progress, and with what was chosen.
///
/// # Errors
/// As [`find`].
pub fn find_with(
    word: &str,
    parts: Parts,
    cx: &Context,
    tell: &dyn Fn(&Download),
) -> anyhow::Result<Fetched> {
    let here = |place: PathBuf| Fetched {
        place,
        notice: None,
    };
    let path = Path::new(word);
    match models::kind(path) {
        Ok(_) => return Ok(here(models::first_part(path))),
        Err(_) if path.join("run.json").is_file() => return best_of(word, cx).map(here),
        Err(SourceError::Absent(_)) => {}
        Err(error) => {
            return Err(Failure::user_error(error.to_string(), error.hint()).into());
        }
    }
    if let Some(found) = run_ref::at_step(word, cx) {
        return Ok(here(found?.path));
    }
    let run = index::resolve(&cx.runs_dir, word);
    let model = models::hub_model(word);
    let is_file = is_model_file(path) && model.as_ref().is_none_or(|m| m.file.is_none());
    match (run, model) {
        (Ok(_), _) => best_of(word, cx).map(here),
        (Err(_), Some(model)) if is_file_here(word, &model) => Err(absent_here(word).into()),
        // No repository is called like a file; a file of one stands behind its name (`org/name:FILE.gguf`).
        (Err(_), _) if is_file || is_a_place(word) => Err(super::exit::absent(path).into()),
        (Err(_), Some(_)) => pull_with(word, parts, cx, tell),
        (Err(error), None) if run_ref::means_a_pipeline(word, cx) => {
            Err(run_ref::not_found(word, &error, cx).into())
        }
        (Err(error), None) => {
            let hint = "llmtui runs lists runs (RUN@500: its checkpoint of step 500); a Hugging Face folder, a .gguf file or a hub id (org/name, org/name:Q4_K_M, hf:gpt2) works too";
            Err(Failure::user_error(error.to_string(), hint).into())
        }
    }
}

/// The words with a run's best checkpoint where `train.from` names a run, or a reward model, `critic_from` or a teacher does: after an
/// SFT, `-s train.from=my-sft`.
///
/// # Errors
/// The run has no checkpoint.
pub fn with_runs(set: &[String], cx: &Context) -> anyhow::Result<Vec<String>> {
    let checkpoint = |value: &str| {
        // What cannot be expanded is reported with the spec.
        let full = expand_home(Path::new(value), Path::new(""), cx.env.home.as_deref());
        let full = full.map_or_else(|_| value.into(), |full| full.display().to_string());
        let found = of_run(&full, cx)?;
        Some(found.map(|found| found.display().to_string()))
    };
    let one = |word: &String| match word.split_once('=') {
        Some((key, value)) if is_a_model(key.trim()) => match checkpoint(value) {
            Some(found) => Ok(format!("{key}={}", found?)),
            None => Ok(word.clone()),
        },
        Some((key, value)) if key.trim() == "rewards" => {
            Ok(format!("{key}={}", with_judges(value, &checkpoint)?))
        }
        // The run itself, not a checkpoint of it.
        Some((key, value)) if key.trim() == "health.reference_run" && is_run(value, cx) => {
            let run = run_ref::named(value, cx)?;
            Ok(format!("{key}={}", run.path().to_string_lossy()))
        }
        _ => Ok(word.clone()),
    };
    set.iter().map(one).collect()
}

/// The overrides, and the best checkpoint of the run that a spec's file names in `train.from`, as after `-s`.
///
/// # Errors
/// The run has no checkpoint.
pub fn from_a_run(target: &str, mut set: Vec<String>, cx: &Context) -> anyhow::Result<Vec<String>> {
    let Some(said) = spec::start_of(target, &set, &cx.spec_sources()) else {
        return Ok(set);
    };
    let full = expand_home(Path::new(&said), Path::new(""), cx.env.home.as_deref());
    let full = full.map_or_else(|_| said.clone(), |full| full.display().to_string());
    if let Some(found) = of_run(&full, cx) {
        let found = found?;
        let step = found.file_name().unwrap_or_default().to_string_lossy();
        errln!(
            "note: train.from: {} is a run: its best checkpoint, {}",
            one_line(&said),
            one_line(&step)
        );
        set.push(format!("train.from={}", found.to_string_lossy()));
    }
    Ok(set)
}

fn is_a_model(key: &str) -> bool {
    let others = ["method.ppo.critic_from", "method.distill.teacher"];
    spec::starts_from(key) || others.contains(&key)
}

/// A list of rewards, written in one line, with the checkpoints of runs where it names runs as reward models:
/// `[{model: {path: runs/my-rm}}]`.
fn with_judges(
    value: &str,
    checkpoint: &dyn Fn(&str) -> Option<anyhow::Result<String>>,
) -> anyhow::Result<String> {
    const KEY: &str = "path:";
    let (mut out, mut rest) = (String::new(), value);
    while let Some(at) = rest.find(KEY) {
        let (before, after) = rest.split_at(at + KEY.len());
        let end = after.find([',', '}', ']']).unwrap_or(after.len());
        let said = after[..end].trim();
        let named = said.trim_matches(['"', '\'']);
        out.push_str(before);
        match checkpoint(named) {
            Some(found) if !named.is_empty() => {
                out.push_str(&format!(" {}", serde_json::Value::String(found?)));
            }
            _ => out.push_str(&after[..end]),
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The checkpoint that a run's folder, its name or `RUN@STEP` means; `None` for words that mean something else.
pub fn of_run(word: &str, cx: &Context) -> Option<anyhow::Result<PathBuf>> {
    match run_ref::at_step(word, cx) {
        Some(found) => Some(found.map(|checkpoint| checkpoint.path)),
        None => is_run(word, cx).then(|| best_of(word, cx)),
    }
}

/// A run's folder, or the name of one where nothing else is called so.
fn is_run(word: &str, cx: &Context) -> bool {
    let path = Path::new(word);
    match models::kind(path) {
        Ok(_) => false,
        Err(SourceError::Absent(_)) => {
            models::repo(word).is_none() && index::resolve(&cx.runs_dir, word).is_ok()
        }
        Err(_) => path.join("run.json").is_file(),
    }
}

fn best_of(word: &str, cx: &Context) -> anyhow::Result<PathBuf> {
    let run = run_ref::named(word, cx)?;
    match run.best_checkpoint() {
        Some(checkpoint) => Ok(checkpoint.path),
        None => Err(run_ref::no_checkpoint(&run).into()),
    }
}

/// Downloads a hub model into the cache, reporting progress.
///
/// # Errors
/// As [`models::fetch`].
pub fn pull(word: &str, parts: Parts, cx: &Context) -> anyhow::Result<PathBuf> {
    shown_as(|tell| pull_with(word, parts, cx, tell))
}

fn pull_with(
    word: &str,
    parts: Parts,
    cx: &Context,
    tell: &dyn Fn(&Download),
) -> anyhow::Result<Fetched> {
    let Some(model) = models::hub_model(word) else {
        let what = format!("`{}` is not a hub id", one_line(word));
        let fix = "use org/name, org/name@REVISION, org/name:Q4_K_M or org/name:FILE.gguf (a GGUF file), or hf:name";
        return Err(Failure::user_error(what, fix).into());
    };
    let hub = Hub::new(&HubConfig::from_env(&cx.env));
    let (clock, pace) = (SystemClock::new(), RefCell::new(Pace::default()));
    let progress = |name: &str, bytes: u64, total: u64| {
        let rate = pace.borrow_mut().note(name, bytes, clock.elapsed());
        tell(&Download {
            file: one_line(&format!("{}/{name}", model.repo.id)),
            bytes,
            total,
            bytes_per_sec: rate,
            at: clock.elapsed(),
        });
    };
    let found = models::fetch(&hub, &model, parts, &progress);
    Ok(found.map_err(|error| failed(word, &error))?)
}

/// Whether a word that reads as a file of the hub (`a/b:c.gguf`) starts in a folder that is here, and so is rather a path.
fn is_file_here(word: &str, model: &HubModel) -> bool {
    let owner = model.repo.id.split('/').next().unwrap_or_default();
    let is_plain = word.starts_with(&model.repo.id);
    model.file.is_some() && is_plain && is_model_file(Path::new(word)) && Path::new(owner).is_dir()
}

/// The same file is not in that folder.
fn absent_here(word: &str) -> Failure {
    let absent = super::exit::absent(Path::new(word));
    Failure {
        hint: format!(
            "{}{} hf:{} names a file of the hub",
            absent.hint,
            if absent.hint.ends_with('?') { "" } else { ";" },
            one_line(word)
        ),
        ..absent
    }
}

/// Whether a word can only be a path.
fn is_a_place(word: &str) -> bool {
    ["/", "./", "../", "~/"]
        .iter()
        .any(|start| word.starts_with(start))
}

/// Whether a word ends like a file of weights.
fn is_model_file(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let endings = ["gguf", "safetensors", "bin", "pt", "pth", "ckpt"];
    endings
        .iter()
        .any(|known| ending.eq_ignore_ascii_case(known))
}

fn failed(word: &str, error: &HubError) -> Failure {
    let exit = match error.is_environment_error() {
        true => Exit::Machine,
        false => Exit::UserError,
    };
    Failure {
        exit,
        what: one_line(&format!(
            "{word} is not a folder, file or run here; as a hub model: {error}"
        )),
        hint: match neighbour(Path::new(word)) {
            Some(near) => {
                let near = Path::new(word).with_file_name(near);
                format!("{} Else {}", did_you_mean(shown(&near)), error.hint())
            }
            None => error.hint(),
        },
    }
}

/// The hub models that a spec refers to and the cache lacks.
fn absent_for_spec(target: &str, set: &[String], cx: &Context) -> Vec<String> {
    let hub = HubConfig::from_env(&cx.env);
    let mut words = crate::spec::hub_models(target, set, &cx.spec_sources());
    words.retain(|word| {
        let cache = hub.cache.as_deref();
        let cached = cache.and_then(|cache| models::cached(cache, word));
        cached.is_none_or(|at| !at.is_file() && hf::Weights::open(&at).is_err())
    });
    words
}

/// Whether [`pull_for_spec`] would download a model, rather than find it or call it a file that is missing here.
pub fn would_download(target: &str, set: &[String], cx: &Context) -> bool {
    let is_file =
        |word: &String| models::hub_model(word).is_some_and(|model| is_file_here(word, &model));
    !absent_for_spec(target, set, cx).iter().all(is_file)
}

/// Downloads the hub models that a spec refers to before it is loaded.
///
/// # Errors
/// As [`pull`].
pub fn pull_for_spec(target: &str, set: &[String], cx: &Context) -> anyhow::Result<()> {
    for word in absent_for_spec(target, set, cx) {
        if models::hub_model(&word).is_some_and(|model| is_file_here(&word, &model)) {
            return Err(absent_here(&word).into());
        }
        pull(&word, Parts::Everything, cx)?;
    }
    Ok(())
}

/// Progress of a file's download.
pub struct Download {
    /// With the repository as prefix; safe to display.
    pub file: String,
    pub bytes: u64,
    /// 0 if the hub does not report it.
    pub total: u64,
    pub bytes_per_sec: Option<f64>,
    /// Time since the download began.
    pub at: Duration,
}

impl Download {
    pub fn is_whole(&self) -> bool {
        self.bytes == self.total
    }

    /// `model.safetensors  1.2 GiB of 4.9 GiB  35 MiB/s`
    fn words(&self) -> String {
        let total = match self.total {
            0 => String::new(),
            total => format!(" of {}", human::bytes(total)),
        };
        let rate = self.bytes_per_sec.filter(|_| !self.is_whole());
        let rate = rate.map_or(String::new(), |r| format!("  {}/s", human::bytes(r as u64)));
        let file = self.file.rsplit('/').next().unwrap_or(&self.file);
        format!("{file}  {}{total}{rate}", human::bytes(self.bytes))
    }
}

/// Reports often enough to look alive, and at the end of each file.
#[derive(Default)]
pub struct Throttle {
    last: RefCell<Option<(String, Duration)>>,
}

impl Throttle {
    const STEP: Duration = Duration::from_millis(200);

    pub fn due(&self, download: &Download) -> bool {
        let mut last = self.last.borrow_mut();
        let due = last.as_ref().is_none_or(|(file, at)| {
            *file != download.file || download.at.saturating_sub(*at) >= Self::STEP
        });
        if due {
            *last = Some((download.file.clone(), download.at));
        }
        due || download.is_whole()
    }
}

/// Length of the line to overwrite.
const COLUMNS: usize = 79;

/// Shows download progress on standard error: one updating line at a terminal, one line per file elsewhere.
#[derive(Default)]
pub struct DownloadProgress {
    throttle: Throttle,
    begun: Cell<bool>,
    open: Cell<bool>,
}

impl DownloadProgress {
    /// For what goes the other way.
    pub fn of_upload() -> DownloadProgress {
        DownloadProgress {
            begun: Cell::new(true),
            ..DownloadProgress::default()
        }
    }

    pub fn update(&self, download: &Download) {
        let terminal = std::io::stderr().is_terminal();
        let whole = download.is_whole();
        if !self.throttle.due(download) || !(whole || terminal) {
            return;
        }
        let line = download.words();
        let mut out = std::io::stderr().lock();
        if terminal && !self.begun.replace(true) {
            let _ = writeln!(
                out,
                "from the hub; Ctrl-C cancels, and the next attempt resumes"
            );
        }
        // A wrapped line could not be overwritten.
        let shown: String = line.chars().take(COLUMNS).collect();
        // A closed standard error is no reason to cancel a download.
        let _ = match (terminal, whole) {
            (true, false) => write!(out, "\r\x1b[2K{shown}"),
            (true, true) => writeln!(out, "\r\x1b[2K{line}"),
            (false, _) => writeln!(out, "{line}"),
        };
        self.open.set(terminal && !whole);
    }

    /// Ends a partial line.
    pub fn end(&self) {
        if self.open.get() {
            let _ = writeln!(std::io::stderr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reward_models_that_are_runs_become_their_checkpoints_and_other_paths_stay() {
        let checkpoint = |said: &str| {
            let found = format!("/runs/{said}/checkpoints/step-000002");
            ["my-rm", "an other"].contains(&said).then_some(Ok(found))
        };
        let with = |value: &str| with_judges(value, &checkpoint).unwrap();
        assert_eq!(
            with("[{model: {path: my-rm}, weight: 0.5}, exact]"),
            r#"[{model: {path: "/runs/my-rm/checkpoints/step-000002"}, weight: 0.5}, exact]"#
        );
        assert_eq!(
            with(r#"[{model: {batch: 4, path: "an other"}}]"#),
            r#"[{model: {batch: 4, path: "/runs/an other/checkpoints/step-000002"}}]"#
        );
        let others = "[{python: {path: score.py}}, exact, {model: {path: /a/folder}}]";
        assert_eq!(with(others), others);
    }
}
