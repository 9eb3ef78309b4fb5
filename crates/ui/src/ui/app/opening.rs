//! What opens once a job has gathered what it shows. Until then it has the keyboard, though there is nothing to see yet:
//! keys typed meanwhile are meant for it and reach it when it is there. They must not act on the pane below.

use super::App;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::hit::Target;
use crate::ui::layout::{centred, cut, framed};
use crate::ui::msg::{BranchPlan, Msg};
use crate::ui::request::{Hints, titles};
use crate::ui::theme::{Meaning, Theme};
use crossterm::event::{KeyEvent, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Clear;
use std::path::PathBuf;
use unicode_width::UnicodeWidthStr;

/// Most keys and pastes that are kept.
const MAX_HELD: usize = 256;
/// The keys that hold: one that cancels, redraws or suspends. Letters are text, as nobody knows yet what they mean.
const CONTEXTS: &[Context] = &[Context::List, Context::Global];

/// What is awaited, and what was typed meanwhile.
#[derive(Debug)]
pub(super) struct Opening {
    awaited: Awaited,
    held: Vec<BufferedInput>,
}

#[derive(Debug)]
enum Awaited {
    Wizard,
    Editor(String),
    /// The question before a branch starts.
    Branch(PathBuf, BranchPlan),
}

#[derive(Debug)]
pub(super) enum BufferedInput {
    Key(KeyEvent),
    Paste(String),
}

/// What a message means for it.
pub(super) enum Arrival {
    /// Another message.
    Other,
    /// Nobody waits for it any more.
    Late,
    /// It opens; this was typed meanwhile.
    Here(Vec<BufferedInput>),
}

impl Opening {
    fn of(effect: &Effect) -> Option<Opening> {
        let awaited = match effect {
            Effect::OpenWizard => Awaited::Wizard,
            Effect::OpenEditor(target) => Awaited::Editor(target.clone()),
            Effect::PlanBranch { run_dir, plan } => Awaited::Branch(run_dir.clone(), plan.clone()),
            _ => return None,
        };
        let held = Vec::new();
        Some(Opening { awaited, held })
    }

    fn is_answered_by(&self, msg: &Msg) -> bool {
        match (&self.awaited, msg) {
            (Awaited::Wizard, Msg::Wizard(..)) => true,
            (Awaited::Editor(asked), Msg::Editor { target, .. }) => asked == target,
            (Awaited::Branch(asked, with), Msg::BranchPlanned { run_dir, plan, .. }) => {
                asked == run_dir && with == plan
            }
            _ => false,
        }
    }

    fn hold(&mut self, input: BufferedInput) {
        // A branch starts with one Enter: its question must have been seen before it is answered.
        let blind = matches!(self.awaited, Awaited::Branch(..));
        if !blind && self.held.len() < MAX_HELD {
            self.held.push(input);
        }
    }

    pub(super) fn draw(&self, frame: &mut Frame, area: Rect, theme: &Theme) {
        let (title, words) = match &self.awaited {
            Awaited::Wizard => ("new run", "checking this machine and its checkpoints"),
            Awaited::Editor(_) => ("editor", "reading the spec"),
            Awaited::Branch(..) => ("branch", "checking the branch"),
        };
        let ellipsis = theme.glyphs().ellipsis;
        let words = format!(" {words}{ellipsis} ");
        let width = u16::try_from(words.width() + 2).unwrap_or(u16::MAX);
        let area = centred(area, width.min(area.width.saturating_sub(2)), 3);
        let block = framed(theme, title);
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        let words = cut(&words, inner.width.into(), ellipsis);
        frame.render_widget(Line::styled(words, theme.style(Meaning::Muted)), inner);
    }

    pub(super) fn hints() -> Hints {
        Hints {
            own: Vec::new(),
            kept: titles(&[Action::Cancel]),
        }
    }
}

impl App {
    /// Lets an effect go; where it opens something, that has the keyboard from now on.
    pub(super) fn ask(&mut self, effect: Effect) -> Vec<Effect> {
        if let Some(opening) = Opening::of(&effect) {
            self.opening = Some(opening);
            self.ask_draw();
        }
        vec![effect]
    }

    /// Whether a message is what is awaited.
    pub(super) fn arrival(&mut self, msg: &Msg) -> Arrival {
        let opens = match msg {
            Msg::Wizard(..) => true,
            Msg::Editor { draft, .. } => draft.is_ok(),
            Msg::BranchPlanned { result, .. } => result.is_ok(),
            _ => return Arrival::Other,
        };
        match self.opening.take() {
            // What was typed for something that does not open is for nobody.
            Some(opening) if opening.is_answered_by(msg) => {
                self.ask_draw();
                Arrival::Here(opening.held.into_iter().filter(|_| opens).collect())
            }
            other => {
                self.opening = other;
                Arrival::Late
            }
        }
    }

    /// Types what was held.
    pub(super) fn type_held(&mut self, held: Vec<BufferedInput>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for input in held {
            effects.extend(match input {
                BufferedInput::Key(key) => self.key(key),
                BufferedInput::Paste(text) => self.paste(&text),
            });
        }
        effects
    }

    /// Takes a key for what opens; `None` where nothing does.
    pub(super) fn key_for_opening(&mut self, key: KeyEvent) -> Option<Vec<Effect>> {
        let opening = self.opening.as_mut()?;
        match self.keymap.action(key, CONTEXTS, true) {
            Some(Action::Cancel | Action::Leave) => self.opening = None,
            Some(action @ (Action::Redraw | Action::Suspend)) => return Some(self.act(action)),
            _ => opening.hold(BufferedInput::Key(key)),
        }
        Some(Vec::new())
    }

    /// Takes a paste for what opens; false where nothing does.
    pub(super) fn paste_for_opening(&mut self, text: &str) -> bool {
        match &mut self.opening {
            Some(opening) => opening.hold(BufferedInput::Paste(text.into())),
            None => return false,
        }
        true
    }

    /// A click means nothing on what is not there yet, except on the hint that cancels; false where nothing opens.
    pub(super) fn mouse_for_opening(&mut self, mouse: MouseEvent) -> bool {
        let click = mouse.kind == MouseEventKind::Down(MouseButton::Left);
        let target = self.hits.at(mouse.column, mouse.row);
        let opens = self.opening.is_some();
        if click && target == Some(Target::Action(Action::Cancel)) && opens {
            self.opening = None;
            self.ask_draw();
        }
        opens
    }
}
