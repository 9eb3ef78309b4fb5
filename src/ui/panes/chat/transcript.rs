//! One text of the chat: what was asked and what came.

use crate::base::clock::UnixMillis;
use crate::wire::{CommandId, Event, StopReason};

/// Bytes kept of one text; a model that never stops must not fill the memory.
const MAX_BYTES: usize = 256 << 10;

/// How far an answer has come.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Not asked yet: the engine is on its way.
    Waiting,
    Streaming,
    Done {
        n_tokens: u64,
        seconds: f64,
        reason: StopReason,
    },
    Failed(String),
}

impl Answer {
    pub fn is_over(&self) -> bool {
        matches!(self, Answer::Done { .. } | Answer::Failed(_))
    }
}

/// A prompt and its continuation, as the model sees them: not yet stripped of control sequences.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    pub prompt: String,
    pub text: String,
    pub answer: Answer,
    pub command: Option<CommandId>,
    /// Time of the first token, and tokens so far.
    pub first: Option<UnixMillis>,
    pub newest: UnixMillis,
    pub n_tokens: u64,
}

impl Exchange {
    pub fn new(prompt: String) -> Self {
        Exchange {
            prompt,
            text: String::new(),
            answer: Answer::Waiting,
            command: None,
            first: None,
            newest: UnixMillis::default(),
            n_tokens: 0,
        }
    }

    pub fn begin(&mut self, now: UnixMillis) {
        self.answer = Answer::Streaming;
        self.command = None;
        self.first = None;
        self.newest = now;
        self.n_tokens = 0;
    }

    /// Prompt and continuation, as the next prompt.
    pub fn whole(&self) -> String {
        format!("{}{}", self.prompt, self.text)
    }

    pub fn token(&mut self, text: &str, now: UnixMillis) {
        self.first.get_or_insert(now);
        self.newest = now;
        self.n_tokens += 1;
        if self.text.len() + text.len() <= MAX_BYTES {
            self.text.push_str(text);
        }
    }

    pub fn finish(&mut self, event: &Event) {
        if let Event::Generated {
            n_tokens,
            seconds,
            reason,
            message,
            ..
        } = event
        {
            self.answer = match reason {
                StopReason::Failed => Answer::Failed(message.clone()),
                reason => Answer::Done {
                    n_tokens: *n_tokens,
                    seconds: *seconds,
                    reason: *reason,
                },
            };
        }
    }

    /// Tokens a second so far; `None` before the second token.
    pub fn rate(&self) -> Option<f64> {
        match &self.answer {
            Answer::Done {
                n_tokens, seconds, ..
            } if *seconds > 0.0 => Some(*n_tokens as f64 / seconds),
            Answer::Streaming => {
                let seconds = self.newest.since(self.first?).as_secs_f64();
                (seconds > 0.0).then(|| self.n_tokens.saturating_sub(1) as f64 / seconds)
            }
            _ => None,
        }
    }
}
