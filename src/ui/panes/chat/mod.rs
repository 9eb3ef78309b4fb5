//! Chat with a checkpoint. A base model continues text, so a prompt and what follows are one text. What is drawn where
//! is in `draw`; the texts themselves in `transcript`.

mod draw;
mod settings;
mod transcript;

pub use settings::{sampling_form, sampling_of};
pub use transcript::{Answer, Exchange};

use crate::base::clock::UnixMillis;
use crate::base::sampling::Sampling;
use crate::ui::field::{Lines, TextField};
use crate::ui::msg::{CheckpointRow, Slot};
use crate::wire::{Command, CommandId, Event};
use std::collections::VecDeque;

/// Texts kept on the screen; the oldest go first.
const MAX_EXCHANGES: usize = 100;

/// The engine that answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Engine {
    None,
    Opening { slot: Slot, row: CheckpointRow },
    Ready { slot: Slot, row: CheckpointRow },
    Failed { row: CheckpointRow, why: String },
}

impl Engine {
    pub fn slot(&self) -> Option<Slot> {
        match self {
            Engine::Opening { slot, .. } | Engine::Ready { slot, .. } => Some(*slot),
            Engine::None | Engine::Failed { .. } => None,
        }
    }

    pub fn row(&self) -> Option<&CheckpointRow> {
        match self {
            Engine::None => None,
            Engine::Opening { row, .. }
            | Engine::Ready { row, .. }
            | Engine::Failed { row, .. } => Some(row),
        }
    }
}

/// The pane.
#[derive(Debug)]
pub struct ChatPane {
    pub engine: Engine,
    pub sampling: Sampling,
    input: TextField,
    typing: bool,
    exchanges: VecDeque<Exchange>,
    /// Rows scrolled back from the end.
    scroll: usize,
    page: usize,
    /// Prompts said before, oldest first, and which of them stands in the input.
    history: Vec<String>,
    recalled: Option<usize>,
    /// Asked before the engine was there.
    waiting: bool,
}

impl Default for ChatPane {
    fn default() -> Self {
        ChatPane {
            engine: Engine::None,
            sampling: Sampling::default(),
            input: TextField::new(Lines::Many, ""),
            typing: true,
            exchanges: VecDeque::new(),
            scroll: 0,
            page: 1,
            history: Vec::new(),
            recalled: None,
            waiting: false,
        }
    }
}

impl ChatPane {
    pub fn typing(&self) -> bool {
        self.typing
    }

    pub fn type_on(&mut self) {
        self.typing = true;
    }

    pub fn field(&mut self) -> &mut TextField {
        &mut self.input
    }

    /// The command whose answer is on its way.
    pub fn answering(&self) -> Option<&Exchange> {
        self.exchanges
            .back()
            .filter(|e| e.answer == Answer::Streaming)
    }

    /// True while something moves that time drives.
    pub fn loading(&self) -> bool {
        matches!(self.engine, Engine::Opening { .. }) || self.answering().is_some()
    }

    /// Enter: the command to send, or `None` when there is nothing to send yet.
    pub fn send(&mut self, now: UnixMillis) -> Option<(Slot, Command)> {
        if !self.typing {
            self.typing = true;
            return None;
        }
        if self.answering().is_some() {
            return None;
        }
        let text = self.input.text();
        if !text.is_empty() {
            if self.history.last() != Some(&text) {
                self.history.push(text.clone());
            }
            self.exchanges.push_back(Exchange::new(text));
            self.input.clear();
        } else if !self.exchanges.back().is_some_and(|e| e.answer.is_over()) {
            self.exchanges.push_back(Exchange::new("\n".into()));
        }
        while self.exchanges.len() > MAX_EXCHANGES {
            self.exchanges.pop_front();
        }
        self.recalled = None;
        self.scroll = 0;
        self.ask(now)
    }

    /// Asks for what follows the last text; waits for the engine when it is not there yet.
    fn ask(&mut self, now: UnixMillis) -> Option<(Slot, Command)> {
        let exchange = self.exchanges.back_mut()?;
        let Engine::Ready { slot, .. } = self.engine else {
            self.waiting = matches!(self.engine, Engine::Opening { .. });
            if !self.waiting {
                exchange.answer = Answer::Failed("choose a checkpoint first".into());
            }
            return None;
        };
        self.waiting = false;
        exchange.begin(now);
        let prompt = exchange.whole();
        Some((
            slot,
            Command::Generate {
                prompt,
                sampling: self.sampling.clone(),
            },
        ))
    }

    /// Asks the last prompt again, from its beginning.
    pub fn resend(&mut self, now: UnixMillis) -> Option<(Slot, Command)> {
        if self.answering().is_some() {
            return None;
        }
        let prompt = self.exchanges.back()?.prompt.clone();
        self.exchanges.push_back(Exchange::new(prompt));
        self.scroll = 0;
        self.ask(now)
    }

    /// The engine is there: what to send when somebody asked already.
    pub fn opened(
        &mut self,
        slot: Slot,
        result: Result<(), String>,
        now: UnixMillis,
    ) -> Option<(Slot, Command)> {
        let row = self.engine.row()?.clone();
        match result {
            Ok(()) => self.engine = Engine::Ready { slot, row },
            Err(why) => {
                self.engine = Engine::Failed { row, why };
                self.waiting = false;
            }
        }
        if self.waiting { self.ask(now) } else { None }
    }

    /// The id under which the last command went out.
    pub fn sent(&mut self, result: Result<CommandId, String>) {
        if let Some(exchange) = self
            .exchanges
            .back_mut()
            .filter(|e| e.answer == Answer::Streaming)
        {
            match result {
                Ok(id) => exchange.command = Some(id),
                Err(why) => exchange.answer = Answer::Failed(why),
            }
        }
    }

    /// Esc: the command to send when an answer is cut short; otherwise the input is left.
    pub fn stop(&mut self) -> Option<(Slot, Command)> {
        let slot = self.engine.slot();
        match (self.answering().map(|e| e.command), slot) {
            (Some(Some(target)), Some(slot)) => Some((slot, Command::Cancel { target })),
            (Some(None), _) => None,
            _ => {
                self.typing = false;
                None
            }
        }
    }

    /// Folds an event of the inference engine.
    pub fn apply(&mut self, event: &Event, now: UnixMillis) {
        match event {
            Event::Token { command, text, .. } => {
                if let Some(exchange) = self.exchange(*command) {
                    exchange.token(text, now);
                }
            }
            Event::Generated { command, .. } => {
                if let Some(exchange) = self.exchange(*command) {
                    exchange.finish(event);
                }
            }
            Event::Rejected { id, why } => {
                if let Some(exchange) = self.exchange(*id) {
                    exchange.answer = Answer::Failed(why.clone());
                }
            }
            Event::Finished { message, .. } => {
                let why = if message.is_empty() {
                    "the engine ended"
                } else {
                    message.as_str()
                };
                self.lost(why);
            }
            _ => {}
        }
    }

    /// The answer on its way will not come.
    pub fn lost_answer(&mut self, why: &str) {
        if let Some(exchange) = self
            .exchanges
            .back_mut()
            .filter(|e| e.answer == Answer::Streaming)
        {
            exchange.answer = Answer::Failed(why.to_string());
        }
    }

    /// The engine is gone.
    pub fn lost(&mut self, why: &str) {
        self.lost_answer(why);
        if let Engine::Opening { row, .. } | Engine::Ready { row, .. } = &self.engine {
            self.engine = Engine::Failed {
                row: row.clone(),
                why: why.to_string(),
            };
        }
    }

    fn exchange(&mut self, command: CommandId) -> Option<&mut Exchange> {
        self.exchanges
            .iter_mut()
            .rev()
            .find(|e| e.command == Some(command) && e.answer == Answer::Streaming)
    }

    /// Up and Down inside the input move the cursor; at its edges they walk through earlier prompts.
    pub fn recall(&mut self, earlier: bool) -> bool {
        let at_edge = if earlier {
            self.input.at_first_line()
        } else {
            self.input.at_last_line()
        };
        if !at_edge || self.history.is_empty() {
            return false;
        }
        let newest = self.history.len();
        let now = self.recalled.unwrap_or(newest);
        let next = if earlier {
            now.saturating_sub(1)
        } else {
            (now + 1).min(newest)
        };
        self.recalled = Some(next);
        let text = self.history.get(next).cloned().unwrap_or_default();
        self.input.set(&text);
        true
    }

    pub fn scroll(&mut self, back: bool, rows: usize) {
        self.scroll = match back {
            true => self.scroll.saturating_add(rows),
            false => self.scroll.saturating_sub(rows),
        };
    }

    pub fn page(&self) -> usize {
        self.page
    }

    pub fn clear(&mut self) {
        if self.answering().is_none() {
            self.exchanges.clear();
            self.scroll = 0;
        }
    }
}

#[cfg(test)]
mod tests;
