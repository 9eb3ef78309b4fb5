//! Generates continuations of prompts token by token with a KV cache: of one text, of several in a batch, or of texts that join
//! and leave while others are written ([`Rows`]), with the same results as alone.
//!
//! When a text has filled the context (`seq_len`), it ends there, or its window rolls: the newer half is prefilled again from
//! the first position, and generation continues from there.

use super::Model;
use super::decoding::Extent;
pub use super::sampler::{Alternative, BrokenLogit, Constraint, FORBIDDEN};
use super::sampler::{Chosen, Sampler};
use crate::base::sampling::Sampling;
use crate::kernels::errors::error_text;
use crate::kernels::threads;
use candle_core::{Error, Result, bail};
pub use prompt::PromptToken;
pub use reads::BatchDecoder;
pub use rows::{Asked, MAX_ROWS, Progress, Rows};
use std::ops::ControlFlow;

mod prompt;
mod reads;
mod rows;

/// One new token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeneratedToken {
    pub id: u32,
    /// Log-probability in nats under the model's own distribution, before penalties, temperature and truncation.
    pub logprob: f32,
    /// Entropy of that distribution, nats.
    pub entropy: f32,
    /// Log-probability in nats after penalties and temperature, before truncation.
    pub tempered: f32,
}

/// Why generation failed, for those that may not name candle.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    #[error("{0}")]
    NotFinite(BrokenLogit),
    /// In words.
    #[error("{0}")]
    Other(String),
}

impl From<Error> for GenerateError {
    fn from(error: Error) -> GenerateError {
        match BrokenLogit::of(&error) {
            Some(logit) => GenerateError::NotFinite(logit),
            None => GenerateError::Other(error_text(error)),
        }
    }
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// An end-of-text token; it is not part of the tokens.
    Eos,
    /// `max_new_tokens` is reached.
    Length,
    /// The context is full.
    Context,
    /// The callback stopped it.
    Stopped,
}

/// The completion of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// New tokens, without the prompt and without the token that ended the text.
    pub tokens: Vec<u32>,
    pub finish: Finish,
    /// The token that ended the text, if any.
    pub end: Option<GeneratedToken>,
    /// The most likely tokens at its place, where they are asked for.
    pub end_alternatives: Vec<Alternative>,
}

/// What to do if a text has filled the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It ends; a prompt that is longer is an error.
    Stop,
    /// Its newer half is prefilled again from the first position; a longer prompt is cut to its end.
    Roll,
}

/// Settings of generation.
#[derive(Debug, Clone, Copy)]
pub struct Continuing<'a> {
    /// `stop` concerns text and is handled by the caller; `context` is decided in `when_full`.
    pub sampling: &'a Sampling,
    /// Tokens that end a text.
    pub ends: &'a [u32],
    pub when_full: WhenFull,
}

/// A text to continue.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    pub tokens: &'a [u32],
    /// The index of the text under one seed: its draws depend on this number, and not on the other texts of the batch.
    pub number: u32,
}

/// Progress of generation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step<'a> {
    /// This many tokens of the prompt are prefilled, `kept` of them from the cache of an earlier text. Sent before prefill and
    /// between two chunks of a long prompt.
    Read { tokens: usize, kept: usize },
    /// The next tokens of the prompt, where their log-probabilities are wanted.
    Scored(&'a [PromptToken]),
    /// A token, and the most likely ones at its place, where they are asked for.
    Token(GeneratedToken, &'a [Alternative]),
}

/// Generates at most `sampling.max_new_tokens` after `prompt`. `on_token` gets each token as it is sampled and may stop.
///
/// # Errors
/// An empty prompt, ids outside the vocabulary, a prompt beyond the context, damaged weights.
pub fn generate(
    model: &mut Model,
    prompt: &[u32],
    how: Continuing,
    on_token: &mut dyn FnMut(GeneratedToken) -> ControlFlow<()>,
) -> Result<Generated> {
    let prompt = Prompt {
        tokens: prompt,
        number: 0,
    };
    let texts = generate_batch(model, &[prompt], how, &mut |_, token| on_token(token))?;
    match texts.into_iter().next() {
        Some(text) => Ok(text),
        None => bail!("generate: no text came of the prompt"),
    }
}

/// Generates completions of several prompts in one batch, of any lengths, with the same results as alone. Adjacent equal prompts
/// are prefilled once and share the keys and values. `on_token` gets the text's index in `prompts` with each token; stopping
/// ends only that text.
///
/// # Errors
/// As [`generate`].
pub fn generate_batch(
    model: &mut Model,
    prompts: &[Prompt],
    how: Continuing,
    on_token: &mut dyn FnMut(usize, GeneratedToken) -> ControlFlow<()>,
) -> Result<Vec<Generated>> {
    let extent = Extent {
        texts: prompts.len(),
        tokens: room(model, prompts, how)?,
    };
    let mut texts = begin(model, prompts, how);
    model.decode_batch(extent, |decoding| {
        side_by_side(&mut texts, prompts, decoding, how, on_token)
    })?;
    Ok(texts.into_iter().map(Text::generated).collect())
}

/// [`generate_batch`] with weights held elsewhere: `model` has the vocabulary and the context, and `reader` is called with the
/// length of the longest text and does the forward passes.
///
/// # Errors
/// As [`generate`]; those of the reader.
pub fn generate_by<R: BatchDecoder>(
    model: &Model,
    reader: impl FnOnce(usize) -> R,
    prompts: &[Prompt],
    how: Continuing,
    on_token: &mut dyn FnMut(usize, GeneratedToken) -> ControlFlow<()>,
) -> Result<Vec<Generated>> {
    let mut reader = reader(room(model, prompts, how)?);
    let mut texts = begin(model, prompts, how);
    side_by_side(&mut texts, prompts, &mut reader, how, on_token)?;
    Ok(texts.into_iter().map(Text::generated).collect())
}

fn begin(model: &Model, prompts: &[Prompt], how: Continuing) -> Vec<Text> {
    let texts = prompts.iter().map(|prompt| Text::of(model, *prompt, how));
    texts.collect()
}

/// Only the first of adjacent equal prompts is prefilled.
fn side_by_side(
    texts: &mut [Text],
    prompts: &[Prompt],
    reader: &mut dyn BatchDecoder,
    how: Continuing,
    on_token: &mut dyn FnMut(usize, GeneratedToken) -> ControlFlow<()>,
) -> Result<()> {
    let mut first = 0;
    for i in 1..texts.len() {
        match prompts[i].tokens == prompts[first].tokens && reader.together(first, i) {
            true => texts[i].same_as = Some(first),
            false => first = i,
        }
    }
    run(texts, reader, how, &mut |i, step| match step {
        Step::Token(token, _) => on_token(i, token),
        Step::Read { .. } | Step::Scored(_) => ControlFlow::Continue(()),
    })
}

/// Checks the prompts, and returns the cache capacity per text, in tokens.
fn room(model: &Model, prompts: &[Prompt], how: Continuing) -> Result<usize> {
    let mut most = 0;
    for prompt in prompts {
        most = most.max(room_of(model, prompt.tokens, how)?);
    }
    Ok(most)
}

/// The same of one text.
fn room_of(model: &Model, prompt: &[u32], how: Continuing) -> Result<usize> {
    let (len, limit) = (prompt.len(), model.shape().seq_len);
    if prompt.is_empty() {
        bail!("generate: the prompt is empty; give at least one token")
    }
    model.check_ids("prompt", prompt)?;
    if how.when_full == WhenFull::Stop && len > limit {
        bail!("the prompt has {len} tokens, more than the context of {limit} tokens holds")
    }
    Ok(limit.min(len.saturating_add(how.sampling.max_new_tokens)))
}

/// Generates until every text has ended. Cancelling during a prefill ends all of them.
fn run(
    texts: &mut [Text],
    reader: &mut dyn BatchDecoder,
    how: Continuing,
    on_step: &mut dyn FnMut(usize, Step) -> ControlFlow<()>,
) -> Result<()> {
    let mut logits = Vec::new();
    loop {
        let running: Vec<usize> = (0..texts.len())
            .filter(|&i| texts[i].finish.is_none() && texts[i].same_as.is_none())
            .collect();
        if running.is_empty() {
            return Ok(());
        }
        let pieces: Vec<(usize, &[u32])> =
            running.iter().map(|&i| (i, texts[i].unread())).collect();
        let mut read: Vec<usize> = texts.iter().map(|text| text.read).collect();
        let done = reader.append_tokens(&pieces, &mut logits, &mut |i, more| {
            read[i] += more;
            let (tokens, kept) = (read[i], 0);
            on_step(i, Step::Read { tokens, kept })
        })?;
        if done.is_break() {
            for text in texts.iter_mut() {
                text.finish.get_or_insert(Finish::Stopped);
            }
            return Ok(());
        }
        let rows = rows(texts, &running, reader);
        let vocab_size = logits.len() / running.len();
        let drawing = texts.iter_mut().zip(&rows).filter_map(|(text, row)| {
            row.map(|row| (text, &logits[row * vocab_size..][..vocab_size]))
        });
        draw(&mut drawing.collect::<Vec<_>>());
        for (i, text) in texts.iter_mut().enumerate() {
            let mut on_token = |token, top: &[Alternative]| on_step(i, Step::Token(token, top));
            if text.take_over(how.ends, &mut on_token)? {
                text.settle(i, reader);
            }
        }
    }
}

/// The row of logits for each text: its own or, for a shared prompt, that of the text that was prefilled, whose keys and values
/// it gets. Texts that share a prompt follow it, until each has its own token.
fn rows(
    texts: &mut [Text],
    running: &[usize],
    reader: &mut dyn BatchDecoder,
) -> Vec<Option<usize>> {
    let mut rows = vec![None; texts.len()];
    for (row, &read) in running.iter().enumerate() {
        rows[read] = Some(row);
        for (i, text) in texts.iter_mut().enumerate().skip(read + 1) {
            if text.same_as != Some(read) {
                break;
            }
            text.same_as = None;
            reader.copy_cache(read, i);
            rows[i] = Some(row);
        }
    }
    rows
}

/// Samples the next token of each text from its logits, in parallel: a draw depends on the text alone.
fn draw(drawing: &mut [(&mut Text, &[f32])]) {
    threads::team(|| threads::each(drawing, |(text, logits)| text.draw(logits)));
}

/// A text in progress.
struct Text {
    /// The part in the context window.
    window: Vec<u32>,
    /// The cached tokens of the window.
    read: usize,
    /// The text with the same prompt that is prefilled, until it is.
    same_as: Option<usize>,
    new: Vec<u32>,
    sampler: Sampler,
    /// The next token, until it is reported.
    drawn: Option<Result<Chosen>>,
    max_new_tokens: usize,
    limit: usize,
    when_full: WhenFull,
    finish: Option<Finish>,
    end: Option<GeneratedToken>,
}

impl Text {
    /// A prompt over the limit is cut to its last tokens.
    fn of(model: &Model, prompt: Prompt, how: Continuing) -> Self {
        let (limit, vocab_size) = (model.shape().seq_len, model.shape().vocab_size);
        let tokens = prompt.tokens;
        let nothing_to_do = how.sampling.max_new_tokens == 0;
        Text {
            window: tokens[tokens.len().saturating_sub(limit)..].to_vec(),
            read: 0,
            same_as: None,
            new: Vec::new(),
            sampler: Sampler::new(how.sampling, vocab_size, tokens, prompt.number),
            drawn: None,
            max_new_tokens: how.sampling.max_new_tokens,
            limit,
            when_full: how.when_full,
            finish: nothing_to_do.then_some(Finish::Length),
            end: None,
        }
    }

    fn generated(self) -> Generated {
        Generated {
            tokens: self.new,
            finish: self.finish.unwrap_or(Finish::Stopped),
            end_alternatives: match self.end {
                Some(_) => self.sampler.alternatives,
                None => Vec::new(),
            },
            end: self.end,
        }
    }

    fn unread(&self) -> &[u32] {
        &self.window[self.read..]
    }

    /// Samples the next token from the logits after the new tokens.
    fn draw(&mut self, logits: &[f32]) {
        self.read = self.window.len();
        self.drawn = Some(self.sampler.next(logits, self.new.len() as u64));
    }

    /// Appends the sampled token, if there is one.
    fn take_over(
        &mut self,
        ends: &[u32],
        on_token: &mut dyn FnMut(GeneratedToken, &[Alternative]) -> ControlFlow<()>,
    ) -> Result<bool> {
        let Some(drawn) = self.drawn.take() else {
            return Ok(false);
        };
        let chosen = drawn?;
        let token = GeneratedToken {
            id: chosen.id,
            logprob: chosen.logprob,
            entropy: chosen.entropy,
            tempered: chosen.tempered,
        };
        if ends.contains(&chosen.id) {
            self.finish = Some(Finish::Eos);
            self.end = Some(token);
            return Ok(true);
        }
        self.new.push(chosen.id);
        self.window.push(chosen.id);
        if on_token(token, &self.sampler.alternatives).is_break() {
            self.finish = Some(Finish::Stopped);
        } else if self.new.len() >= self.max_new_tokens {
            self.finish = Some(Finish::Length);
        }
        Ok(true)
    }

    /// Handles a window over the limit: the text ends, or the newer half is prefilled again.
    fn settle(&mut self, at: usize, reader: &mut dyn BatchDecoder) {
        if self.window.len() <= self.limit || self.finish.is_some() {
            return;
        }
        match self.when_full {
            WhenFull::Stop => self.finish = Some(Finish::Context),
            WhenFull::Roll => {
                self.window
                    .drain(..self.window.len() - self.limit.div_ceil(2));
                self.read = 0;
                reader.clear_cache(at);
            }
        }
    }
}

#[cfg(test)]
pub(crate) use rows::tests as rows_tests;

#[cfg(test)]
mod precision_tests;
#[cfg(test)]
mod prompt_tests;
#[cfg(test)]
mod tests;
