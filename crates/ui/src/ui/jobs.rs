//! What takes a while, away from the UI's thread: files, sockets, processes.

mod chats;
mod complete;
mod evals;
mod folders;
pub mod kept;
pub mod listed;
mod pictures;
mod pipelines;
mod revisit;
mod tracks;

pub use complete::complete;
pub use evals::questions;
pub use kept::remember_spec;
#[cfg(test)]
pub use pictures::save_in;
pub use pictures::{part, save_picture};
pub use pipelines::begin_pipeline;
pub use tracks::{read_entrant, read_track};

use super::effect::SavedChat;
use super::msg::{Holder, Msg, Opened, SavedSpec};
use super::rows::{CheckpointRow, ModelFiles, PresetRow};
use crate::advisor::saved_answers;
use crate::advisor::wizard::{Answers, Context, InspectRequest, Inspection};
use crate::base::clock::{Clock, SystemClock, pause};
use crate::base::paths::{Env, expand_home};
use crate::data::chat::tool_calls::read_tools;
use crate::data::formats::in_options;
use crate::data::inspect::{Progress, Subject};
use crate::data::source::ReadContext;
use crate::gguf::first_part;
use crate::hardware::{Live, Provider, Recorded, Recording};
use crate::link::launch::{EngineOptions, Launcher};
use crate::link::{Link, message};
use crate::plan::probe::Measure;
use crate::plan::start;
use crate::run::index::{self, RunStatus, RunSummary};
use crate::run::{KeptCheckpoint, RunDir, RunError};
use crate::spec::{Draft, SpecSources};
use crate::wire::{Event, id};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two readings of the machine.
const SECOND: Duration = Duration::from_secs(1);
/// Time between two words on how far an inspection is.
const TELL: Duration = Duration::from_millis(200);
/// Readings from one look at the whole machine to the next.
const WHOLE_LOOK: u64 = 15;

/// What jobs need to know.
#[derive(Debug, Clone)]
pub struct JobContext {
    pub runs_dir: PathBuf,
    pub env: Env,
    pub sources: SpecSources,
    /// A recorded machine to show instead of this one.
    pub hardware: Option<Recording>,
    /// How this machine's speed is found.
    pub measure: Measure,
}

/// Why nothing was started, and below it what to do; lists keep their lines.
fn refusal(what: &str, hint: &str) -> String {
    format!("{what}\n\ntry: {hint}")
}

/// A run whose directory cannot be made.
fn not_a_new_run(error: &RunError) -> String {
    let hint = format!(
        "{}, or choose another location with --runs-dir DIR",
        error.hint()
    );
    refusal(
        &format!("the run's directory cannot be created: {error}"),
        &hint,
    )
}

/// The last run of the queue behind a run: another one may have queued there since the list was read.
fn last_behind(folder: PathBuf) -> PathBuf {
    match RunDir::open(&folder) {
        Ok(run) => index::end_of_queue(&run).path().to_path_buf(),
        Err(_) => folder,
    }
}

/// A link and what is at its other end.
pub type Linked = Result<(Opened, Link), String>;

impl JobContext {
    /// Makes a run of a preset or spec file and starts its engine, which waits for the end of the run in the directory `after`.
    pub fn start(&self, target: &str, after: Option<PathBuf>) -> Linked {
        let loaded = crate::spec::load(target, &[], &self.sources).map_err(|e| e.to_string())?;
        let options = EngineOptions {
            after: after.map(last_behind),
            ..EngineOptions::default()
        };
        self.start_loaded(loaded, &options)
    }

    /// Makes a run of a spec that is in no file and starts its engine; `force`: even though a check failed.
    pub fn start_text(
        &self,
        name: &str,
        yaml: &str,
        force: bool,
        after: Option<PathBuf>,
    ) -> Linked {
        let loaded =
            crate::spec::load_text(name, yaml, &self.sources).map_err(|e| e.to_string())?;
        let options = EngineOptions {
            force,
            after: after.map(last_behind),
            ..EngineOptions::default()
        };
        self.start_loaded(loaded, &options)
    }

    fn start_loaded(&self, mut loaded: crate::spec::Loaded, options: &EngineOptions) -> Linked {
        let decided = start::resolve_auto_engine(&mut loaded, &self.env);
        let spec = &loaded.spec;
        // One that waits is checked when its turn has come: what the other run holds is free then.
        if options.after.is_none() {
            start::check(spec, &self.env).map_err(|e| refusal(&e.what, &e.hint))?;
        }
        spec.finds_torch(&self.env)
            .map_err(|(what, hint)| refusal(&what, hint))?;
        start::check_small_data(spec, &self.env).map_err(|e| refusal(&e.to_string(), &e.hint()))?;
        let run = start::new_run(&self.runs_dir, &loaded, None, &SystemClock::new())
            .map_err(|e| not_a_new_run(&e))?;
        let (mut opened, link) = self.launch(&run, options)?;
        opened.decided = decided;
        Ok((opened, link))
    }

    /// What the wizard knows before its first question, and the answers of the last time.
    pub fn wizard(&self) -> (Context, Answers) {
        let best = crate::run::index::best_checkpoints(&self.runs_dir);
        let best = best.map(|folder| folder.display().to_string());
        let (sample, machine) = (saved_answers::sample(&self.env), self.machine_facts());
        let mut context = Context::gather_for(&sample, &self.sources, best, machine);
        context.runs_dir = Some(self.runs_dir.clone());
        (context, saved_answers::answers(&self.env))
    }

    /// The checkpoint of a run that is named where a model is wanted; `None` for what means no run.
    pub fn model_of_run(&self, said: &str) -> Option<Result<PathBuf, String>> {
        start::model_of_run(&self.runs_dir, said, self.env.home.as_deref())
    }

    /// Looks at what the wizard asks for; a run in a model's place is its checkpoint, and an id of the hub its place in the cache.
    pub fn look(&self, look: InspectRequest) -> Inspection {
        let hub = |said: &str| {
            let cache = self.sources.hub_cache.as_deref();
            start::model_of_hub(said, self.env.home.as_deref(), cache)
        };
        if let InspectRequest::Model { path, .. } = &look
            && let said = path.to_string_lossy()
            && let Some(found) = self.model_of_run(&said).or_else(|| hub(&said))
        {
            return Inspection::Run(path.clone(), found);
        }
        look.now(self.env.home.as_deref())
    }

    /// The machine as the wizard sees it: this one, or the recorded one, of whose speed nothing is known.
    fn machine_facts(&self) -> crate::advisor::inspection::Machine {
        let (summary, known) = match &self.hardware {
            Some(recording) => {
                let summary = Recorded::new(recording.clone()).machine().summary();
                (summary, Default::default())
            }
            None => {
                let summary = Live::new(&self.env).machine().summary();
                (summary, self.machine())
            }
        };
        crate::advisor::inspection::Machine::of(summary, known)
    }

    /// Runs the checks of a spec in a process of its own and reports each; ends it when `take` wants no more.
    ///
    /// # Errors
    /// Why they could not be made.
    pub fn preflight(&self, yaml: &str, take: &mut dyn FnMut(Event) -> bool) -> Result<(), String> {
        let launcher = Launcher::this_program(&self.env).map_err(|e| e.to_string())?;
        launcher
            .preflight(yaml, &self.runs_dir, take)
            .map_err(|e| e.to_string())
    }

    /// Keeps the wizard's answers. A disk that does not take them costs only the comfort of the next time.
    pub fn remember(&self, answers: &str) {
        let _ = saved_answers::keep(&self.env, answers);
    }

    /// Keeps the theme for the next start. A disk that does not take it costs only that.
    pub fn remember_theme(&self, name: &str) {
        let _ = kept::keep_theme(&self.env, name);
    }

    /// Writes a spec into a new file, and says whether it can be trained as it is; a file that is there already stays.
    ///
    /// # Errors
    /// The path is wrong, a file is there already, or the disk does not take it.
    pub fn save(&self, path: PathBuf, yaml: &str) -> Result<SavedSpec, String> {
        let path = self.typed(&path)?;
        crate::spec::save_new(&path, yaml).map_err(|e| e.to_string())?;
        remember_spec(&self.env, &path);
        let name = path.display().to_string();
        let loaded = crate::spec::load_text(&name, yaml, &self.sources);
        let fault = loaded.err().and_then(|errors| {
            let first = errors.issues().first()?;
            Some(first.line())
        });
        Ok(SavedSpec { path, fault })
    }

    /// The path itself where nothing is there, else the first of `NAME-2.yaml`, `NAME-3.yaml` … that is free, as it would be typed.
    pub fn free_name(&self, said: &str) -> String {
        let place = self.typed(Path::new(said));
        place.map_or(said.into(), |place| free_name(said, &place))
    }

    /// Presets, and the spec files of the user.
    pub fn presets(&self) -> Vec<PresetRow> {
        listed::presets(&self.env, &self.sources)
    }

    /// A preset or file for the editor.
    ///
    /// # Errors
    /// The preset or file cannot be read.
    pub fn draft(&self, target: &str) -> Result<Box<Draft>, String> {
        Draft::open(target, &self.sources)
            .map(Box::new)
            .map_err(|e| e.to_string())
    }

    /// Lets a run that ended early go on from its newest checkpoint.
    pub fn resume(&self, path: &Path, after: Option<PathBuf>) -> Linked {
        let run = RunDir::open(path).map_err(|e| e.to_string())?;
        // Somebody else was faster.
        if run.is_alive() {
            return self.join(&run);
        }
        let options = EngineOptions {
            resume: true,
            after: after.map(last_behind),
            ..EngineOptions::default()
        };
        self.launch(&run, &options)
    }

    /// Starts the engine of a run that exists, and joins it.
    pub fn launch(&self, run: &RunDir, options: &EngineOptions) -> Linked {
        let launcher = Launcher::this_program(&self.env).map_err(|e| e.to_string())?;
        launcher
            .start_detached(run, options)
            .map_err(|e| e.to_string())?;
        self.join(run)
    }

    /// Joins a run: live when an engine has it, else its log.
    pub fn attach(&self, path: &Path) -> Linked {
        self.join(&RunDir::open(path).map_err(|e| e.to_string())?)
    }

    fn join(&self, run: &RunDir) -> Linked {
        let link = crate::link::open(run, &self.env).map_err(|e| e.to_string())?;
        let holder = if link.live() {
            Holder::Detached
        } else {
            Holder::Log
        };
        let mut opened = Opened::new(run.path(), holder);
        opened.stage = pipelines::stage_of(run, &self.runs_dir);
        Ok((opened, link))
    }

    /// A path as it was typed, `~` replaced.
    fn typed(&self, said: &Path) -> Result<PathBuf, String> {
        let full = expand_home(said, Path::new(""), self.env.home.as_deref());
        full.map_err(|(what, fix)| format!("{what}; {fix}"))
    }

    /// Starts a process that holds a model.
    pub fn chat(&self, model: &Path) -> Linked {
        let model = &self.typed(model)?;
        let launcher = Launcher::this_program(&self.env).map_err(|e| e.to_string())?;
        let link = launcher.infer(model).map_err(|e| e.to_string())?;
        Ok((Opened::new(model, Holder::Detached), link))
    }

    /// Models that were talked to, and those in the working directory and below it.
    pub fn model_files(&self) -> ModelFiles {
        let recent = kept::models(&self.env);
        let mut near = chats::model_files(Path::new("."));
        near.retain(|path| std::path::absolute(path).is_ok_and(|path| !recent.contains(&path)));
        ModelFiles { recent, near }
    }

    /// Keeps a model for the list of the next time. A disk that does not take it costs only that.
    pub fn remember_model(&self, model: &Path) {
        if let Ok(model) = self.typed(model) {
            let _ = kept::keep_model(&self.env, &first_part(&model));
        }
    }

    /// Reads a file of tool definitions.
    ///
    /// # Errors
    /// A sentence: it has none.
    pub fn tools(&self, path: &Path) -> Result<Vec<serde_json::Value>, String> {
        read_tools(&self.typed(path)?)
    }

    /// Writes a conversation into a folder beside the runs.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn save_chat(&self, saved: &SavedChat) -> Result<Vec<PathBuf>, String> {
        let beside = self.runs_dir.parent().unwrap_or(Path::new("."));
        chats::save(&beside.join("chats"), saved, SystemClock::new().now())
    }

    /// This machine as plans see it.
    pub fn machine(&self) -> crate::plan::calibration::Machine {
        crate::plan::calibration::Machine::load_or_measure(&self.env, self.measure)
    }

    /// What a plan is made of; reads the spec's data where its vocabulary follows from them.
    ///
    /// # Errors
    /// No target has that name, or its data cannot be read; with a hint.
    pub fn plan(&self, name: &str) -> Result<Box<crate::plan::Request>, String> {
        let request = crate::plan::target::resolve(name, &[], &self.sources);
        let request = request.map(Box::new);
        request.map_err(|e| message::line(&e.to_string(), &e.hint()))
    }

    /// Where rows of data are read from.
    pub fn reading(&self) -> ReadContext {
        crate::data::inspect::reading(&self.env)
    }

    /// Reads the machine once a second, and all of it now and then, until `take` says that nobody listens.
    pub fn watch_hardware(&self, take: impl Fn(Msg) -> bool) {
        let mut provider: Box<dyn Provider> = match &self.hardware {
            Some(recording) => Box::new(Recorded::new(recording.clone())),
            None => Box::new(
                Live::new(&self.env)
                    .with_runs_in(&self.runs_dir)
                    .with_terminal(true),
            ),
        };
        for second in 0_u64.. {
            let whole = second.is_multiple_of(WHOLE_LOOK);
            let machine = whole.then(|| Box::new(provider.machine()));
            let values = provider.sample();
            if !take(Msg::Hardware { machine, values }) {
                return;
            }
            pause(SECOND);
        }
    }

    /// Every run, and in words those that cannot be read.
    ///
    /// # Errors
    /// The folder of runs cannot be read.
    pub fn runs(&self) -> Result<(Vec<RunSummary>, Vec<String>), String> {
        let (runs, unreadable) =
            index::list(&self.runs_dir).map_err(|e| format!("{}: {e}", self.runs_dir.display()))?;
        Ok((runs, unreadable.iter().map(ToString::to_string).collect()))
    }

    /// Every checkpoint of every run, newest run first and newest checkpoint first.
    pub fn checkpoints(&self) -> Vec<CheckpointRow> {
        let runs = self.runs().map(|(runs, _)| runs).unwrap_or_default();
        runs.iter().flat_map(checkpoints_of).collect()
    }
}

/// Looks at data, with words on how far it is, until it is done, cancelled, or `take` says that nobody listens.
pub fn inspect(
    subject: &Subject,
    context: &ReadContext,
    home: Option<&Path>,
    given_up: &AtomicBool,
    take: impl Fn(Msg) -> bool,
) {
    let name = subject.name.clone();
    let clock = SystemClock::new();
    let mut told = clock.now();
    let mut progress = |progress: Progress| {
        if given_up.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        let now = clock.now();
        if now.since(told) < TELL {
            return ControlFlow::Continue(());
        }
        told = now;
        let name = name.clone();
        match take(Msg::DataProgress { name, progress }) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    };
    // A thread that dies would leave the pane waiting for ever.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let subject = subject.clone().expanded(home)?;
        subject.inspect(context, &mut progress)
    }));
    let result = match result {
        Ok(Ok(inspected)) => Ok(Arc::new(inspected)),
        // Options may follow the path: a mapping is shown as one types it there.
        Ok(Err(e)) => Err(message::line(&e.to_string(), &in_options(&e.hint()))),
        Err(_) => Err("the inspection crashed (a bug); see the crash file".into()),
    };
    if !given_up.load(Ordering::Relaxed) {
        let name = subject.name.clone();
        take(Msg::DataInspected { name, result });
    }
}

fn checkpoints_of(summary: &RunSummary) -> Vec<CheckpointRow> {
    let Ok(run) = RunDir::open(&summary.path) else {
        return Vec::new();
    };
    let other = |kept: &KeptCheckpoint| {
        let by = kept
            .by
            .as_ref()
            .filter(|by| by.metric == id::VAL_LOSS && kept.rows.is_some())?;
        kept.val_loss.filter(|loss| *loss != by.value.0)
    };
    let row = |kept: KeptCheckpoint| CheckpointRow {
        rows: kept.rows,
        on_all: other(&kept),
        // Like with like: on the rows that all of them were measured on.
        val_loss: match (&kept.by, kept.rows) {
            (Some(by), Some(_)) if by.metric == id::VAL_LOSS => Some(by.value.0),
            _ => kept.val_loss,
        },
        by: kept.by.and_then(|by| by.brief()),
        best: kept.best,
        phase: summary.phase.filter(|_| summary.status == RunStatus::Live),
        generates: !summary.judges(),
        run: summary.id.clone(),
        step: kept.entry.step,
        path: kept.entry.path,
    };
    run.kept().into_iter().rev().map(row).collect()
}

/// A name for a new file, written like `said`, which means `place`.
fn free_name(said: &str, place: &Path) -> String {
    if place.symlink_metadata().is_err() {
        return said.into();
    }
    let free = crate::spec::free_path(place);
    let free = Path::new(said).with_file_name(free.file_name().unwrap_or_default());
    free.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{ManualClock, UnixMillis};
    use crate::wire::{Envelope, encode};

    /// The chat takes the row that is marked, `llmtui chat RUN` what the run calls its best.
    #[test]
    fn the_best_row_is_the_best_checkpoint_that_is_kept() {
        let runs = tempfile::tempdir().unwrap();
        let run = RunDir::create(runs.path(), "x", "", "", &ManualClock::at(0)).unwrap();
        for step in [100, 300] {
            let folder = run.checkpoint_path(step);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("manifest.json"), "{}").unwrap();
        }
        // The best of all was deleted by hand.
        let saved = [(100, true), (200, true), (300, false)];
        let lines = (1..).zip(saved).map(|(seq, (step, best))| {
            encode(&Envelope {
                v: crate::wire::VERSION,
                seq,
                t: UnixMillis(0),
                event: Event::Checkpointed {
                    step,
                    path: crate::run::checkpoints::path_in_run(step),
                    bytes: 1,
                    seconds: 0.0,
                    best,
                    val_loss: Some(crate::wire::Num(0.76)),
                    by: best.then(|| crate::wire::Best {
                        step,
                        metric: "val/rewards/accuracies".into(),
                        value: crate::wire::Num(0.8125),
                        direction: crate::wire::Direction::Higher,
                    }),
                },
            })
        });
        std::fs::write(run.events_path(), lines.collect::<String>()).unwrap();
        let rows = checkpoints_of(&index::summarize(&run).unwrap());
        let marks: Vec<(u64, bool)> = rows.iter().map(|row| (row.step, row.best)).collect();
        assert_eq!(marks, [(300, false), (100, true)]);
        // A loss beside the best one was no reason for it: that of another one was lower.
        let readings: Vec<_> = rows.iter().filter_map(CheckpointRow::reading).collect();
        assert_eq!(readings[1], "accuracies 0.8125");
        assert!(readings[0].starts_with("val 0.76"), "{readings:?}");
        assert_eq!(run.best_checkpoint().unwrap().step, 100);
    }

    #[test]
    fn a_free_name_is_written_as_the_taken_one_was() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("a.yaml");
        assert_eq!(free_name("~/a.yaml", &place), "~/a.yaml");
        std::fs::write(&place, "").unwrap();
        assert_eq!(free_name("~/a.yaml", &place), "~/a-2.yaml");
        std::fs::write(home.path().join("a-2.yaml"), "").unwrap();
        assert_eq!(free_name("a.yaml", &place), "a-3.yaml");
    }
}
