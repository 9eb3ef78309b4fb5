//! What the person says to all models: texts, and the results of tool calls. Nothing is executed: results are typed.

use super::{ChatPane, Column, Sent};
use crate::base::clock::UnixMillis;
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;

/// One turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Text(String),
    /// Of the calls in the answers before, in their order. A model that called nothing reads them as a text.
    Results(Vec<String>),
}

impl Said {
    /// As a text.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Said::Text(text) => text.into(),
            Said::Results(results) => results.join("\n").into(),
        }
    }

    /// The same kind of turn with another text: the last of several results takes the lines that are left.
    pub(super) fn with_text(&self, text: String) -> Said {
        match self {
            Said::Text(_) => Said::Text(text),
            Said::Results(old) => {
                let mut results: Vec<String> =
                    text.splitn(old.len(), '\n').map(String::from).collect();
                // Each call keeps a result.
                results.resize(old.len(), String::new());
                Said::Results(results)
            }
        }
    }
}

/// Tools that models may call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolFile {
    /// As it was typed; empty for none.
    pub path: String,
    pub definitions: Vec<Value>,
}

/// What the typed text as a result leads to.
#[derive(Debug, PartialEq)]
pub enum Resulted {
    Sent(Vec<Sent>),
    /// The call of this function waits next.
    Next(String),
    /// Why it is none.
    Not(&'static str),
}

impl ChatPane {
    /// The function whose call waits for a result, with its number and how many there are.
    pub fn waiting_call(&self) -> Option<(String, usize, usize)> {
        // A turn that is being changed is no result of the last answers' calls.
        if self.answering() || self.editing.is_some() {
            return None;
        }
        let at = self.results.len();
        let of = |column: &Column| {
            let answered = column.replies.len() == self.conversation.said.len();
            let reply = column.replies.last().filter(|_| answered)?;
            let calls = reply.calls(&self.conversation.tools.definitions);
            Some((calls.get(at)?.name.clone(), calls.len()))
        };
        // Of several with as many calls the last counts: the focused one.
        let columns = self.columns.iter().chain(self.focused());
        let (name, n) = columns.filter_map(of).max_by_key(|(_, n)| *n)?;
        Some((name, at + 1, n))
    }

    pub fn tools(&self) -> &ToolFile {
        &self.conversation.tools
    }

    /// Takes what is typed as the result of the call that waits. The models go on when each has its own.
    pub fn give_result(&mut self, now: UnixMillis) -> Resulted {
        let Some((_, at, n)) = self.waiting_call() else {
            return Resulted::Not("no tool call waits for a result");
        };
        let text = self.input.text();
        if text.trim().is_empty() {
            return Resulted::Not("type the result of the tool call first");
        }
        self.results.push(text);
        self.recalled = None;
        self.input.clear();
        if at < n {
            let next = self.waiting_call().map(|(name, ..)| name);
            return Resulted::Next(next.unwrap_or_default());
        }
        self.wake();
        let results = std::mem::take(&mut self.results);
        self.say(Said::Results(results));
        Resulted::Sent(self.ask(now))
    }

    /// The tools of a file, which was read.
    pub fn set_tools(&mut self, path: &Path, definitions: Vec<Value>) {
        self.conversation.tools = ToolFile {
            path: path.display().to_string(),
            definitions,
        };
    }
}

/// `/help`, `/quit` …: what other programs take as a command, and no model has an answer to.
pub(super) fn is_command(text: &str) -> bool {
    if text.starts_with("/tool ") {
        return true;
    }
    let word = text.trim_end().strip_prefix('/');
    word.is_some_and(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic()))
}
