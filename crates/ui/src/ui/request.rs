//! What panes and overlays ask the workbench to do, and how answers find their way back to the pane that asked.

use super::action::Action;
use super::effect::Effect;
use super::freshness::Freshness;
use super::overlays::{Overlay, Picker};
use super::panes::PaneEntry;
use crate::run::state::Level;
use std::path::PathBuf;

/// What a pane asks for.
#[derive(Debug)]
pub enum Request {
    Do(Effect),
    /// Lay an overlay over the panes.
    Open(Box<dyn Overlay>),
    /// A list that is still open takes these rows; what was typed into it stays.
    Refill(Box<Picker>),
    /// Bring a pane to the front as it is.
    Show(&'static PaneEntry),
    /// Hand a pane an answer that no overlay asked for.
    SendAnswer(Topic, Answer),
    Toast(Level, String),
    /// Draw again; asked by a pane that is not in front, it means nothing.
    Draw(Freshness),
    /// Start a run of a preset or spec file and put it on the screen; beside a live one it is asked first.
    StartRun(String),
    /// Put a run on the screen; one that is there already is only shown.
    OpenRun(PathBuf),
    /// Let a run that ended early go on; asked first in the same way.
    ResumeRun(PathBuf),
    /// Let the pipeline of this stage's run go on; like a pipeline that is started, it waits for no other run.
    ContinuePipeline(PathBuf),
    /// Leave the workbench, as its key does.
    Leave,
    /// The preset that other panes begin with.
    Preset(Option<String>),
}

/// What an overlay was opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topic {
    /// Who gets the answer.
    pub pane: &'static PaneEntry,
    /// Which of its questions this is; the pane's own word.
    pub about: &'static str,
}

/// What a pane's question was answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A prompt's text, or the word behind a row of a list.
    Text(String),
    /// A form's values, in the order of its fields.
    Values(Vec<String>),
    Path(PathBuf),
    Paths(Vec<PathBuf>),
}

/// An action and the word for it here.
pub type Hint = (Action, &'static str);

/// The line of keys at the bottom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hints {
    /// These give way when room is short, the last ones first.
    pub own: Vec<Hint>,
    /// These stay.
    pub kept: Vec<Hint>,
}

impl Hints {
    /// Beside the keys that lead away from every pane.
    pub fn of_pane(own: Vec<Hint>) -> Hints {
        Hints {
            own,
            kept: titles(&[Action::Palette, Action::Help, Action::Leave]),
        }
    }

    /// Beside the key that closes an overlay.
    pub fn of_overlay(own: Vec<Hint>) -> Hints {
        Hints {
            own,
            kept: titles(&[Action::Cancel]),
        }
    }
}

/// Actions under their own titles.
pub fn titles(actions: &[Action]) -> Vec<Hint> {
    actions.iter().map(|a| (*a, a.info().title)).collect()
}
