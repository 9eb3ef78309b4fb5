//! An answer while it is written: its tokens as text.

use super::conventions::Conventions;
use super::stops::StopStringFilter;
use super::{GenerationEnd, Piece, Step};
use crate::data::tokenizer::{TextStream, TokenBytes};
use crate::nn::generate::{self, Alternative, Finish, Generated, GeneratedToken};
use crate::wire::{LikelyToken, Num, PromptToken, StopReason};
use std::ops::ControlFlow;

/// Tokens of a prompt that are passed on at once: a line of the wire holds no more of them with all their alternatives.
const SCORED: usize = 64;

/// An answer in its row.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub text: AnswerText,
    /// The token that ends it is passed on.
    pub end_token: bool,
    /// Tokens of its prompt that rolled out of the context, and are not read.
    pub beyond: usize,
    pub prompt_tokens: usize,
    /// Turns that its prompt leaves out.
    pub dropped: usize,
}

impl Written {
    pub fn hear(
        &mut self,
        active: &Conventions,
        step: generate::Step,
        on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match step {
            generate::Step::Read { tokens, kept } => {
                let tokens = self.beyond + tokens;
                on_step(Step::Read { tokens, kept })
            }
            generate::Step::Scored(tokens) => {
                let bytes = active.token_bytes();
                tokens.chunks(SCORED).try_for_each(|tokens| {
                    let tokens = tokens.iter().map(|token| scored(token, bytes));
                    on_step(Step::Scored(tokens.collect()))
                })
            }
            generate::Step::Token(token, top) => self.text.push(active, token, top, on_step),
        }
    }

    /// Passes on what was held back. The message is left to the model.
    pub fn end(
        self,
        active: &Conventions,
        generated: Generated,
        on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> GenerationEnd {
        let AnswerText {
            n_tokens,
            broken,
            has_bytes,
            ..
        } = self.text;
        if broken.is_none() && generated.finish != Finish::Stopped {
            self.text.finish(active, generated.finish, on_step);
        }
        if let Some(end) = generated.end.filter(|_| self.end_token) {
            let bytes = has_bytes.then(|| active.token_bytes());
            let top = &generated.end_alternatives;
            let _ = on_step(Step::Wrote(piece(end, String::new(), top, bytes)));
        }
        GenerationEnd {
            n_tokens,
            reason: match generated.finish {
                Finish::Length => StopReason::Length,
                Finish::Eos => StopReason::Stop,
                Finish::Context => StopReason::Context,
                Finish::Stopped => broken.unwrap_or(StopReason::Cancelled),
            },
            message: String::new(),
        }
    }
}

/// Turns the tokens of an answer into text.
#[derive(Debug, Clone)]
pub(super) struct AnswerText {
    stream: TextStream,
    stops: StopStringFilter,
    /// Log-probabilities are wanted.
    has_bytes: bool,
    n_tokens: usize,
    /// Why the answer ended, if not by the model.
    broken: Option<StopReason>,
}

impl AnswerText {
    pub fn new(stream: TextStream, stops: &[String], has_bytes: bool) -> AnswerText {
        AnswerText {
            stream,
            stops: StopStringFilter::new(stops),
            has_bytes,
            n_tokens: 0,
            broken: None,
        }
    }

    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    fn push(
        &mut self,
        active: &Conventions,
        token: GeneratedToken,
        top: &[Alternative],
        on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.n_tokens += 1;
        let new = self.stream.push(&active.tokenizer, token.id);
        let (text, stopped) = self.stops.push(&new);
        let bytes = self.has_bytes.then(|| active.token_bytes());
        if on_step(Step::Wrote(piece(token, text, top, bytes))).is_break() {
            self.broken = Some(StopReason::Cancelled);
        } else if stopped {
            self.broken = Some(StopReason::Stop);
        }
        match self.broken {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    /// Passes on text without a token of its own: what was held back until it was sure. A character that a limit cut is left
    /// out: the model did not write `�`, and would read it in a text that goes on from here.
    fn finish(
        mut self,
        active: &Conventions,
        finish: Finish,
        on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) {
        let held = self.stream.finish(&active.tokenizer);
        let held = match finish {
            Finish::Length | Finish::Context => held.trim_end_matches(char::REPLACEMENT_CHARACTER),
            Finish::Eos | Finish::Stopped => &held,
        };
        let (mut text, stopped) = self.stops.push(held);
        if !stopped {
            text.push_str(&self.stops.rest());
        }
        if !text.is_empty() {
            let _ = on_step(Step::Wrote(Piece {
                text,
                logprob: f32::NAN,
                entropy: f32::NAN,
                id: None,
                bytes: None,
                top: Vec::new(),
            }));
        }
    }
}

/// A token as what is said of it; `bytes` where log-probabilities are wanted.
fn piece(
    token: GeneratedToken,
    text: String,
    top: &[Alternative],
    bytes: Option<&TokenBytes>,
) -> Piece {
    Piece {
        text,
        logprob: token.logprob,
        entropy: token.entropy,
        id: Some(token.id),
        bytes: bytes.map(|bytes| bytes.of(token.id).to_vec()),
        top: bytes.map_or_else(Vec::new, |bytes| likely(top, bytes)),
    }
}

fn scored(token: &generate::PromptToken, bytes: &TokenBytes) -> PromptToken {
    PromptToken {
        id: token.id,
        bytes: bytes.of(token.id).to_vec(),
        logprob: token.logprob.map(|x| Num(x.into())),
        top: likely(&token.top, bytes),
    }
}

fn likely(top: &[Alternative], bytes: &TokenBytes) -> Vec<LikelyToken> {
    let likely = |token: &Alternative| LikelyToken {
        id: token.id,
        logprob: Num(token.logprob.into()),
        bytes: bytes.of(token.id).to_vec(),
    };
    top.iter().map(likely).collect()
}
