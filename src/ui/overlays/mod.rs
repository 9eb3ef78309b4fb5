//! What lies over the panes: a stack of which the topmost has the keyboard. An overlay answers with a [`Reply`]; the app
//! acts on it.

mod editor;
mod form;
mod help;
mod leave;
mod picker;
mod prompt;
mod wizard;

pub use editor::Editor;
pub use form::{Field, Form, FormKind};
pub use help::HelpSheet;
pub use leave::{LeaveChoice, LeaveQuestion};
pub use picker::{Item, Picker};
pub use prompt::{Prompt, PromptKind};
pub use wizard::WizardScreen;

use super::action::{Action, Context};
use super::hit::HitMap;
use super::keymap::Keymap;
use super::panes::chat::ChatModel;
use super::theme::Theme;
use crate::advisor::wizard::Look;
use crate::spec::Draft;
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use std::path::PathBuf;

/// What an overlay was for, once it is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    Action(Action),
    StartPreset(String),
    /// Train a spec that is in no file.
    StartSpec {
        name: String,
        yaml: String,
    },
    EditPreset(String),
    OpenRun(PathBuf),
    Theme(String),
    /// A model to talk to; `ModelPath` asks for one by its place.
    Model(Box<ChatModel>),
    ModelPath,
    /// What to plan: a name, or none for the run on the screen.
    PlanTarget(Option<String>),
    /// A GPU of the table, or none for this machine.
    PlanDevice(Option<String>),
    Form(FormKind, Vec<String>),
    Prompt(PromptKind, String),
    Leave(LeaveChoice),
}

/// What an overlay says to a key.
#[derive(Debug)]
pub enum Reply {
    Stay,
    /// Closed without an answer.
    Close,
    Chosen(Choice),
    /// Look at a path and say what was found; the overlay waits.
    Look(Look),
    /// Run the checks of this spec; the overlay waits.
    Check(String),
    /// Write a new file; the overlay waits.
    Save {
        path: PathBuf,
        yaml: String,
    },
    /// Open an editor on top.
    Edit(Box<Draft>),
}

impl PartialEq for Reply {
    /// Drafts have no equality; nobody asks for theirs.
    fn eq(&self, other: &Reply) -> bool {
        match (self, other) {
            (Reply::Stay, Reply::Stay) | (Reply::Close, Reply::Close) => true,
            (Reply::Chosen(a), Reply::Chosen(b)) => a == b,
            (Reply::Look(a), Reply::Look(b)) => a == b,
            (Reply::Check(a), Reply::Check(b)) => a == b,
            (Reply::Save { path: a, yaml: x }, Reply::Save { path: b, yaml: y }) => {
                (a, x) == (b, y)
            }
            _ => false,
        }
    }
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
    Wizard(Box<WizardScreen>),
    Editor(Box<Editor>),
}

impl Overlay {
    /// Contexts whose keys hold, the first one first.
    pub fn contexts(&self) -> &'static [Context] {
        match self {
            Overlay::Editor(_) => &[Context::Editor, Context::List, Context::Global],
            Overlay::Leave(_) => &[Context::Leave, Context::List, Context::Global],
            _ => &[Context::List, Context::Global],
        }
    }

    /// True when letters are text.
    pub fn typing(&self) -> bool {
        match self {
            Overlay::Picker(_) | Overlay::Form(_) | Overlay::Prompt(_) => true,
            Overlay::Wizard(o) => o.typing(),
            Overlay::Editor(o) => o.typing(),
            Overlay::Help(_) | Overlay::Leave(_) => false,
        }
    }

    pub fn act(&mut self, action: Action) -> Reply {
        match self {
            Overlay::Help(o) => o.act(action),
            Overlay::Picker(o) => o.act(action),
            Overlay::Form(o) => o.act(action),
            Overlay::Prompt(o) => o.act(action),
            Overlay::Leave(o) => o.act(action),
            Overlay::Wizard(o) => o.act(action),
            Overlay::Editor(o) => o.act(action),
        }
    }

    /// A key that no binding took.
    pub fn key(&mut self, key: KeyEvent) {
        match self {
            Overlay::Picker(o) => o.key(key),
            Overlay::Form(o) => o.key(key),
            Overlay::Prompt(o) => o.key(key),
            Overlay::Wizard(o) => o.key(key),
            Overlay::Editor(o) => o.key(key),
            Overlay::Help(_) | Overlay::Leave(_) => {}
        }
    }

    pub fn paste(&mut self, text: &str) {
        match self {
            Overlay::Picker(o) => o.paste(text),
            Overlay::Form(o) => o.paste(text),
            Overlay::Prompt(o) => o.paste(text),
            Overlay::Wizard(o) => o.paste(text),
            Overlay::Editor(o) => o.paste(text),
            Overlay::Help(_) | Overlay::Leave(_) => {}
        }
    }

    /// A click on one of its rows.
    pub fn click(&mut self, row: usize) -> Reply {
        match self {
            Overlay::Picker(o) => o.click(row),
            Overlay::Form(o) => o.click(row),
            Overlay::Leave(o) => o.click(row),
            Overlay::Wizard(o) => o.click(row),
            Overlay::Editor(o) => o.click(row),
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
            Overlay::Wizard(o) => o.draw(frame, area, canvas),
            Overlay::Editor(o) => o.draw(frame, area, canvas),
        }
    }
}
