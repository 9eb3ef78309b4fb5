//! The list of runs and their status, without folding whole logs: see [`scan`].

mod pace;
mod queue;
mod resolve;
mod scan;

pub use queue::{end_of_queue, waits_for};
pub use resolve::{ResolveError, checkpoint_named, resolve, resolve_one};

use self::scan::{Scan, loss};
use super::dir::open_all;
use super::log::{Tail, kind_of};
use super::{FileOperation, Header, Parent, RunDir, RunError};
use crate::base::clock::UnixMillis;
use crate::base::files::read_small_text;
use crate::base::process::is_suspended;
use crate::base::ssh::shell_quote;
use crate::base::text::one_line;
use crate::wire::{Best, Event, Outcome, Phase, decode_envelope, id};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// Id of the `Diagnosed` event that holds the verdict on a whole run; its finding's title is the word.
pub const VERDICT: &str = "verdict";
/// The verdict on a run whose loss ran away.
pub const DIVERGED: &str = "DIVERGED";
/// The verdict on a run whose loss does not fall.
pub const NOT_LEARNING: &str = "NOT LEARNING";
/// The verdict before there is anything to judge.
pub const TOO_EARLY: &str = "TOO EARLY";
/// Points of the small loss curve.
const CURVE: usize = 24;
/// Bytes read per point of the curve.
const PROBE: usize = 16 << 10;

/// The status of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// An engine holds it.
    Live,
    /// All steps completed.
    Finished,
    /// Stopped on request.
    Stopped,
    /// Ended by an error of the training, a failed check or a bug.
    Failed,
    /// Its engine died without a final event.
    Crashed,
    /// Created, but nothing was ever logged.
    #[default]
    Empty,
    /// It has a log, of which no line can be read.
    Unreadable,
}

impl RunStatus {
    /// The status of a run that has said how it ended.
    pub fn of(outcome: Outcome) -> RunStatus {
        match outcome {
            Outcome::Completed => RunStatus::Finished,
            Outcome::Stopped => RunStatus::Stopped,
            Outcome::Failed
            | Outcome::Starved
            | Outcome::Refused
            | Outcome::Invalid
            | Outcome::Crashed => RunStatus::Failed,
        }
    }

    /// One word for lists.
    pub fn word(self) -> &'static str {
        match self {
            RunStatus::Live => "live",
            RunStatus::Finished => "finished",
            RunStatus::Stopped => "stopped",
            RunStatus::Failed => "failed",
            RunStatus::Crashed => "crashed",
            RunStatus::Empty => "empty",
            RunStatus::Unreadable => "unreadable",
        }
    }
}

/// One row of the list of runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunSummary {
    /// The name of its directory, by which every command finds it.
    pub id: String,
    /// The name it was created under, which its children know; a renamed directory and a copy have kept it.
    pub created_as: String,
    pub name: String,
    #[serde(serialize_with = "crate::base::json::serialize_path")]
    pub path: PathBuf,
    pub status: RunStatus,
    /// The phase of a live engine.
    pub phase: Option<Phase>,
    /// The folder of the run that a live one waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_after: Option<String>,
    /// Its engine is, or was, on another machine that shares the disk.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    /// The engine is stopped by a signal, and nothing goes on until `kill -CONT`.
    pub suspended: bool,
    /// The method's id; empty until the engine has logged it.
    pub method: String,
    pub step: u64,
    /// 0 until the engine has logged it.
    pub max_steps: u64,
    pub n_params: u64,
    /// Newest training loss, nats per token.
    pub train_loss: Option<f64>,
    /// Newest validation loss, nats per token.
    pub val_loss: Option<f64>,
    /// The same in bits per byte of the text; `None` where a part of it is supervised, and for methods without a likelihood.
    pub val_bpb: Option<f64>,
    /// Lowest validation loss seen.
    pub best_val_loss: Option<f64>,
    /// Of methods on answers of their own: the newest mean reward of a step.
    pub reward: Option<f64>,
    /// Newest and highest share of held-out prompts that are answered right.
    pub pass_at_1: Option<f64>,
    pub best_pass_at_1: Option<f64>,
    /// The best checkpoint so far, by the reading that decides; `None` before one was saved, and in logs of older programs.
    pub best: Option<Best>,
    /// The best evaluation, by the same reading: that of `best`, or a better one that the newest engine said at its end and of whose
    /// step there is no checkpoint.
    pub best_evaluation: Option<Best>,
    /// The reading of `best_evaluation` over the whole validation split, where that was evaluated at its step: the other is of the
    /// rows that all evaluations read.
    pub best_whole: Option<f64>,
    /// Step of the newest evaluation.
    pub evaluated_at: Option<u64>,
    /// Passes over the training split at the newest step; `None` in logs that do not say it.
    pub epochs: Option<f64>,
    pub created: UnixMillis,
    /// Time of the newest event, or of creation.
    pub updated: UnixMillis,
    /// Time of all engine processes: see [`super::engine_time::EngineTime`].
    pub seconds: f64,
    /// Where its pace of now begins: the step that the newest engine, roll-back or pause left it at, and the time until then.
    pub base_step: u64,
    pub base_seconds: f64,
    /// Seconds per step of the newest steps, what comes between them included; `None` before the second one since then.
    pub step_seconds: Option<f64>,
    /// The engine's verdict on training: `LEARNING`, `DIVERGED`, …; `None` before the first one, and if the engine failed before it.
    pub verdict: Option<String>,
    /// Training loss, or the reward of methods on answers of their own, at evenly spaced positions of the log, oldest first;
    /// non-finite values are skipped.
    pub curve: Vec<f64>,
    /// Why it ended, unless it completed.
    pub message: String,
    /// Of a branch: where it came from.
    pub parent: Option<Parent>,
    /// The model that it started from (`train.from`), once the engine has logged it.
    #[serde(serialize_with = "crate::base::json::serialize_path_if_any")]
    pub start_model: Option<PathBuf>,
    /// The preset or the spec file that its request names; empty for a branch.
    pub preset: String,
    /// What its request changed of its preset: `lr=1e-5`.
    pub changed: Vec<String>,
}

impl RunSummary {
    /// Whether it trains a reward model: that scores completions and generates none.
    pub fn judges(&self) -> bool {
        self.method == "reward"
    }

    /// Whether it ended before its last step: stopped, or early by `eval.patience`.
    pub fn has_steps_left(&self) -> bool {
        self.step < self.max_steps
    }

    /// Its checks, its data, its spec or the machine ended it before it learned anything. One that lost its steps to a
    /// resume has readings all the same.
    pub fn failed_before_its_first_step(&self) -> bool {
        self.status == RunStatus::Failed && self.step == 0 && self.curve.is_empty()
    }
}

/// What a command on a run needs besides its name: ` --runs-dir DIR`, or nothing where commands look anyway.
pub fn option(runs_dir: &Path) -> String {
    match runs_dir == Path::new("runs") {
        true => String::new(),
        false => format!(
            " --runs-dir {}",
            shell_quote(&one_line(&runs_dir.to_string_lossy()))
        ),
    }
}

/// All runs in `runs_dir`, newest first. A missing directory is empty. Directories that are not runs are skipped; runs
/// that cannot be read are returned as errors beside the list.
///
/// # Errors
/// The folder cannot be read.
pub fn list(runs_dir: &Path) -> io::Result<(Vec<RunSummary>, Vec<RunError>)> {
    let mut runs = Vec::new();
    let mut unreadable = Vec::new();
    for run in open_all(runs_dir)? {
        match run.and_then(|run| summarize(&run)) {
            Ok(summary) => runs.push(summary),
            Err(e) => unreadable.push(e),
        }
    }
    runs.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
    Ok((runs, unreadable))
}

/// The names of all run directories in `runs_dir`, which begin with a date, newest first; no log is read.
pub fn ids(runs_dir: &Path) -> Vec<String> {
    let runs = open_all(runs_dir).unwrap_or_default().into_iter().flatten();
    let mut ids: Vec<String> = runs.map(|run| run.folder()).collect();
    ids.sort_by(|a, b| b.cmp(a));
    ids
}

/// The best checkpoint of each run that has learned something, the newest run first: one of them is offered as a model to
/// start from.
pub fn best_checkpoints(runs_dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let runs = list(runs_dir).map(|(runs, _unreadable)| runs);
    let runs = runs.unwrap_or_default().into_iter();
    runs.filter(|run| has_learned(run.verdict.as_deref()))
        .filter_map(|run| {
            let best = RunDir::open(&run.path).ok()?.best_checkpoint()?;
            // One of step 0 was saved by a run that was stopped before it learned anything.
            (best.step > 0).then_some(best.path)
        })
}

/// Whether a run may have learned something; a run without a verdict may have.
fn has_learned(verdict: Option<&str>) -> bool {
    ![DIVERGED, NOT_LEARNING, TOO_EARLY]
        .iter()
        .any(|word| verdict == Some(word))
}

/// The newest run that an engine holds.
///
/// # Errors
/// The folder cannot be read.
pub fn newest_live(runs_dir: &Path) -> io::Result<Option<RunDir>> {
    newest_live_of(runs_dir, |_, _| true)
}

/// The newest one that an engine of this machine holds, beside this run: a folder may be shared with other machines.
///
/// # Errors
/// The folder cannot be read.
pub fn newest_live_beside(runs_dir: &Path, run: &RunDir) -> io::Result<Option<RunDir>> {
    newest_live_of(runs_dir, |other, header| {
        other.path() != run.path() && header.holder().elsewhere.is_none()
    })
}

fn newest_live_of(
    runs_dir: &Path,
    counts: impl Fn(&RunDir, &Header) -> bool,
) -> io::Result<Option<RunDir>> {
    let runs = open_all(runs_dir)?.into_iter().flatten();
    let mut live: Vec<(UnixMillis, RunDir)> = runs
        .filter(RunDir::is_alive)
        .filter_map(|run| {
            let header = run.header().ok()?;
            counts(&run, &header).then_some((header.created, run))
        })
        .collect();
    live.sort_by_cached_key(|(created, run)| (*created, run.folder()));
    Ok(live.pop().map(|(_, run)| run))
}

/// Bytes of a request that are read for a list.
const MAX_ASKED: u64 = 1 << 20;

/// Why the newest engine of a run ended before its first step; the run stands as it did without that one.
pub fn refusal(run: &RunDir) -> Option<String> {
    let size = std::fs::metadata(run.events_path()).map_or(0, |meta| meta.len());
    if size == 0 || run.is_alive() {
        return None;
    }
    scan::read(run, size).ok()?.refused
}

/// The status of one run.
///
/// # Errors
/// Its header or its log cannot be read.
pub fn summarize(run: &RunDir) -> Result<RunSummary, RunError> {
    let header = run.header()?;
    let io_error = |error| RunError::Io {
        doing: FileOperation::Read,
        path: run.events_path(),
        error,
    };
    // Checked first: an engine that ends in between has then written its final event.
    let alive = run.is_alive();
    let size = match std::fs::metadata(run.events_path()) {
        Ok(meta) => meta.len(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => return Err(io_error(e)),
    };
    let scan = match size {
        0 => Scan::default(),
        size => scan::read(run, size).map_err(io_error)?,
    };
    let (vals, passes) = (&scan.measured.vals, &scan.measured.passes);
    let figures = scan.measured.figures();
    let (best_evaluation, best_whole) = scan.best_evaluation().unzip();
    let said = scan.lowest_said();
    let lowest = vals.iter().map(|(_, loss)| *loss).chain(said);
    let lowest = lowest.min_by(f64::total_cmp);
    // The last evaluation may have read other rows than those before it: the engine compared what can be compared.
    let said = said.filter(|_| scan.outcome.is_some());
    let status = match scan.status(alive) {
        RunStatus::Empty if size > 0 => RunStatus::Unreadable,
        status => status,
    };
    // An engine that failed or died says why instead.
    let told = matches!(
        status,
        RunStatus::Live | RunStatus::Finished | RunStatus::Stopped
    );
    let judged = |verdict: &String| told || verdict != TOO_EARLY;
    let verdict = scan.measured.verdict().map(String::from);
    let asked = read_small_text(&run.asked_path(), MAX_ASKED).unwrap_or_default();
    Ok(RunSummary {
        id: run.folder(),
        queued_after: scan.queued_after.filter(|_| alive),
        elsewhere: header.holder().elsewhere.is_some(),
        suspended: alive && header.holder().here().is_some_and(is_suspended),
        created_as: header.id,
        name: header.name,
        path: run.path().into(),
        status,
        phase: scan.phase.filter(|_| alive),
        step: scan.step,
        train_loss: figures.train_loss,
        val_loss: vals.last().map(|(_, loss)| *loss),
        val_bpb: scan.measured.bpbs.last().map(|(_, bits)| *bits),
        best_val_loss: said.or(lowest),
        reward: figures.reward,
        pass_at_1: passes.last().map(|(_, share)| *share),
        best_pass_at_1: passes
            .iter()
            .map(|(_, share)| *share)
            .max_by(f64::total_cmp),
        epochs: figures.epochs,
        created: header.created,
        updated: scan.updated.unwrap_or(header.created),
        seconds: scan.spent.seconds(),
        base_step: scan.base.step,
        base_seconds: scan.base.seconds,
        step_seconds: pace::step_seconds(&scan.newest_steps),
        curve: if size > 0 {
            let figure = match figures.reward {
                Some(_) => id::REWARD,
                None => id::TRAIN_LOSS,
            };
            curve(&run.events_path(), size, figure, &scan.undone).map_err(io_error)?
        } else {
            Vec::new()
        },
        method: scan.method,
        max_steps: scan.max_steps,
        n_params: scan.n_params,
        evaluated_at: newest(&[vals, passes]),
        best: scan.measured.bests.last().map(|(best, _)| best.clone()),
        best_evaluation,
        best_whole: best_whole.flatten(),
        // A live run that has said none has taken too few steps for one.
        verdict: verdict.filter(judged).or_else(|| {
            let too_early = status == RunStatus::Live && scan.step > 0;
            too_early.then(|| TOO_EARLY.into())
        }),
        message: scan.message,
        parent: header.parent,
        start_model: scan.start_model.map(PathBuf::from),
        preset: preset_of(&asked),
        changed: changed_by(&asked),
    })
}

/// The step of the last evaluation: after a cold start the validation losses are of earlier ones than the answers.
fn newest(measured: &[&[(u64, f64)]]) -> Option<u64> {
    let last = measured.iter().filter_map(|list| list.last());
    last.map(|(step, _)| *step).max()
}

/// What the first line of a run's request was made from: `# Requested: quickstart -s lr=1e-3`.
fn preset_of(asked: &str) -> String {
    let heading = asked
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("# Requested: "));
    let named = heading.and_then(|words| words.split(" -s ").next());
    named
        .filter(|name| !name.starts_with("--"))
        .map_or(String::new(), one_line)
}

/// The words behind `-s` on the first line of a run's request, as a resume changed them since.
fn changed_by(asked: &str) -> Vec<String> {
    let words = |line: &str| -> Vec<String> { line.split(" -s ").skip(1).map(one_line).collect() };
    let mut lines = asked.lines();
    let mut changed = words(lines.next().unwrap_or_default());
    let resumed = lines.take_while(|line| line.starts_with(CHANGED_AT));
    for word in resumed.flat_map(words) {
        match changed
            .iter_mut()
            .find(|old| setting(old) == setting(&word))
        {
            Some(old) => *old = word,
            None => changed.push(word),
        }
    }
    changed
}

/// How a request reports what a resume changed.
pub const CHANGED_AT: &str = "# Changed at step ";

/// What a word behind `-s` sets; steps and epochs both say how long a run is.
fn setting(word: &str) -> &str {
    let key = word.split_once('=').map_or(word, |(key, _)| key).trim();
    match key.strip_prefix("train.").unwrap_or(key) {
        "epochs" => "max_steps",
        key => key,
    }
}

/// A figure of the steps at [`CURVE`] evenly spaced positions, but for those in `undone` parts of the log.
fn curve(path: &Path, size: u64, figure: &str, undone: &[(u64, u64)]) -> io::Result<Vec<f64>> {
    let mut points: Vec<(u64, f64)> = Vec::with_capacity(CURVE);
    for i in 0..CURVE as u64 {
        let mut tail = Tail::open_at(path, size * i / CURVE as u64)?;
        let (mut lines, mut next) = (String::new(), tail.offset());
        tail.read_lines(&mut lines, PROBE)?;
        let found = lines.lines().find_map(|line| {
            let at = next;
            next += line.len() as u64 + 1;
            let counts = !undone.iter().any(|(from, to)| (*from..*to).contains(&at));
            if !counts || kind_of(line) != Some("Stepped") {
                return None;
            }
            match decode_envelope(line).ok()?.event {
                Event::Stepped { step, values, .. } => Some((step, loss(&values, figure)?)),
                _ => None,
            }
        });
        // Probes of a short log hit the same line, and a rolled-back part occurs twice: what comes later in the log counts.
        if let Some((step, value)) = found {
            points.truncate(points.partition_point(|(before, _)| *before < step));
            points.push((step, value));
        }
    }
    Ok(points.into_iter().map(|(_, value)| value).collect())
}

#[cfg(test)]
mod tests;
