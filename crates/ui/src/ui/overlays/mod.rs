//! What lies over the panes: one file (or folder) each and one word in the list below. They form a stack of which the
//! topmost has the keyboard. An overlay answers with a [`Reply`]; the app acts on it.

macro_rules! overlays {
    ($($overlay:ident)+) => {
        $(mod $overlay;)+

        /// One of each, for what holds for all of them.
        #[cfg(test)]
        pub(crate) fn examples() -> Vec<(&'static str, Box<dyn Overlay>)> {
            vec![$((stringify!($overlay), $overlay::example())),+]
        }
    };
}

overlays! { editor form guide help leave messages picker prompt question wizard }

mod sheet;

pub use editor::Editor;
pub use form::{Field, Form};
pub use guide::GuideSheet;
pub use help::HelpSheet;
pub use leave::{LeaveChoice, LeaveQuestion};
pub use messages::Messages;
pub use picker::{Item, Picker};
pub use prompt::Prompt;
pub use question::{Question, YES};
pub use wizard::WizardScreen;

use super::action::{Action, Context};
use super::effect::Effect;
use super::hit::HitMap;
use super::keymap::Keymap;
use super::msg::Msg;
use super::request::{Answer, Hints, Topic};
use super::store::Store;
use super::theme::Theme;
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use std::fmt::Debug;
use std::path::PathBuf;

/// The contexts of an overlay without keys of its own.
const LIST: &[Context] = &[Context::List, Context::Global];
const EDITOR: &[Context] = &[Context::Editor, Context::List, Context::Global];
/// Of an overlay in which a path is typed. Its own keys shadow those of lists on purpose.
const PATH: &[Context] = &[Context::Path, Context::List, Context::Global];
const LEAVE: &[Context] = &[Context::Leave, Context::List, Context::Global];

/// Contexts that overlays ask together; no key may mean two things in one of them.
pub const SCREENS: &[&[Context]] = &[LIST, EDITOR, LEAVE];

/// What an overlay was for, once it is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    Action(Action),
    StartPreset(String),
    /// Train a spec that is in no file.
    StartSpec {
        name: String,
        yaml: String,
        /// Even though a check failed.
        force: bool,
    },
    EditPreset(String),
    OpenRun(PathBuf),
    /// What does it is no key: these words say how.
    Say(&'static str),
    Theme(String),
    /// What becomes of the live run; `leaving`: the workbench closes afterwards.
    Leave {
        choice: LeaveChoice,
        leaving: bool,
    },
    /// For the pane that asked.
    Answer(Topic, Answer),
}

/// What an overlay says to a key.
#[derive(Debug)]
pub enum Reply {
    Stay,
    /// Closed without an answer.
    Close,
    Chosen(Choice),
    /// Show what choosing this would do, and stay open.
    Preview(Choice),
    /// Closed without an answer: show this again.
    Revert(Choice),
    /// The overlay waits for what comes of it.
    Do(Effect),
    /// Open another one on top.
    Open(Box<dyn Overlay>),
}

impl PartialEq for Reply {
    /// Overlays have no equality; nobody asks for theirs.
    fn eq(&self, other: &Reply) -> bool {
        match (self, other) {
            (Reply::Stay, Reply::Stay) | (Reply::Close, Reply::Close) => true,
            (Reply::Chosen(a), Reply::Chosen(b))
            | (Reply::Preview(a), Reply::Preview(b))
            | (Reply::Revert(a), Reply::Revert(b)) => a == b,
            (Reply::Do(a), Reply::Do(b)) => a == b,
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

/// One overlay. What is left out does nothing.
pub trait Overlay: Debug {
    /// Contexts whose keys hold, the most particular first, [`Context::Global`] last. Of the global ones only those for
    /// help, closing, redrawing and suspending reach past the overlay.
    fn contexts(&self) -> &'static [Context] {
        LIST
    }

    /// The keys worth knowing now.
    fn hints(&self) -> Hints {
        Hints::of_overlay(vec![(Action::Accept, Action::Accept.info().title)])
    }

    /// True when letters are text.
    fn typing(&self) -> bool {
        false
    }

    /// What a pane opened it for.
    fn topic(&self) -> Option<Topic> {
        None
    }

    /// [`Action::Cancel`] goes one step back and closes at the first one, [`Action::Leave`] closes.
    fn act(&mut self, action: Action) -> Reply;

    /// A key that no binding took.
    fn key(&mut self, _key: KeyEvent) -> Reply {
        Reply::Stay
    }

    fn paste(&mut self, _text: &str) -> Reply {
        Reply::Stay
    }

    /// A click on one of its rows.
    fn click(&mut self, _row: usize) -> Reply {
        Reply::Stay
    }

    /// The run that it started was refused: it is on the screen again.
    fn start_refused(&mut self, _why: &str) {}

    /// A message that is not a key's or the mouse's; `None` where the overlay did not wait for it.
    fn incoming(&mut self, _msg: &Msg) -> Option<Reply> {
        None
    }

    /// It is being opened, or the workbench knows more of the machine than then.
    fn renew(&mut self, _store: &Store) {}

    /// Newer rows for a list.
    fn refill(&mut self, _newer: Picker) {}

    /// What is to be kept after each reply, so that it is never lost.
    fn persist(&self) -> Option<Effect> {
        None
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas);
}
