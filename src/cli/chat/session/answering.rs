//! One answer: its events as they come, and what is printed of it, as text or as a line of JSON.

use super::{Answer, ChatSession, Keyboard, gone};
use crate::base::human;
use crate::base::text::{one_line, sanitize};
use crate::cli::exit::Failure;
use crate::link::Incoming;
use crate::wire::{Command, CommandId, Event, StopReason};
use serde_json::{Value, json};
use std::io::Write;

impl<W: Write> ChatSession<'_, W> {
    /// Ends the line on which an error broke an answer off, so that the error has one of its own.
    pub(super) fn break_off(&mut self, answer: &Answer) -> std::io::Result<()> {
        let shows_prompt = self.options.terminal && !self.converses;
        let is_begun = shows_prompt || !answer.text.is_empty();
        match is_begun && !self.options.json {
            true => self.end_line(),
            false => Ok(()),
        }
    }

    /// Fills in the answer; returns why the model gives none, where it says so.
    pub(super) fn answer(
        &mut self,
        asked: CommandId,
        mut keyboard: Option<&mut Keyboard>,
        answer: &mut Answer,
    ) -> anyhow::Result<Option<Failure>> {
        while answer.reason.is_none() {
            let incoming = match &mut keyboard {
                Some(keyboard) => keyboard.incoming(self.link),
                None => Some(self.link.blocking_recv()),
            };
            let Some(incoming) = incoming else {
                self.link.send(Command::Cancel { target: asked })?;
                continue;
            };
            match incoming {
                Incoming::Event(envelope) => {
                    if let Some(why) = self.take(asked, envelope.event, answer)? {
                        return Ok(Some(why));
                    }
                }
                Incoming::CaughtUp => {}
                Incoming::Closed(why) => return Err(gone(why.as_deref()).into()),
            }
        }
        Ok(None)
    }

    /// Takes one event; returns why the turn gets no answer, where it says so.
    fn take(
        &mut self,
        asked: CommandId,
        event: Event,
        answer: &mut Answer,
    ) -> anyhow::Result<Option<Failure>> {
        match event {
            Event::Prompted {
                command,
                text,
                tool_calls,
                ..
            } if command == asked => {
                self.calls
                    .begin(tool_calls.as_deref(), !self.options.terminal);
                if self.options.show_prompt && !self.options.json {
                    errln!("{}", sanitize(&text));
                }
                answer.prompt = text;
            }
            Event::Token {
                command,
                text,
                logprob,
                id,
                ..
            } if command == asked => {
                match self.options.json {
                    true => {
                        // Text without a token of its own has neither.
                        let logprob = Some(logprob.0).filter(|x| x.is_finite());
                        let token = json!({"id": id, "text": text, "logprob": logprob});
                        answer.tokens.push(token);
                    }
                    // A pipe gets what the model wrote, without its thoughts.
                    false if self.options.terminal || self.calls.has_thoughts() => {
                        let parts = self.calls.push(&text);
                        self.show(parts)?;
                    }
                    false => self.print(&text)?,
                }
                answer.text.push_str(&text);
            }
            Event::Generated {
                command,
                n_tokens,
                prompt_tokens,
                kept_tokens,
                seconds,
                prefill_seconds,
                reason,
                message,
                ..
            } if command == asked => {
                if reason == StopReason::Failed {
                    return Ok(Some(Failure::user_error(sanitize(&message), "")));
                }
                answer.n_tokens = n_tokens;
                answer.prompt_tokens = prompt_tokens;
                answer.kept_tokens = kept_tokens;
                answer.seconds = seconds;
                answer.prefill_seconds = prefill_seconds;
                answer.reason = Some(reason);
                answer.message = message;
            }
            Event::Rejected { id, why } if id == asked => {
                return Ok(Some(Failure::user_error(sanitize(&why), "")));
            }
            _ => {}
        }
        Ok(None)
    }

    /// The note after an answer.
    pub(super) fn end(&mut self, said: &str, answer: &Answer) -> anyhow::Result<()> {
        if self.options.json {
            writeln!(self.out, "{}", self.object(said, answer))?;
            return Ok(());
        }
        self.end_line()?;
        let message = one_line(&answer.message);
        match answer.reason {
            Some(StopReason::Context) => {
                errln!("{message}; --context roll continues without the oldest tokens");
            }
            Some(StopReason::Length | StopReason::Stop) if !message.is_empty() => {
                errln!("{message}");
            }
            Some(StopReason::Length) if self.converses => {
                let most = human::grouped(self.options.sampling.max_new_tokens as u64);
                errln!("truncated at {most} tokens; --max-new-tokens N generates more");
            }
            _ => {}
        }
        if answer.reason == Some(StopReason::Cancelled) {
            match self.converses && answer.text.is_empty() {
                true => errln!("stopped before the first word: the turn is removed"),
                false => errln!("cut short"),
            }
        }
        if self.options.terminal {
            errln!("{}", answer.figures());
        }
        Ok(())
    }

    fn object(&self, said: &str, answer: &Answer) -> Value {
        let (prefill, decode) = answer.speeds();
        let mut object = json!({
            "prompt": said,
            "text": answer.text,
            "tokens": answer.tokens,
            "reason": answer.reason,
            "prompt_tokens": answer.prompt_tokens,
            "kept_tokens": answer.kept_tokens,
            "n_tokens": answer.n_tokens,
            "seconds": answer.seconds,
            "prefill_tok_per_sec": prefill,
            "decode_tok_per_sec": decode,
            "kv_cache": self.kv_cache,
            // Of the turn; none: the base alone.
            "adapter": self.in_use,
        });
        let read = self.calls.of(&answer.text, self.turns.len());
        for (name, value) in read.fields() {
            object[name] = value;
        }
        if self.calls.has_thoughts() {
            object["text"] = read.text.into();
        }
        if self.options.show_prompt {
            object["rendered"] = answer.prompt.as_str().into();
        }
        if !answer.message.is_empty() {
            object["message"] = answer.message.as_str().into();
        }
        object
    }

    /// A pipe gets the model's exact output; a terminal gets it without control sequences.
    pub(super) fn print(&mut self, text: &str) -> std::io::Result<()> {
        if self.options.terminal {
            let shown = self.flow.push(&sanitize(text));
            self.out.write_all(shown.as_bytes())?;
        } else {
            self.out.write_all(text.as_bytes())?;
        }
        self.out.flush()
    }

    /// The words held back, and the end of the line.
    pub(super) fn end_line(&mut self) -> std::io::Result<()> {
        let rest = self.flow.rest();
        writeln!(self.out, "{rest}")?;
        self.flow.newline();
        self.out.flush()
    }
}
