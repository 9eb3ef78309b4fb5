//! Rows of lists that jobs read and panes show: what can be trained, and what one can talk to.

use crate::base::human;
use crate::base::text::shown;
use crate::run::index::RunSummary;
use crate::run::objective::{Contents, Objective};
use crate::spec::PresetGroup;
use crate::wire::Phase;
use std::path::{Path, PathBuf};

/// One thing that can be trained: a row of the home screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresetRow {
    pub name: String,
    /// One sentence.
    pub about: String,
    pub kind: PresetKind,
    /// Its model and data are still to be named: it is set up, not started.
    pub is_template: bool,
}

impl PresetRow {
    /// What lists call it: a file without its folders.
    pub fn title(&self) -> String {
        let path = Path::new(&self.name);
        let file = path.file_name().filter(|_| self.kind == PresetKind::File);
        shown(file.map_or(path, Path::new))
    }
}

/// What is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PresetKind {
    /// A spec in a file of the user's; the row's name is its path.
    File,
    Run(PresetGroup),
    Pipeline,
}

impl PresetKind {
    /// The heading of its list.
    pub fn title(self) -> &'static str {
        match self {
            PresetKind::File => "your specs: files in this folder, and saved ones",
            PresetKind::Run(group) => group.title(),
            PresetKind::Pipeline => "pipelines: several stages in one command",
        }
    }
}

/// A run that is compared: what it came to, and its resolved spec.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRun {
    pub run: RunSummary,
    pub spec: serde_json::Value,
    /// What it was trained on.
    pub contents: Contents,
}

impl ComparedRun {
    /// What its score measures.
    pub fn objective(&self) -> Objective<'_> {
        Objective {
            method: &self.run.method,
            spec: &self.spec,
            contents: &self.contents,
        }
    }
}

/// Models for the chat that are no checkpoints of runs here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelFiles {
    /// Talked to before, newest first; ids of the hub among them.
    pub recent: Vec<PathBuf>,
    /// Folders and GGUF files in the working directory and below it.
    pub near: Vec<PathBuf>,
}

impl CheckpointRow {
    /// `accuracies 0.8125`, else `val 1.93`: what stands beside "best" is what it is the best by. A last evaluation of more rows is
    /// what other screens have: `val 1.903 on 240 windows, 1.899 on all`.
    pub fn reading(&self) -> Option<String> {
        let rows = self.rows.map_or_else(String::new, |n| {
            let word = if n == 1 { "window" } else { "windows" };
            format!(" on {} {word}", human::grouped(n))
        });
        let all = self.on_all.filter(|_| self.rows.is_some());
        let all = all.map_or_else(String::new, |loss| {
            format!(", {} on all", human::number(loss))
        });
        let loss = || Some(format!("val {}{rows}{all}", human::number(self.val_loss?)));
        self.by.clone().or_else(loss)
    }
}

/// One row of the list of checkpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointRow {
    pub path: PathBuf,
    /// The run's name.
    pub run: String,
    pub step: u64,
    /// Nats per token, where the log has it.
    pub val_loss: Option<f64>,
    /// Rows that the losses of this run's list were measured on, where that was not the same for all.
    pub rows: Option<u64>,
    /// Its validation loss on the whole split, where `rows` are a part of it.
    pub on_all: Option<f64>,
    /// The reading by which the best was chosen, where that is not the validation loss: `accuracies 0.8125`.
    pub by: Option<String>,
    pub best: bool,
    /// What the run is at, while its engine lives.
    pub phase: Option<Phase>,
    /// It generates text; a reward model does not.
    pub generates: bool,
}
