//! Everything that enters [`super::app::App::update`].

use crate::advisor::wizard::{Answers, Context, Inspection};
use crate::base::text::one_line;
use crate::data::inspect::{Inspected, Progress};
use crate::hardware::Machine;
use crate::link::Incoming;
use crate::run::index::RunSummary;
use crate::spec::Draft;
use crate::ui::rows::{CheckpointRow, ModelFiles, PresetRow};
use crate::wire::{CommandId, Event, Values};
use crossterm::event::{KeyEvent, MouseEvent};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Names one held link. Numbers are never used again, so that a late message of a link that was let go finds no one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// What enters.
#[derive(Debug)]
pub enum Msg {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize,
    /// Time went on; sent only while [`super::app::App::tick`] asks for it.
    Tick,
    /// What a link brought since the last frame, in order.
    Incoming {
        slot: Slot,
        batch: Vec<Incoming>,
    },
    /// A link is there, or why not.
    Opened {
        slot: Slot,
        result: Result<Opened, String>,
    },
    /// What was asked of a run whose engine has ended: another one trains it.
    EngineFound {
        run_dir: PathBuf,
        alive: bool,
    },
    /// How the pipeline of a run stands by now; nothing where it is the run of no stage.
    StageSeen {
        run_dir: PathBuf,
        stage: Option<StageOf>,
    },
    /// A command went out with this id, or why not.
    Sent {
        slot: Slot,
        asked: Asked,
        result: Result<CommandId, String>,
    },
    /// The runs directory was read; the second half says what could not be.
    Runs(Result<(Vec<RunSummary>, Vec<String>), String>),
    /// Runs of pipelines' stages by their ids.
    Stages(BTreeMap<String, StageOf>),
    /// Presets and spec files, as they are now.
    Presets(Vec<PresetRow>),
    /// Every checkpoint that one could talk to, newest run first.
    Checkpoints(Vec<CheckpointRow>),
    /// Model folders and GGUF files near by.
    ModelFiles(ModelFiles),
    /// The tools of a file, or why it has none.
    Tools {
        path: PathBuf,
        result: Result<Vec<serde_json::Value>, String>,
    },
    /// A conversation was written into these files, or why not.
    ChatSaved(Result<Vec<PathBuf>, String>),
    /// The screen was written as a picture, or why not.
    PictureSaved(Result<PathBuf, String>),
    /// The wizard can begin.
    Wizard(Box<Context>, Box<Answers>),
    /// What the wizard asked to look at.
    Seen(Box<Inspection>),
    /// A check of a round was made.
    Checked {
        round: u64,
        event: Box<Event>,
    },
    /// A round of checks is over, or could not be made.
    ChecksOver {
        round: u64,
        result: Result<(), String>,
    },
    /// A preset for the editor, or what is wrong with it.
    Editor {
        /// As it was asked for.
        target: String,
        draft: Result<Box<Draft>, String>,
    },
    /// A spec was written, or why not.
    Saved(Result<SavedSpec, String>),
    /// The checkpoint of a run that a spec's place says, or why it has none; nothing where it says no run.
    ModelOfRun {
        place: String,
        said: String,
        found: Option<Result<PathBuf, String>>,
    },
    /// A path was completed.
    Completed {
        /// As it was when it was asked for.
        of: String,
        /// As far as it is unambiguous.
        path: String,
        /// What it could go on with.
        names: Vec<String>,
    },
    /// Readings of this machine, now and then with a new look at the whole of it.
    Hardware {
        machine: Option<Box<Machine>>,
        values: Values,
    },
    /// This machine as plans see it.
    Machine(Box<crate::plan::calibration::Machine>),
    /// What was to be planned is there, or why not.
    Planned {
        name: String,
        result: Result<Box<crate::plan::Request>, String>,
    },
    /// How far an inspection of data is.
    DataProgress {
        name: String,
        progress: Progress,
    },
    /// Data were looked at, or why not.
    DataInspected {
        name: String,
        result: Result<Arc<Inspected>, String>,
    },
    /// Rollouts of a run, or why they cannot be read.
    Rollouts {
        run_dir: PathBuf,
        wanted: crate::run::rollouts::RolloutQuery,
        result: Result<Box<crate::run::rollouts::Found>, String>,
    },
    /// The batch of a step was computed again, or why not.
    Revisited {
        run_dir: PathBuf,
        step: u64,
        result: Result<Box<Revisited>, String>,
    },
    /// A number for the folders of runs and specs as they are; another one when something came, went or changed.
    Folders(u64),
    /// What would go with a run, line by line, or why it cannot be deleted.
    RemovalPlanned {
        run_dir: PathBuf,
        result: Result<Vec<String>, String>,
    },
    /// A run was deleted, or why not.
    RunRemoved {
        run_dir: PathBuf,
        result: Result<(), String>,
    },
    /// A run was written to a folder for other programs, or why not.
    RunExported {
        to: PathBuf,
        result: Result<(), String>,
    },
    /// What a branch would differ in, line by line, or why it cannot be.
    BranchPlanned {
        run_dir: PathBuf,
        plan: BranchPlan,
        result: Result<Vec<String>, String>,
    },
    /// The directory of a new branch, or why there is none.
    BranchMade {
        run_dir: PathBuf,
        result: Result<PathBuf, String>,
    },
    /// These machines are watched from now on.
    FleetOpened(Vec<crate::fleet::Host>),
    /// What one of them says.
    Fleet {
        at: usize,
        said: crate::fleet::ConnectionEvent,
    },
    /// Runs for a comparison, in the order of the paths; of each, or why it cannot be read.
    Tracks {
        paths: Vec<PathBuf>,
        results: Vec<Result<crate::run::compare::Track, String>>,
    },
    /// What runs came to, for their ranking: those of the paths that are runs of ours.
    Entrants {
        paths: Vec<PathBuf>,
        found: Vec<crate::ui::rows::ComparedRun>,
    },
    /// What models made of tasks, or why it cannot be read.
    Evals {
        subjects: Vec<PathBuf>,
        result: Result<Box<crate::tasks::TaskTable>, String>,
    },
    /// The items of a task, or why they cannot be read.
    Questions {
        row: Box<crate::tasks::TaskRow>,
        result: Result<Vec<crate::tasks::Question>, String>,
    },
    /// Models that have answered tasks, and the folders of their answers.
    EvalModels(Vec<(String, PathBuf)>),
    /// The next stage of the pipeline that is watched trains: its run's directory.
    NextStage(PathBuf),
    /// Back from the shell.
    Resumed,
    /// Something to tell.
    Said(crate::run::state::Level, String),
    /// The terminal hung up or someone asked this process to end: leave at once, runs go on.
    Terminated,
}

/// A branch that is being thought of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchPlan {
    /// It goes on from the newest checkpoint up to this step.
    pub step: u64,
    /// As after `-s`.
    pub settings: Vec<String>,
}

/// The batch of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Revisited {
    pub step: u64,
    pub rows: Vec<crate::run::revisit::Row>,
    /// Mean loss of the rows of the step before by the same weights, nats per token.
    pub before: Option<f64>,
}

/// A spec in a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSpec {
    pub path: PathBuf,
    /// Why it cannot be trained as it is.
    pub fault: Option<String>,
}

/// What is at the other end of a new link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The run's directory, or the checkpoint's.
    pub path: PathBuf,
    pub holder: Holder,
    /// What was decided for the user when it was started.
    pub decided: Option<String>,
    /// Where it is the run of a pipeline's stage.
    pub stage: Option<StageOf>,
}

/// A run's place in a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageOf {
    /// The pipeline's id: several may have its name.
    pub id: String,
    /// The pipeline's name.
    pub pipeline: String,
    pub stage: String,
    /// From 1.
    pub number: usize,
    pub n_stages: usize,
    /// It is done or was left out: the pipeline goes on behind it.
    pub is_over: bool,
    /// The pipeline as it was when somebody looked last.
    pub standing: PipelineStatus,
    /// The first stage behind it that is not done.
    pub next: Option<String>,
    /// The stage that trains now, where that is another one, and its run's directory.
    pub live: Option<(String, PathBuf)>,
    /// What stages that train nothing have made, and where.
    pub outputs: Vec<(&'static str, PathBuf)>,
}

/// How a pipeline stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineStatus {
    Finished,
    /// An engine drives it.
    Running,
    /// It failed, was stopped or crashed; what goes on with the stages that are left.
    Halted {
        resume: String,
    },
}

impl StageOf {
    /// What goes on with its pipeline, where nobody does.
    pub fn resume(&self) -> Option<&str> {
        match &self.standing {
            PipelineStatus::Halted { resume } => Some(resume),
            PipelineStatus::Finished | PipelineStatus::Running => None,
        }
    }

    /// Whether its pipeline, which nobody drives, goes on where its run is: with the run, or behind it where no steps of it are left.
    pub fn continues(&self, steps_left: bool) -> bool {
        self.resume().is_some() && !(self.is_over && steps_left)
    }

    /// `stage 2 of 3`
    pub fn place(&self) -> String {
        format!("stage {} of {}", self.number, self.n_stages)
    }

    /// `next: rl`, while the pipeline has stages left behind this one and an engine drives it.
    pub fn next_words(&self) -> Option<String> {
        let driven = self.standing == PipelineStatus::Running;
        let next = self.next.as_deref().filter(|_| driven)?;
        Some(format!("next: {}", one_line(next)))
    }

    /// `stage sft, 2 of 3, of pipeline chat`
    pub fn words(&self) -> String {
        let (stage, pipeline) = (one_line(&self.stage), one_line(&self.pipeline));
        let (number, n) = (self.number, self.n_stages);
        format!("stage {stage}, {number} of {n}, of pipeline {pipeline}")
    }
}

impl Opened {
    pub fn new(path: impl Into<PathBuf>, holder: Holder) -> Opened {
        Opened {
            path: path.into(),
            holder,
            decided: None,
            stage: None,
        }
    }
}

/// Who holds the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A process of its own, which outlives this one.
    Detached,
    /// This process: leaving stops it.
    Here,
    /// Nobody: the run is over and its log is read.
    Log,
    /// Another program: its log can be watched, and nothing else.
    Foreign,
}

/// What a command was for, in the words of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Pause,
    Resume,
    Checkpoint,
    Evaluate,
    Sample,
    Adjust,
    Note,
    Rollback,
    UndoRescue,
    Stop,
    Generate,
    CancelAnswer,
    Adapter,
}

impl Asked {
    /// The request as a noun, for `… is under way` and `… refused`.
    pub fn word(self) -> &'static str {
        match self {
            Asked::Pause => "pause",
            Asked::Resume => "resume",
            Asked::Checkpoint => "checkpoint",
            Asked::Evaluate => "evaluation",
            Asked::Sample => "sample",
            Asked::Adjust => "change",
            Asked::Note => "note",
            Asked::Rollback => "rollback",
            Asked::UndoRescue => "undo",
            Asked::Stop => "stop",
            Asked::Generate => "answer",
            Asked::CancelAnswer => "cancel",
            Asked::Adapter => "adapter",
        }
    }

    /// What the engine is going to do, for `… after this step`.
    pub fn doing(self) -> &'static str {
        match self {
            Asked::Pause => "pausing",
            Asked::Resume => "going on",
            Asked::Stop => "stopping",
            Asked::Evaluate => "evaluating",
            Asked::Sample => "sampling",
            Asked::Rollback => "going back",
            Asked::UndoRescue => "undoing the rescue",
            asked => asked.word(),
        }
    }
}
