//! Inference is an engine too: it holds one model and answers `Generate` with `Token` events, one prompt after the other.
//! Where lines come from and go to is the link's business.

mod held;
mod stops;

pub use held::{HeldModel, LoadError};

use crate::base::clock::Clock;
use crate::base::sampling::Sampling;
use crate::wire::{Command, CommandId, Event, Num, Request, StopReason};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, TryRecvError};

/// Prompts that may wait behind the one being answered.
const WAITING: usize = 16;
/// Most new tokens of one answer.
const MAX_NEW_TOKENS: usize = 1_000_000;

/// What arrives: a command, or the id of a line that is none and what is wrong with it.
pub type Heard = Result<Request, (CommandId, String)>;

/// A piece of an answer: one token's text (empty while a character is incomplete) and its log-probability in nats.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    pub text: String,
    pub logprob: f32,
}

/// How a continuation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continued {
    pub prompt_tokens: usize,
    pub n_tokens: usize,
    /// `Length`, `Stop`, or `Cancelled` when the callback broke off.
    pub reason: StopReason,
}

/// Something that continues text.
pub trait TextModel {
    /// Continues `prompt`; `on_piece` hears every token and may break off. The error is a sentence for the user.
    fn continue_text(
        &mut self,
        prompt: &str,
        sampling: &Sampling,
        on_piece: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<Continued, String>;
}

/// Answers until the inbox closes or the viewer detaches.
pub fn serve(
    model: &mut dyn TextModel,
    inbox: &Receiver<Heard>,
    clock: &dyn Clock,
    emit: &mut dyn FnMut(Event),
) {
    let mut desk = Desk {
        inbox,
        emit,
        clock,
        waiting: VecDeque::new(),
        open: true,
    };
    while let Some(prompt) = desk.next() {
        desk.answer(model, prompt);
    }
}

/// A prompt that was accepted.
#[derive(Debug)]
struct Prompt {
    id: CommandId,
    text: String,
    sampling: Sampling,
}

struct Desk<'a> {
    inbox: &'a Receiver<Heard>,
    emit: &'a mut dyn FnMut(Event),
    clock: &'a dyn Clock,
    waiting: VecDeque<Prompt>,
    open: bool,
}

impl Desk<'_> {
    /// The next prompt; waits for one. `None` when nobody will ask any more.
    fn next(&mut self) -> Option<Prompt> {
        while self.open && self.waiting.is_empty() {
            match self.inbox.recv() {
                Ok(heard) => {
                    let _ = self.hear(heard, None);
                }
                Err(_) => self.open = false,
            }
        }
        // Who hung up does not want the answers that wait.
        self.waiting.pop_front().filter(|_| self.open)
    }

    fn answer(&mut self, model: &mut dyn TextModel, prompt: Prompt) {
        let begun = self.clock.elapsed();
        let Prompt { id, text, sampling } = prompt;
        let continued = model.continue_text(&text, &sampling, &mut |piece| {
            (self.emit)(Event::Token {
                command: id,
                text: piece.text,
                logprob: Num(piece.logprob.into()),
            });
            self.look_up(id)
        });
        let seconds = (self.clock.elapsed() - begun).as_secs_f64();
        let (continued, message) = match continued {
            Ok(continued) => (continued, String::new()),
            Err(message) => (failed(), message),
        };
        (self.emit)(generated(id, continued, seconds, message));
    }

    /// Between two tokens: what has arrived meanwhile.
    fn look_up(&mut self, current: CommandId) -> ControlFlow<()> {
        loop {
            match self.inbox.try_recv() {
                Ok(heard) => self.hear(heard, Some(current))?,
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
                Err(TryRecvError::Disconnected) => {
                    self.open = false;
                    return ControlFlow::Break(());
                }
            }
        }
    }

    /// Obeys a command; breaks when the answer `current` shall end.
    fn hear(&mut self, heard: Heard, current: Option<CommandId>) -> ControlFlow<()> {
        let Request { id, command } = match heard {
            Ok(request) => request,
            Err((id, why)) => {
                self.reject(id, why);
                return ControlFlow::Continue(());
            }
        };
        match command {
            Command::Generate { prompt, sampling } => self.accept_prompt(id, prompt, sampling),
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
                "this engine only answers prompts: it trains nothing".into(),
            ),
        }
        ControlFlow::Continue(())
    }

    fn accept_prompt(&mut self, id: CommandId, text: String, sampling: Sampling) {
        if let Err(why) = check(&sampling) {
            return self.reject(id, why);
        }
        if self.waiting.len() >= WAITING {
            return self.reject(id, format!("the engine is busy: {WAITING} prompts wait"));
        }
        (self.emit)(Event::Accepted { id });
        self.waiting.push_back(Prompt { id, text, sampling });
    }

    fn cancel_waiting(&mut self, id: CommandId, target: CommandId) {
        let Some(place) = self.waiting.iter().position(|p| p.id == target) else {
            return self.reject(id, format!("no answer {target} is being written"));
        };
        self.waiting.remove(place);
        (self.emit)(Event::Accepted { id });
        let nothing = Continued {
            reason: StopReason::Cancelled,
            ..failed()
        };
        (self.emit)(generated(target, nothing, 0.0, String::new()));
    }

    fn reject(&mut self, id: CommandId, why: String) {
        (self.emit)(Event::Rejected { id, why });
    }
}

fn failed() -> Continued {
    Continued {
        prompt_tokens: 0,
        n_tokens: 0,
        reason: StopReason::Failed,
    }
}

fn generated(command: CommandId, continued: Continued, seconds: f64, message: String) -> Event {
    Event::Generated {
        command,
        n_tokens: continued.n_tokens as u64,
        prompt_tokens: continued.prompt_tokens as u64,
        seconds,
        reason: continued.reason,
        message,
    }
}

/// Settings come from other processes: each is checked before the model sees it.
fn check(sampling: &Sampling) -> Result<(), String> {
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
    } else if !(repetition_penalty.is_finite() && *repetition_penalty > 0.0) {
        Err(format!(
            "repetition_penalty must be a number above 0, not {repetition_penalty}"
        ))
    } else if *max_new_tokens > MAX_NEW_TOKENS {
        Err(format!(
            "max_new_tokens must be at most {MAX_NEW_TOKENS}, not {max_new_tokens}"
        ))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
