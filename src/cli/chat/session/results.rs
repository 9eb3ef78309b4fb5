//! Calls in answers, and the results that go back.

use super::{ChatSession, Keyboard, LineResult, TurnResult};
use crate::base::text::one_line;
use crate::cli::chat::calls::{self, Answered};
use crate::data::chat::tool_calls::Part;
use crate::wire::Turn;
use std::io::Write;

/// What stands before a thought.
const THINKS: &str = "thinking: ";

/// What was shown of an answer last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Thought,
    Text,
    Call,
}

impl<W: Write> ChatSession<'_, W> {
    /// `/tool TEXT`, `/tool`.
    pub(super) fn tool(&mut self, result: Option<&str>) -> LineResult<'static> {
        let Some(name) = self.calls.waits().map(one_line) else {
            errln!("no tool call waits for a result");
            return LineResult::Refused;
        };
        match result.map(|result| self.calls.answer(result)) {
            Some(Answered::All(turns)) => LineResult::Results(turns),
            Some(Answered::Next(next)) => {
                errln!("the call of {} waits for its result, too", one_line(&next));
                LineResult::Obeyed
            }
            Some(Answered::NoCall) | None => {
                errln!("the call of {name} waits for its result");
                LineResult::Obeyed
            }
        }
    }

    /// Sends the results of the last answer's calls.
    ///
    /// # Errors
    /// As [`ChatSession::send_turn`].
    pub fn send_results(&mut self, results: Vec<Turn>) -> anyhow::Result<()> {
        match self.resulted(results, None)? {
            TurnResult::Answered => Ok(()),
            TurnResult::Refused(why) => Err(why.into()),
        }
    }

    /// [`ChatSession::send_results`], interruptible by Ctrl-C.
    ///
    /// # Errors
    /// The model's process is gone.
    pub fn send_results_interruptible(
        &mut self,
        results: Vec<Turn>,
        keyboard: &mut Keyboard,
    ) -> anyhow::Result<()> {
        if let TurnResult::Refused(why) = self.resulted(results, Some(keyboard))? {
            errln!("{}", self.refused(&why));
        }
        Ok(())
    }

    fn resulted(
        &mut self,
        results: Vec<Turn>,
        keyboard: Option<&mut Keyboard>,
    ) -> anyhow::Result<TurnResult> {
        let said: Vec<&str> = results.iter().map(|turn| turn.content.as_str()).collect();
        self.turned(&said.join("\n"), results, keyboard)
    }

    /// Who types is told how to go on.
    pub(super) fn say_who_waits(&self) {
        if let Some(name) = self.calls.waits().filter(|_| self.options.terminal) {
            errln!("/tool TEXT gives the result of {}", one_line(name));
        }
    }

    /// Thoughts, text and calls, each of which has lines of its own. Thoughts are for who reads along: a pipe gets the answer.
    pub(super) fn show(&mut self, parts: Vec<Part>) -> std::io::Result<()> {
        for part in parts {
            match part {
                Part::Thought(_) if !self.options.terminal => {}
                Part::Thought(text) => {
                    if self.last != Some(Last::Thought) {
                        if self.last.is_some() {
                            self.end_line()?;
                        }
                        self.print(THINKS)?;
                    }
                    self.print(&text)?;
                    self.last = Some(Last::Thought);
                }
                Part::Text(text) => {
                    match self.last {
                        Some(Last::Call) if !text.starts_with('\n') => self.end_line()?,
                        Some(Last::Thought) => {
                            self.end_line()?;
                            self.end_line()?;
                        }
                        _ => {}
                    }
                    self.print(&text)?;
                    self.last = Some(Last::Text);
                }
                Part::Call(call) => {
                    if self.last.is_some() {
                        self.end_line()?;
                    }
                    write!(self.out, "{}", calls::shown(&call, self.options.columns))?;
                    self.out.flush()?;
                    self.last = Some(Last::Call);
                }
            }
        }
        Ok(())
    }
}
