//! One answer of one model: its text, what is known of its tokens, and how far it has come.

use crate::base::clock::UnixMillis;
use crate::base::sampling::Sampling;
use crate::data::chat::tool_calls::{AnswerReader, Call, Format, Part, ReadAnswer, Tools};
use crate::wire::{CommandId, Event, StopReason, Turn};
use serde_json::Value;

/// Bytes kept of one text; a model that never stops must not fill the memory.
const MAX_BYTES: usize = 256 << 10;

/// How far an answer has come.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Streaming,
    Done(Done),
    Failed(String),
}

/// The figures of a finished answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    pub n_tokens: u64,
    pub prompt_tokens: u64,
    /// Tokens of the prompt that were read for an earlier one.
    pub kept_tokens: u64,
    pub seconds: f64,
    /// From the prompt to the first token.
    pub prefill_seconds: f64,
    pub reason: StopReason,
    /// What the engine adds to the reason.
    pub message: String,
}

impl Done {
    /// Tokens of the prompt that were read for it: the last ones that fit `context`, without those of an earlier prompt.
    pub fn read_tokens(&self, context: u64) -> u64 {
        let window = self.prompt_tokens.min(context);
        window.saturating_sub(self.kept_tokens)
    }
}

/// What is known of a token, and where its text ends in [`Reply::text`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark {
    pub end: usize,
    /// Nats; NaN for text that is no token's own.
    pub logprob: f32,
    pub entropy: f32,
    /// How long the answer was being written by then, milliseconds.
    pub millis: u64,
}

/// What an answer begins with where the model thinks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thoughts {
    /// Where what is said begins; none: it has not begun.
    pub end: Option<usize>,
    pub tokens: u64,
    pub millis: u64,
}

/// An answer, as the model said it: not yet stripped of control sequences.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The turn as it was sent, with turns before it that got no answer, and the settings it was sent with.
    pub sent: Vec<Turn>,
    pub sampling: Sampling,
    pub text: String,
    pub marks: Vec<Mark>,
    pub answer: Answer,
    pub command: Option<CommandId>,
    /// The format of tool calls in the text, where it is known.
    tool_calls: Option<&'static str>,
    /// What the model read, and its tokens.
    pub prompt: Option<(String, u64)>,
    /// Tokens of the prompt that are read by now, those that were kept of an earlier prompt among them.
    pub read: u64,
    /// When the prompt went to the model; tokens a second of reading it, by the newest report.
    prompted: Option<UnixMillis>,
    reading_rate: Option<f64>,
    /// Time of the first token, and of the newest.
    first: Option<UnixMillis>,
    newest: UnixMillis,
    n_tokens: u64,
}

impl Reply {
    /// Whether there is text that nothing more comes to; also of an answer that an error ended.
    pub fn has_answer(&self) -> bool {
        !self.streaming() && !self.text.is_empty()
    }

    pub fn begin(sent: Vec<Turn>, sampling: Sampling, now: UnixMillis) -> Reply {
        Reply {
            sent,
            sampling,
            text: String::new(),
            marks: Vec::new(),
            answer: Answer::Streaming,
            command: None,
            tool_calls: None,
            prompt: None,
            read: 0,
            prompted: None,
            reading_rate: None,
            first: None,
            newest: now,
            n_tokens: 0,
        }
    }

    /// Asked to go on behind what is there, with these settings.
    pub fn begin_again(&mut self, sampling: Sampling, now: UnixMillis) {
        let sent = std::mem::take(&mut self.sent);
        *self = Reply {
            text: std::mem::take(&mut self.text),
            marks: std::mem::take(&mut self.marks),
            tool_calls: self.tool_calls,
            ..Reply::begin(sent, sampling, now)
        };
    }

    /// The text, with thoughts and calls of these tools as such: of a call that is being written nothing yet.
    pub fn parts(&self, tools: &[Value]) -> Vec<Part> {
        let Some(format) = self.tool_calls.and_then(Format::named) else {
            return vec![Part::Text(self.text.clone())];
        };
        let mut reader = AnswerReader::new(format, Tools::new(tools.to_vec()));
        let mut parts = reader.push(&self.text);
        if !self.streaming() {
            parts.extend(reader.finish());
        }
        parts
    }

    /// What it thought before it began to say something; none of a text that was not thought about.
    pub fn thoughts(&self, tools: &[Value]) -> Option<Thoughts> {
        let format = self.tool_calls.and_then(Format::named);
        let format = format.filter(|format| format.has_thoughts())?;
        let mut reader = AnswerReader::new(format, Tools::new(tools.to_vec()));
        let mut thoughts = Thoughts {
            end: None,
            tokens: 0,
            millis: 0,
        };
        let (mut has_any, mut from) = (false, 0);
        for mark in &self.marks {
            let parts = reader.push(&self.text[from..mark.end]);
            has_any |= parts.iter().any(|part| matches!(part, Part::Thought(_)));
            if parts.iter().any(|part| !matches!(part, Part::Thought(_))) {
                thoughts.end = Some(from);
                break;
            }
            thoughts.millis = mark.millis;
            thoughts.tokens += u64::from(!mark.logprob.is_nan());
            from = mark.end;
        }
        has_any.then_some(thoughts)
    }

    /// The calls in it.
    pub fn calls(&self, tools: &[Value]) -> Vec<Call> {
        self.parts(tools).into_iter().collect::<ReadAnswer>().calls
    }

    /// The same, each with an id, of answer number `turn`.
    pub fn numbered_calls(&self, tools: &[Value], turn: usize) -> Vec<Call> {
        let calls = self.calls(tools).into_iter().enumerate();
        calls
            .map(|(at, call)| call.numbered(turn, at))
            .collect()
    }

    /// As the turn of a conversation: calls are such, and what is none stays as it was written.
    pub fn turn(&self, tools: &[Value], turn: usize) -> Turn {
        let mut read: ReadAnswer = self.parts(tools).into_iter().collect();
        read.calls = self.numbered_calls(tools, turn);
        let format = self.tool_calls.and_then(Format::named);
        if read.calls.is_empty() && !format.is_some_and(Format::has_thoughts) {
            return Turn::new("assistant", self.text.as_str());
        }
        Turn {
            extra: read.fields(),
            ..Turn::new("assistant", read.text)
        }
    }

    pub fn streaming(&self) -> bool {
        self.answer == Answer::Streaming
    }

    /// The model could not take this turn, and later ones go out without it.
    pub fn left_out(&self) -> bool {
        self.text.is_empty() && matches!(self.answer, Answer::Failed(_))
    }

    /// Tokens that came since the last beginning.
    pub fn n_tokens(&self) -> u64 {
        self.n_tokens
    }

    /// Folds an event of its command.
    pub fn apply(&mut self, event: &Event, now: UnixMillis) {
        match event {
            Event::Prompted {
                text,
                prompt_tokens,
                tool_calls,
                ..
            } => {
                // What goes on is read from its beginning.
                if self.text.is_empty() {
                    let format = tool_calls.as_deref().and_then(Format::named);
                    self.tool_calls = format.map(|format| format.word);
                }
                self.prompt = Some((text.clone(), *prompt_tokens));
                self.prompted = Some(now);
            }
            Event::PromptRead { tokens, kept, .. } => {
                self.read = *tokens;
                let seconds = self.prompted.map_or(0.0, |from| now.since(from).as_secs_f64());
                let new = tokens.saturating_sub(*kept) as f64;
                self.reading_rate = (seconds > 0.0).then(|| new / seconds);
            }
            Event::Token {
                text,
                logprob,
                entropy,
                ..
            } => {
                let entropy = entropy.map_or(f64::NAN, |h| h.0);
                self.token(text, logprob.0 as f32, entropy as f32, now);
            }
            Event::Generated {
                n_tokens,
                prompt_tokens,
                kept_tokens,
                seconds,
                prefill_seconds,
                reason,
                message,
                ..
            } => {
                self.answer = match reason {
                    StopReason::Failed => Answer::Failed(message.clone()),
                    reason => Answer::Done(Done {
                        n_tokens: *n_tokens,
                        prompt_tokens: *prompt_tokens,
                        kept_tokens: *kept_tokens,
                        seconds: *seconds,
                        prefill_seconds: *prefill_seconds,
                        reason: *reason,
                        message: message.clone(),
                    }),
                };
            }
            Event::Rejected { why, .. } => self.answer = Answer::Failed(why.clone()),
            _ => {}
        }
    }

    fn token(&mut self, text: &str, logprob: f32, entropy: f32, now: UnixMillis) {
        let mut millis = self.marks.last().map_or(0, |mark| mark.millis);
        if !logprob.is_nan() {
            // Of an answer that goes on the time between does not count.
            let since = self.first.map_or(now, |_| self.newest);
            millis += now.since(since).as_millis() as u64;
            self.first.get_or_insert(now);
            self.newest = now;
            self.n_tokens += 1;
        }
        if self.text.len() + text.len() <= MAX_BYTES {
            self.text.push_str(text);
            self.marks.push(Mark {
                end: self.text.len(),
                logprob,
                entropy,
                millis,
            });
        }
    }

    /// Tokens a second of reading the prompt, while that is under way and once a report of it came.
    pub fn reading_rate(&self) -> Option<f64> {
        let reads = self.streaming() && self.n_tokens == 0;
        self.reading_rate.filter(|_| reads)
    }

    /// Tokens a second of writing; `None` before the second token.
    pub fn decode_rate(&self) -> Option<f64> {
        let (tokens, seconds) = match &self.answer {
            Answer::Done(done) => (done.n_tokens, done.seconds - done.prefill_seconds),
            Answer::Streaming => {
                let seconds = self.newest.since(self.first?).as_secs_f64();
                (self.n_tokens, seconds)
            }
            Answer::Failed(_) => return None,
        };
        // The first token comes with the prompt.
        (tokens > 1 && seconds > 0.0).then(|| (tokens - 1) as f64 / seconds)
    }

    /// Tokens a second of reading what had to be read of the prompt, by a model with this context.
    pub fn prefill_rate(&self, context: u64) -> Option<f64> {
        match &self.answer {
            Answer::Done(done) if done.prefill_seconds > 0.0 => {
                Some(done.read_tokens(context) as f64 / done.prefill_seconds)
            }
            _ => None,
        }
    }
}
