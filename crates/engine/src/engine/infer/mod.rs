//! Inference is an engine too: it holds one model and answers `Generate` with `Token` events, one prompt at a time. The
//! transport of its lines is up to the link.

mod adapters;
mod conventions;
mod form;
mod loaded;
mod opening;
mod stops;

pub use loaded::{LoadError, LoadedModel};

use crate::base::clock::Clock;
use crate::base::sampling::Sampling;
use crate::wire::{
    Command, CommandId, Event, LikelyToken, Num, Prompt, PromptToken, Request, StopReason, Wanted,
};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// Prompts that may wait after the one being answered.
const WAITING: usize = 16;
/// Most new tokens of one answer.
const MAX_NEW_TOKENS: usize = 1_000_000;
/// Most alternatives to a token.
const MAX_ALTERNATIVES: usize = 100;
/// Bytes of a prompt that are echoed; of a longer one the end.
const MAX_PROMPT_ECHO: usize = 128 << 10;

/// A request, or a parse error with its id.
pub type InboxItem = Result<Request, (CommandId, String)>;

/// A piece of an answer: one token's text (empty while a character is incomplete), its log-probability and the entropy of
/// its place, in nats. Text that belongs to no token of its own, held back until it was sure, has NaN for both.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    pub text: String,
    pub logprob: f32,
    pub entropy: f32,
    /// The token's id; none for text held back at the end.
    pub id: Option<u32>,
    /// The token's own bytes, where log-probabilities are wanted.
    pub bytes: Option<Vec<u8>>,
    /// The most likely tokens at its place, where they are wanted.
    pub top: Vec<LikelyToken>,
}

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// The prompt as one text.
    pub text: String,
    pub tokens: Vec<u32>,
    /// Turns that it leaves out, the oldest ones.
    pub dropped: usize,
    /// What is generated continues its text, with a space between words; the answer to a turn is a text of its own.
    pub continues: bool,
    /// The format of tool calls in the answer, where there are tools and it is known.
    pub tool_calls: Option<&'static str>,
}

/// Progress of a generation.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// So many tokens of the prompt are read by now, `kept` of them for an earlier prompt.
    Read {
        tokens: usize,
        kept: usize,
    },
    /// The next tokens of the prompt, where their log-probabilities are wanted.
    Scored(Vec<PromptToken>),
    Wrote(Piece),
}

/// How a continuation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationEnd {
    pub n_tokens: usize,
    /// `Length`, `Stop`, `Context`, or `Cancelled` when the callback broke off.
    pub reason: StopReason,
    /// A sentence for the user, where the reason needs one.
    pub message: String,
}

/// Why there is no answer, as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The model does not take what it was asked.
    #[error("{0}")]
    Refused(String),
    /// It cannot compute: too little memory, damaged weights.
    #[error("{0}")]
    Broken(String),
}

impl From<String> for NoAnswer {
    fn from(why: String) -> NoAnswer {
        NoAnswer::Refused(why)
    }
}

impl From<NoAnswer> for String {
    fn from(why: NoAnswer) -> String {
        why.to_string()
    }
}

/// Something that continues text.
pub trait TextModel {
    /// Renders a prompt. Of a conversation that does not fit the context, oldest turns are left out if `sampling` lets them.
    ///
    /// # Errors
    /// A sentence for the user: an empty prompt, no chat template, or turns or tools that it refuses.
    fn read(&self, prompt: &Prompt, sampling: &Sampling) -> Result<RenderedPrompt, String>;

    /// Generates a continuation; `on_step` is called for every token and between the chunks of a long prompt, and may cancel.
    ///
    /// # Errors
    /// A prompt longer than the context where that may not roll, a form that cannot be followed, or a failure of the model.
    fn answer(
        &mut self,
        reading: &RenderedPrompt,
        sampling: &Sampling,
        wanted: &Wanted,
        on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<GenerationEnd, NoAnswer>;

    /// [`TextModel::answer`] with nothing but the text.
    ///
    /// # Errors
    /// As [`TextModel::answer`].
    fn generate(
        &mut self,
        reading: &RenderedPrompt,
        sampling: &Sampling,
        on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<GenerationEnd, NoAnswer> {
        self.answer(reading, sampling, &Wanted::default(), on_step)
    }

    /// Answers with the adapter of this name from now on, or with none.
    ///
    /// # Errors
    /// A sentence for the user: the name is unknown, or memory is short.
    fn use_adapter(&mut self, name: Option<&str>) -> Result<(), String> {
        match name {
            None => Ok(()),
            Some(_) => Err(
                "this model has no adapters: load some with llmtui chat MODEL --adapter DIR".into(),
            ),
        }
    }
}

/// Answers until the inbox closes or the viewer detaches.
pub fn serve(
    model: &mut dyn TextModel,
    inbox: &Receiver<InboxItem>,
    clock: &dyn Clock,
    emit: &mut dyn FnMut(Event),
) {
    let mut server = InferenceServer {
        inbox,
        emit,
        clock,
        waiting: VecDeque::new(),
        open: true,
    };
    while let Some(waiting) = server.next() {
        match waiting {
            Queued::Prompt(asked) => server.answer(model, asked),
            Queued::Adapter(id, name) => match model.use_adapter(name.as_deref()) {
                Ok(()) => (server.emit)(Event::AdapterUsed { command: id, name }),
                Err(why) => server.reject(id, why),
            },
        }
    }
}

/// A prompt that was accepted.
#[derive(Debug)]
struct Asked {
    id: CommandId,
    prompt: Prompt,
    sampling: Sampling,
    wanted: Wanted,
}

/// What waits for the answer before it.
#[derive(Debug)]
enum Queued {
    Prompt(Asked),
    Adapter(CommandId, Option<String>),
}

impl Queued {
    fn id(&self) -> CommandId {
        match self {
            Queued::Prompt(asked) => asked.id,
            Queued::Adapter(id, _) => *id,
        }
    }
}

/// The report at the end of an answer.
struct AnswerReport {
    prompt_tokens: usize,
    kept_tokens: usize,
    continued: GenerationEnd,
    /// The model could not compute.
    broken: bool,
    seconds: Duration,
    /// From the prompt to the first token.
    prefill: Duration,
}

struct InferenceServer<'a> {
    inbox: &'a Receiver<InboxItem>,
    emit: &'a mut dyn FnMut(Event),
    clock: &'a dyn Clock,
    waiting: VecDeque<Queued>,
    open: bool,
}

impl InferenceServer<'_> {
    /// The next prompt; blocks until there is one. `None` when the inbox is closed.
    fn next(&mut self) -> Option<Queued> {
        while self.open && self.waiting.is_empty() {
            match self.inbox.recv() {
                Ok(heard) => {
                    let _ = self.handle(heard, None);
                }
                Err(_) => self.open = false,
            }
        }
        // Who hung up does not want the answers that wait.
        self.waiting.pop_front().filter(|_| self.open)
    }

    fn answer(&mut self, model: &mut dyn TextModel, asked: Asked) {
        let Asked {
            id,
            prompt,
            sampling,
            wanted,
        } = asked;
        let begun = self.clock.elapsed();
        let reading = match model.read(&prompt, &sampling) {
            Ok(reading) => reading,
            Err(message) => {
                return (self.emit)(generated(id, AnswerReport::without_answer(failed(message))));
            }
        };
        (self.emit)(Event::Prompted {
            command: id,
            text: end_of(&reading.text).into(),
            prompt_tokens: reading.tokens.len() as u64,
            tool_calls: reading.tool_calls.map(String::from),
        });
        let (mut first, mut kept_tokens) = (None, 0);
        let read_from = self.clock.elapsed();
        let continued = model.answer(&reading, &sampling, &wanted, &mut |step| {
            match step {
                Step::Read { tokens, kept } => {
                    kept_tokens = kept;
                    (self.emit)(Event::PromptRead {
                        command: id,
                        tokens: tokens as u64,
                        kept: kept as u64,
                    });
                }
                Step::Scored(tokens) => (self.emit)(Event::PromptScored {
                    command: id,
                    tokens,
                }),
                Step::Wrote(piece) => {
                    first.get_or_insert_with(|| self.clock.elapsed());
                    (self.emit)(token(id, piece));
                }
            }
            self.poll_inbox(id)
        });
        let broken = matches!(continued, Err(NoAnswer::Broken(_)));
        let ending = AnswerReport {
            prompt_tokens: reading.tokens.len(),
            kept_tokens,
            continued: continued.unwrap_or_else(|why| failed(why.into())),
            broken,
            seconds: self.clock.elapsed() - begun,
            prefill: first.map_or(Duration::ZERO, |first| first - read_from),
        };
        (self.emit)(generated(id, ending));
    }

    /// Between two tokens, and between two pieces of a prompt: what has arrived meanwhile.
    fn poll_inbox(&mut self, current: CommandId) -> ControlFlow<()> {
        loop {
            match self.inbox.try_recv() {
                Ok(heard) => self.handle(heard, Some(current))?,
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
                Err(TryRecvError::Disconnected) => {
                    self.open = false;
                    return ControlFlow::Break(());
                }
            }
        }
    }

    /// Handles a command; breaks if it cancels the answer `current`.
    fn handle(&mut self, heard: InboxItem, current: Option<CommandId>) -> ControlFlow<()> {
        let Request { id, command } = match heard {
            Ok(request) => request,
            Err((id, why)) => {
                self.reject(id, why);
                return ControlFlow::Continue(());
            }
        };
        match command {
            Command::Generate {
                prompt,
                sampling,
                wanted,
            } => self.accept_prompt(Asked {
                id,
                prompt,
                sampling,
                wanted,
            }),
            Command::UseAdapter { .. } if self.waiting.len() >= WAITING => {
                self.reject(id, format!("the engine is busy: {WAITING} prompts wait"));
            }
            Command::UseAdapter { name } => {
                (self.emit)(Event::Accepted { id });
                self.waiting.push_back(Queued::Adapter(id, name));
            }
            Command::Cancel { target } if Some(target) == current => {
                (self.emit)(Event::Accepted { id });
                return ControlFlow::Break(());
            }
            Command::Cancel { target } => self.cancel_waiting(id, target),
            // The viewer hears this connection from its first event anyway.
            Command::Ping | Command::Subscribe { .. } => (self.emit)(Event::Accepted { id }),
            Command::Detach => {
                self.open = false;
                return ControlFlow::Break(());
            }
            _ => self.reject(
                id,
                "this engine only answers prompts and does not train".into(),
            ),
        }
        ControlFlow::Continue(())
    }

    fn accept_prompt(&mut self, asked: Asked) {
        let id = asked.id;
        let checked = check(&asked.sampling, MAX_NEW_TOKENS);
        if let Err(why) = checked.and_then(|()| check_wanted(&asked.wanted)) {
            return self.reject(id, why);
        }
        if self.waiting.len() >= WAITING {
            return self.reject(id, format!("the engine is busy: {WAITING} prompts wait"));
        }
        (self.emit)(Event::Accepted { id });
        self.waiting.push_back(Queued::Prompt(asked));
    }

    fn cancel_waiting(&mut self, id: CommandId, target: CommandId) {
        let Some(place) = self.waiting.iter().position(|p| p.id() == target) else {
            return self.reject(id, format!("no answer {target} is in progress"));
        };
        self.waiting.remove(place);
        (self.emit)(Event::Accepted { id });
        let nothing = GenerationEnd {
            reason: StopReason::Cancelled,
            ..failed(String::new())
        };
        (self.emit)(generated(target, AnswerReport::without_answer(nothing)));
    }

    fn reject(&mut self, id: CommandId, why: String) {
        (self.emit)(Event::Rejected { id, why });
    }
}

impl AnswerReport {
    fn without_answer(continued: GenerationEnd) -> AnswerReport {
        AnswerReport {
            prompt_tokens: 0,
            kept_tokens: 0,
            continued,
            broken: false,
            seconds: Duration::ZERO,
            prefill: Duration::ZERO,
        }
    }
}

fn failed(message: String) -> GenerationEnd {
    GenerationEnd {
        n_tokens: 0,
        reason: StopReason::Failed,
        message,
    }
}

fn token(command: CommandId, piece: Piece) -> Event {
    Event::Token {
        command,
        text: piece.text,
        logprob: Num(piece.logprob.into()),
        entropy: Some(Num(piece.entropy.into())),
        id: piece.id,
        bytes: piece.bytes,
        top: piece.top,
    }
}

fn generated(command: CommandId, ending: AnswerReport) -> Event {
    Event::Generated {
        command,
        kept_tokens: ending.kept_tokens as u64,
        n_tokens: ending.continued.n_tokens as u64,
        prompt_tokens: ending.prompt_tokens as u64,
        seconds: ending.seconds.as_secs_f64(),
        prefill_seconds: ending.prefill.as_secs_f64(),
        reason: ending.continued.reason,
        message: ending.continued.message,
        broken: ending.broken,
    }
}

/// The last [`MAX_PROMPT_ECHO`] bytes.
fn end_of(text: &str) -> &str {
    let mut from = text.len().saturating_sub(MAX_PROMPT_ECHO);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Settings come from other processes: each is checked before the model sees it. `most` tokens may be written.
pub(super) fn check(sampling: &Sampling, most: usize) -> Result<(), String> {
    let Sampling {
        temperature,
        top_p,
        min_p,
        repetition_penalty,
        max_new_tokens,
        ..
    } = sampling;
    if !(temperature.is_finite() && *temperature >= 0.0) {
        Err(format!(
            "temperature must be a number of at least 0, not {temperature}"
        ))
    } else if !(*top_p > 0.0 && *top_p <= 1.0) {
        Err(format!("top_p must be above 0 and at most 1, not {top_p}"))
    } else if !(0.0..=1.0).contains(min_p) {
        Err(format!("min_p must be from 0 to 1, not {min_p}"))
    } else if !(0.01..=100.0).contains(repetition_penalty) {
        Err(format!(
            "repetition_penalty must be from 0.01 to 100, not {repetition_penalty}"
        ))
    } else if *max_new_tokens > most {
        Err(format!(
            "max_new_tokens must be at most {most}, not {max_new_tokens}"
        ))
    } else {
        Ok(())
    }
}

fn check_wanted(wanted: &Wanted) -> Result<(), String> {
    match wanted.logprobs {
        Some(most) if most > MAX_ALTERNATIVES => Err(format!(
            "logprobs must be at most {MAX_ALTERNATIVES}, not {most}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
