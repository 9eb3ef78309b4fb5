//! Everything that leaves [`super::app::App::update`]: the runtime does it, and what comes of it returns as a message.

use super::msg::{Asked, BranchPlan, Slot};
use crate::advisor::wizard::InspectRequest;
use crate::data::inspect::Subject;
use crate::wire::Command;
use ratatui::layout::Rect;
use std::path::PathBuf;

/// What leaves.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start a run of a preset or spec file and hold it as `slot`.
    StartRun {
        slot: Slot,
        target: String,
    },
    /// Make a run of a preset or spec file that begins when the run in this directory has ended, and hold it.
    QueueRun {
        slot: Slot,
        target: String,
        after: PathBuf,
    },
    /// Start the engine of a run that ended early, from its newest checkpoint, and hold it.
    ResumeRun {
        slot: Slot,
        run_dir: PathBuf,
        /// To begin when the run in this directory has ended.
        after: Option<PathBuf>,
    },
    /// Start the engine of a pipeline that nobody drives, by the run of one of its stages, and hold the run that trains first.
    ContinuePipeline {
        slot: Slot,
        run_dir: PathBuf,
    },
    /// See whether an engine trains a run whose own has ended.
    LookForEngine(PathBuf),
    /// See how the pipeline of a stage's run stands.
    LookAtStage(PathBuf),
    /// Hold a run: live when an engine has it, else its log.
    Attach {
        slot: Slot,
        run_dir: PathBuf,
    },
    /// Hold an inference engine for a model: a checkpoint, a folder, a file.
    OpenChat {
        slot: Slot,
        model: PathBuf,
    },
    /// Read a file of tools that models of the chat may call.
    ReadTools(PathBuf),
    /// Write a conversation beside the runs.
    SaveChat(Box<SavedChat>),
    /// Let a link go; its engine goes on (an inference engine ends).
    Detach {
        slot: Slot,
    },
    Send {
        slot: Slot,
        asked: Asked,
        command: Command,
    },
    /// Start a run of a spec that is in no file, and hold it.
    StartSpec {
        slot: Slot,
        name: String,
        yaml: String,
        /// Even though a check failed.
        force: bool,
        /// To begin when the run in this directory has ended.
        after: Option<PathBuf>,
    },
    /// Gather what the wizard knows before its first question.
    OpenWizard,
    /// Read a preset for the editor.
    OpenEditor(String),
    /// Run the checks of a spec for the wizard; `round` distinguishes it from earlier rounds.
    Preflight {
        round: u64,
        yaml: String,
    },
    /// Look at a path for the wizard.
    Look(InspectRequest),
    /// Find the checkpoint where a place of a spec that wants a model may say a run.
    ModelOfRun {
        place: String,
        said: String,
    },
    /// Write a new file; never over another one.
    SaveSpec {
        path: PathBuf,
        yaml: String,
    },
    /// Complete a path; the answer names what it was asked for.
    Complete(String),
    /// Find a file name of this kind that nothing has yet; answered as a path that was completed.
    FreeName(String),
    /// Keep the wizard's answers for the next time.
    Remember(String),
    /// Use this theme at the next start, too.
    RememberTheme(String),
    /// This model was talked to: offer it first from now on.
    RememberModel(PathBuf),
    /// Ring the terminal's bell: tmux marks the window, a terminal in the background asks for attention.
    Ring,
    /// Look at this machine, for plans.
    LookAtMachine,
    /// Read a preset, a spec file or a reference model for the plan.
    PlanTarget {
        name: String,
    },
    /// Look at data; words on how far it is come in between. An inspection under way is cancelled.
    InspectData(Box<Subject>),
    RefreshRuns,
    /// See whether the folders of runs and specs are as they were, by names and times alone.
    LookAtFolders,
    /// Read the list of presets and of spec files again.
    ListPresets,
    /// The runs of pipelines' stages: follows every list of runs.
    ListStages,
    ListCheckpoints,
    /// Look for model folders and GGUF files near by.
    ListModelFiles,
    /// Read the rollouts of a run that someone wants to see.
    ReadRollouts {
        run_dir: PathBuf,
        wanted: crate::run::rollouts::RolloutQuery,
    },
    /// Compute the batch of a step again, with the loss of each token.
    Revisit {
        run_dir: PathBuf,
        step: u64,
    },
    /// What would go with the run in this directory.
    PlanRemoval(PathBuf),
    /// Delete that run.
    RemoveRun(PathBuf),
    /// Write the best checkpoint of the run in this directory for other programs.
    ExportRun {
        run_dir: PathBuf,
        /// Of `llmtui export`.
        options: Vec<String>,
        to: PathBuf,
    },
    /// What a branch would differ in.
    PlanBranch {
        run_dir: PathBuf,
        plan: BranchPlan,
    },
    /// Make a branch; it is not started.
    MakeBranch {
        run_dir: PathBuf,
        plan: BranchPlan,
    },
    /// Show a run of another machine in this terminal, and come back.
    AttachThere {
        host: usize,
        run: String,
    },
    /// Watch the machines of the user's file of hosts.
    WatchFleet,
    /// Read this machine once a second from now on; once is enough.
    WatchHardware,
    /// Write the screen, or a part of it, as a picture under this name.
    SavePicture {
        name: String,
        area: Option<Rect>,
    },
    /// Read whole runs for a comparison: their directories, or logs of other programs.
    ReadTracks(Vec<PathBuf>),
    /// What runs came to, for their ranking.
    ReadEntrants(Vec<PathBuf>),
    /// Read what models made of tasks: directories of runs, or folders of answers.
    ReadEvals(Vec<PathBuf>),
    /// Read the items of one of those tasks.
    ReadQuestions(Box<crate::tasks::TaskRow>),
    /// Look for models that have answered tasks.
    ListEvals,
    /// Draw every cell again.
    Redraw,
    /// Give the terminal back to the shell until `fg`.
    Suspend,
    Quit,
}

/// Both texts of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedChat {
    /// For the files' names.
    pub name: String,
    pub markdown: String,
    /// One row for each model.
    pub jsonl: String,
}
