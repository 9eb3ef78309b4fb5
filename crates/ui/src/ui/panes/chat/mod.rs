//! Chat with up to three models side by side: the same turns, the same settings, the same seed. A model with a chat template
//! answers turns; a base model continues texts. Here is what keys and events do to the conversation; one model's answers are
//! `column`'s matter, what is drawn where `draw`'s.

mod choosing;
mod column;
mod draw;
pub mod heat;
mod models;
mod pane;
mod reply;
mod rows;
mod said;
mod save;
mod settings;
mod unsaved;

pub use column::{Column, Conversation, Engine};
pub use heat::Heat;
pub use models::{About, ChatModel};
pub use pane::{ENTRY, WITH_RUN, WITH_RUN_OR_HOME};
pub use reply::{Answer, Reply};
pub use said::{Resulted, Said, ToolFile};
pub use settings::{Settings, sampling_form};
use unsaved::Unsaved;

use crate::base::clock::UnixMillis;
use crate::base::sampling::Sampling;
use crate::ui::effect::SavedChat;
use crate::ui::field::{Lines, TextField};
use crate::ui::msg::Slot;
use crate::wire::{Command, CommandId, Event};
use std::path::PathBuf;

/// Models side by side.
pub const MAX_COLUMNS: usize = 3;
/// Turns kept; the oldest go first.
const MAX_TURNS: usize = 200;

/// What a chosen model is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Picking {
    /// It takes the place of the focused one.
    #[default]
    Replace,
    /// It is put beside.
    Add,
}

/// A command and the engine that it is for.
pub type Sent = (Slot, Command);

/// The pane.
#[derive(Debug)]
pub struct ChatPane {
    columns: Vec<Column>,
    focus: usize,
    conversation: Conversation,
    pub sampling: Sampling,
    /// How often the last turn was asked again: each time another draw, by the next seed.
    draws: u64,
    pub picking: Picking,
    heat: Heat,
    /// Show what the models read instead of what was said.
    shows_prompt: bool,
    /// Show the thoughts of answers, which are folded once what is said begins.
    shows_thoughts: bool,
    input: TextField,
    typing: bool,
    /// Results of the last answers' calls, while others are missing.
    results: Vec<String>,
    /// The turn that is being changed, and what was typed before it came into the input.
    editing: Option<(usize, String)>,
    /// Prompts said before, oldest first; which of them stands in the input, and what was typed before it did.
    history: Vec<String>,
    recalled: Option<(usize, String)>,
    page: usize,
    /// The run whose best checkpoint is to be taken when the list comes.
    wanted_runs: Vec<PathBuf>,
    /// They were asked for on Home, which comes back where they cannot be opened.
    or_home: bool,
    /// The ended run on the screen when the chat was entered last: it is offered once.
    offered: Option<PathBuf>,
    /// The live run that was asked for its first checkpoint: the chat takes it.
    asked_run: Option<PathBuf>,
    unsaved: Unsaved,
}

impl Default for ChatPane {
    fn default() -> Self {
        ChatPane {
            columns: Vec::new(),
            focus: 0,
            conversation: Conversation::default(),
            sampling: Sampling::default(),
            draws: 0,
            picking: Picking::default(),
            heat: Heat::default(),
            shows_prompt: false,
            shows_thoughts: false,
            input: TextField::new(Lines::Many, ""),
            typing: true,
            results: Vec::new(),
            editing: None,
            history: Vec::new(),
            recalled: None,
            page: 1,
            wanted_runs: Vec::new(),
            or_home: false,
            offered: None,
            asked_run: None,
            unsaved: Unsaved::default(),
        }
    }
}

impl ChatPane {
    pub fn field(&mut self) -> &mut TextField {
        &mut self.input
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The model that keys mean.
    pub fn focused(&self) -> Option<&Column> {
        self.columns.get(self.focus)
    }

    pub fn focus(&mut self, at: usize) {
        self.focus = at.min(self.columns.len().saturating_sub(1));
    }

    pub fn focus_next(&mut self) {
        self.focus = (self.focus + 1) % self.columns.len().max(1);
    }

    /// Whether an answer is being written.
    pub fn answering(&self) -> bool {
        self.columns.iter().any(|c| c.streaming().is_some())
    }

    /// Whether a model is on its way.
    pub fn loading(&self) -> bool {
        let opening = |c: &Column| matches!(c.engine, Engine::Opening(..));
        self.columns.iter().any(opening)
    }

    pub fn system(&self) -> &str {
        &self.conversation.system
    }

    /// Takes new settings over. Another system prompt holds from the next answer on, and so do other tools; returns the file of these.
    pub fn set(&mut self, settings: Settings) -> Option<PathBuf> {
        self.sampling = settings.sampling;
        self.conversation.system = settings.system;
        if settings.tools.is_empty() {
            self.conversation.tools = ToolFile::default();
        }
        (!settings.tools.is_empty()).then(|| settings.tools.into())
    }

    /// Puts a model in the focused place or beside; returns the engine to let go.
    pub fn place(&mut self, model: ChatModel, slot: Slot, now: UnixMillis) -> Option<Slot> {
        let column = Column::new(model, slot, now);
        let beside = self.picking == Picking::Add && self.columns.len() < MAX_COLUMNS;
        self.picking = Picking::Replace;
        if beside || self.columns.is_empty() {
            self.columns.push(column);
            self.focus = self.columns.len() - 1;
            return None;
        }
        self.columns.get_mut(self.focus).and_then(|old| {
            let slot = old.slot();
            *old = column;
            slot
        })
    }

    /// Takes the focused model away; the last one stays. Returns the engine to let go.
    pub fn drop_focused(&mut self) -> Option<Slot> {
        if self.columns.len() < 2 {
            return None;
        }
        let gone = self.columns.remove(self.focus);
        self.focus(self.focus);
        gone.slot()
    }

    /// Enter: what to send now. Models that are not there yet are asked when they are.
    pub fn send(&mut self, now: UnixMillis) -> Vec<Sent> {
        if !self.typing {
            self.typing = true;
            return Vec::new();
        }
        if self.answering() {
            return Vec::new();
        }
        let text = self.input.text();
        self.recalled = None;
        self.wake();
        let editing = self.editing.take();
        let said = match editing.as_ref().filter(|_| !text.is_empty()) {
            Some((turn, _)) => {
                let said = self.conversation.said[*turn].with_text(text.clone());
                self.forget_from(*turn);
                said
            }
            None => Said::Text(text.clone()),
        };
        self.input.set(&editing.map(|(_, draft)| draft).unwrap_or_default());
        match text.is_empty() {
            false => {
                if self.history.last() != Some(&text) {
                    self.history.push(text.clone());
                }
                self.say(said);
            }
            // A base model generates from nothing; an answer that was cut goes on.
            true if self.conversation.said.is_empty() && !self.converses() => {
                self.say(Said::Text("\n".into()));
            }
            true => {
                let (conversation, sampling) = (&self.conversation, &self.sampling);
                let columns = self.columns.iter_mut();
                let sent: Vec<Sent> = columns
                    .filter_map(|c| c.continue_answer(conversation, sampling, now))
                    .collect();
                if !sent.is_empty() {
                    return sent;
                }
            }
        }
        self.ask(now)
    }

    fn converses(&self) -> bool {
        self.columns.iter().any(Column::converses)
    }

    fn say(&mut self, said: Said) {
        self.draws = 0;
        self.results.clear();
        self.conversation.said.push(said);
        if self.conversation.said.len() > MAX_TURNS {
            self.conversation.said.remove(0);
            for column in self.columns.iter_mut().filter(|c| !c.replies.is_empty()) {
                column.replies.remove(0);
            }
        }
    }

    fn wake(&mut self) {
        for column in &mut self.columns {
            column.wake();
        }
    }

    /// Asks every idle model for the next answer that it owes: the last turn with the seed of its newest draw, those before
    /// it with the seed that they were answered with.
    fn ask(&mut self, now: UnixMillis) -> Vec<Sent> {
        let redrawn = Sampling {
            seed: self.sampling.seed.wrapping_add(self.draws),
            ..self.sampling.clone()
        };
        let (conversation, sampling) = (&self.conversation, &self.sampling);
        let columns = self.columns.iter_mut();
        let sent = columns.filter_map(|c| match c.replies.len() + 1 < conversation.said.len() {
            true => c.ask(conversation, sampling, now),
            false => c.ask(conversation, &redrawn, now),
        });
        sent.collect()
    }

    fn forget_from(&mut self, turn: usize) {
        self.results.clear();
        self.conversation.said.truncate(turn);
        for column in &mut self.columns {
            column.forget_from(turn);
        }
    }

    /// Asks the last turn again, from its beginning.
    pub fn resend(&mut self, now: UnixMillis) -> Vec<Sent> {
        let Some(last) = self.conversation.said.len().checked_sub(1) else {
            return Vec::new();
        };
        if self.answering() {
            return Vec::new();
        }
        self.wake();
        // They are of calls that are forgotten.
        self.results.clear();
        for column in &mut self.columns {
            column.forget_from(last);
        }
        self.draws += 1;
        self.ask(now)
    }

    /// Brings the last turn into the input to be changed, then the one before it, and so on.
    pub fn edit(&mut self) {
        let newest = self.conversation.said.len();
        let now = self.editing.as_ref().map_or(newest, |(turn, _)| *turn);
        let Some(turn) = now.checked_sub(1) else {
            return;
        };
        if self.answering() {
            return;
        }
        let recalled = self.recalled.take().map(|(_, draft)| draft);
        let draft = self.editing.take().map(|(_, draft)| draft);
        let draft = draft.or(recalled).unwrap_or_else(|| self.input.text());
        self.editing = Some((turn, draft));
        self.typing = true;
        let said = self.conversation.said[turn].text().into_owned();
        self.input.set(&said);
    }

    /// Esc: cuts answers short; or leaves the turn that is being changed; or leaves the input.
    pub fn stop(&mut self) -> Vec<Sent> {
        if self.answering() {
            return self.columns.iter_mut().filter_map(Column::stop).collect();
        }
        match self.editing.take() {
            Some((_, draft)) => {
                self.recalled = None;
                self.input.set(&draft);
            }
            None => self.typing = false,
        }
        Vec::new()
    }

    /// Gives up the downloads that are under way; returns whose engines are to go.
    pub fn stop_downloads(&mut self) -> Vec<Slot> {
        let columns = self.columns.iter_mut();
        columns.filter_map(Column::stop_download).collect()
    }

    fn column(&mut self, slot: Slot) -> Option<&mut Column> {
        self.columns.iter_mut().find(|c| c.slot() == Some(slot))
    }

    /// The process of an engine runs, or why not.
    pub fn opened(&mut self, slot: Slot, result: Result<(), String>) {
        if let Some(column) = self.column(slot) {
            column.opened(result);
        }
    }

    /// The id under which an engine's last command went out.
    pub fn sent(&mut self, slot: Slot, result: Result<CommandId, String>) {
        if let Some(column) = self.column(slot) {
            column.sent(result);
        }
    }

    /// Folds an event of an engine; returns what is to be asked next.
    pub fn apply(&mut self, slot: Slot, event: &Event, now: UnixMillis) -> Vec<Sent> {
        let Some(column) = self.column(slot) else {
            return Vec::new();
        };
        let before = column.n_answers();
        column.apply(event, now);
        // What is refused adds nothing to what was there.
        if column.n_answers() != before && !matches!(event, Event::Rejected { .. }) {
            self.unsaved.answered();
        }
        match event {
            Event::Loaded { .. } | Event::Generated { .. } | Event::Rejected { .. } => {
                self.ask(now)
            }
            _ => Vec::new(),
        }
    }

    /// An engine is gone. What it had written of an answer stays.
    pub fn lost(&mut self, slot: Slot, why: &str) {
        let Some(column) = self.column(slot) else {
            return;
        };
        let before = column.n_answers();
        column.lost(why);
        if column.n_answers() != before {
            self.unsaved.answered();
        }
    }

    /// Up and Down inside the input move the cursor; at its edges they walk through earlier prompts. Below the newest of them
    /// stands what was being typed. True where another text is in the input now.
    pub fn recall(&mut self, earlier: bool) -> bool {
        let at_edge = if earlier {
            self.input.at_first_line()
        } else {
            self.input.at_last_line()
        };
        if !at_edge || self.history.is_empty() {
            return false;
        }
        let (now, draft) = match self.recalled.take() {
            Some(recalled) => recalled,
            None if earlier => (self.history.len(), self.input.text()),
            None => return false,
        };
        let next = if earlier { now.saturating_sub(1) } else { now + 1 };
        match self.history.get(next) {
            Some(prompt) => {
                self.input.set(prompt);
                self.recalled = Some((next, draft));
            }
            None => self.input.set(&draft),
        }
        true
    }

    /// All columns together: the same turn stays beside itself as far as answers are alike in length.
    pub fn scroll(&mut self, back: bool, rows: usize) {
        for column in &mut self.columns {
            column.scroll = match back {
                true => column.scroll.saturating_add(rows),
                false => column.scroll.saturating_sub(rows),
            };
        }
    }

    pub fn page(&self) -> usize {
        self.page
    }

    pub fn next_heat(&mut self) {
        self.heat = self.heat.next();
    }

    pub fn toggle_prompt(&mut self) {
        self.shows_prompt = !self.shows_prompt;
    }

    pub fn toggle_thoughts(&mut self) {
        self.shows_thoughts = !self.shows_thoughts;
    }

    /// The conversation as files; `None` while nobody has answered.
    pub fn save(&self) -> Option<SavedChat> {
        save::save(&self.conversation, &self.columns)
    }

    /// Begins a new conversation with the same models.
    pub fn clear(&mut self) {
        if !self.answering() {
            self.editing = None;
            self.forget_from(0);
        }
    }
}

#[cfg(test)]
mod tests;
