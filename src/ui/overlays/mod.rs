//! What lies over the panes: a stack of which the topmost has the keyboard. An overlay answers with a [`Reply`]; the app
//! acts on it.

mod form;
mod help;
mod leave;
mod picker;
mod prompt;

pub use form::{Field, Form, FormKind};
pub use help::HelpSheet;
pub use leave::{LeaveChoice, LeaveQuestion};
pub use picker::{Item, Picker};
pub use prompt::{Prompt, PromptKind};

use super::action::{Action, Context};
use super::hit::HitMap;
use super::keymap::Keymap;
use super::msg::CheckpointRow;
use super::theme::Theme;
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use std::path::PathBuf;

/// What an overlay was for, once it is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    Action(Action),
    StartPreset(String),
    OpenRun(PathBuf),
    Theme(String),
    Checkpoint(CheckpointRow),
    Form(FormKind, Vec<String>),
    Prompt(PromptKind, String),
    Leave(LeaveChoice),
}

/// What an overlay says to a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Stay,
    /// Closed without an answer.
    Close,
    Chosen(Choice),
}

/// What drawing needs besides the overlay.
pub struct Canvas<'a> {
    pub theme: &'a Theme,
    pub keymap: &'a Keymap,
    pub hits: &'a mut HitMap,
}

/// One overlay.
#[derive(Debug)]
pub enum Overlay {
    Help(HelpSheet),
    Picker(Picker),
    Form(Form),
    Prompt(Prompt),
    Leave(LeaveQuestion),
}

impl Overlay {
    /// Contexts whose keys hold, the first one first.
    pub fn contexts(&self) -> &'static [Context] {
        match self {
            Overlay::Leave(_) => &[Context::Leave, Context::List, Context::Global],
            _ => &[Context::List, Context::Global],
        }
    }

    /// True when letters are text.
    pub fn typing(&self) -> bool {
        matches!(
            self,
            Overlay::Picker(_) | Overlay::Form(_) | Overlay::Prompt(_)
        )
    }

    pub fn act(&mut self, action: Action) -> Reply {
        match self {
            Overlay::Help(o) => o.act(action),
            Overlay::Picker(o) => o.act(action),
            Overlay::Form(o) => o.act(action),
            Overlay::Prompt(o) => o.act(action),
            Overlay::Leave(o) => o.act(action),
        }
    }

    /// A key that no binding took.
    pub fn key(&mut self, key: KeyEvent) {
        match self {
            Overlay::Picker(o) => o.key(key),
            Overlay::Form(o) => o.key(key),
            Overlay::Prompt(o) => o.key(key),
            Overlay::Help(_) | Overlay::Leave(_) => {}
        }
    }

    pub fn paste(&mut self, text: &str) {
        match self {
            Overlay::Picker(o) => o.paste(text),
            Overlay::Form(o) => o.paste(text),
            Overlay::Prompt(o) => o.paste(text),
            Overlay::Help(_) | Overlay::Leave(_) => {}
        }
    }

    /// A click on one of its rows.
    pub fn click(&mut self, row: usize) -> Reply {
        match self {
            Overlay::Picker(o) => o.click(row),
            Overlay::Form(o) => o.click(row),
            Overlay::Leave(o) => o.click(row),
            Overlay::Help(_) | Overlay::Prompt(_) => Reply::Stay,
        }
    }

    pub fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        match self {
            Overlay::Help(o) => o.draw(frame, area, canvas),
            Overlay::Picker(o) => o.draw(frame, area, canvas),
            Overlay::Form(o) => o.draw(frame, area, canvas),
            Overlay::Prompt(o) => o.draw(frame, area, canvas),
            Overlay::Leave(o) => o.draw(frame, area, canvas),
        }
    }
}
