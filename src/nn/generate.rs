//! Continues prompts token by token, with keys and values of earlier tokens kept: one text, or several at once, of which
//! each comes out as it would alone.
//!
//! When a text has filled the context (`seq_len`), it ends there, or its window rolls: the newer half is read again from the
//! first position, and generation goes on from there.

use super::Model;
use super::kv_cache::{Decoding, Extent};
use super::sampler::Sampler;
use crate::base::sampling::Sampling;
use candle_core::{Result, bail};
use std::ops::ControlFlow;

/// One new token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeneratedToken {
    pub id: u32,
    /// Log-probability in nats under the model's whole distribution, before penalties, temperature and truncation.
    pub logprob: f32,
    /// Entropy of that distribution, nats.
    pub entropy: f32,
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// A token that ends texts came; it is not among the tokens.
    Eos,
    /// `max_new_tokens` are there.
    Length,
    /// The context is full.
    Context,
    /// The callback said so.
    Stopped,
}

/// What came of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// New tokens, without the prompt and without the one that ended it.
    pub tokens: Vec<u32>,
    pub finish: Finish,
}

/// What becomes of a text that has filled the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It ends; a prompt that is longer is an error.
    Stop,
    /// Its newer half is read again from the first position; of a longer prompt the end is read.
    Roll,
}

/// How texts are continued.
#[derive(Debug, Clone, Copy)]
pub struct Continuing<'a> {
    /// `stop` is about text and is the caller's to watch; `context` is decided in `when_full`.
    pub sampling: &'a Sampling,
    /// Tokens that end a text.
    pub ends: &'a [u32],
    pub when_full: WhenFull,
}

/// A text to be continued.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    pub tokens: &'a [u32],
    /// Which of the texts under one seed it is: its draws depend on this number, and not on who stands beside it.
    pub number: u32,
}

/// Continues `prompt` by at most `sampling.max_new_tokens`. `on_token` sees each token as it comes and may break off.
///
/// # Errors
/// An empty prompt, ids beyond the vocabulary, a prompt that the context cannot hold, damaged weights.
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

/// Continues several prompts side by side, of whatever lengths: each comes out as it would alone. `on_token` hears the
/// text's place in `prompts` with each token; breaking off ends that text alone.
///
/// # Errors
/// As [`generate`].
pub fn generate_batch(
    model: &mut Model,
    prompts: &[Prompt],
    how: Continuing,
    on_token: &mut dyn FnMut(usize, GeneratedToken) -> ControlFlow<()>,
) -> Result<Vec<Generated>> {
    let (limit, vocab_size) = (model.shape().seq_len, model.shape().vocab_size);
    for prompt in prompts {
        if prompt.tokens.is_empty() {
            bail!("generate: the prompt is empty; give at least one token")
        }
        model.check_ids("prompt", prompt.tokens)?;
        let len = prompt.tokens.len();
        if how.when_full == WhenFull::Stop && len > limit {
            bail!("the prompt has {len} tokens, more than the context of {limit} tokens holds")
        }
    }
    let longest = prompts.iter().map(|p| p.tokens.len()).max().unwrap_or(0);
    let extent = Extent {
        texts: prompts.len(),
        tokens: limit.min(longest.saturating_add(how.sampling.max_new_tokens)),
    };
    let mut texts: Vec<Text> = prompts
        .iter()
        .map(|prompt| Text::new(*prompt, how, limit, vocab_size))
        .collect();
    model.decode_batch(extent, |decoding| {
        let mut logits = Vec::new();
        loop {
            let running: Vec<usize> = (0..texts.len())
                .filter(|&i| texts[i].finish.is_none())
                .collect();
            if running.is_empty() {
                return Ok(());
            }
            let pieces: Vec<(usize, &[u32])> =
                running.iter().map(|&i| (i, texts[i].unread())).collect();
            decoding.read_batch(&pieces, &mut logits)?;
            for (&i, logits) in running.iter().zip(logits.chunks_exact(vocab_size)) {
                texts[i].go_on(logits, how.ends, &mut |token| on_token(i, token))?;
                texts[i].settle(i, decoding);
            }
        }
    })?;
    let generated = texts.into_iter().map(|text| Generated {
        tokens: text.new,
        finish: text.finish.unwrap_or(Finish::Stopped),
    });
    Ok(generated.collect())
}

/// A text on its way.
struct Text<'a> {
    /// What the model sees of it.
    window: Vec<u32>,
    /// How many of the window are read.
    read: usize,
    new: Vec<u32>,
    sampler: Sampler<'a>,
    max_new_tokens: usize,
    limit: usize,
    when_full: WhenFull,
    finish: Option<Finish>,
}

impl<'a> Text<'a> {
    /// Of a prompt over the limit its last tokens are read.
    fn new(prompt: Prompt, how: Continuing<'a>, limit: usize, vocab_size: usize) -> Self {
        let tokens = prompt.tokens;
        let nothing_to_do = how.sampling.max_new_tokens == 0;
        Text {
            window: tokens[tokens.len().saturating_sub(limit)..].to_vec(),
            read: 0,
            new: Vec::new(),
            sampler: Sampler::new(how.sampling, vocab_size, tokens, prompt.number),
            max_new_tokens: how.sampling.max_new_tokens,
            limit,
            when_full: how.when_full,
            finish: nothing_to_do.then_some(Finish::Length),
        }
    }

    fn unread(&self) -> &[u32] {
        &self.window[self.read..]
    }

    /// Chooses the next token by the logits after all that is unread.
    fn go_on(
        &mut self,
        logits: &[f32],
        ends: &[u32],
        on_token: &mut dyn FnMut(GeneratedToken) -> ControlFlow<()>,
    ) -> Result<()> {
        self.read = self.window.len();
        let chosen = self.sampler.next(logits, self.new.len() as u64)?;
        if ends.contains(&chosen.id) {
            self.finish = Some(Finish::Eos);
            return Ok(());
        }
        self.new.push(chosen.id);
        self.window.push(chosen.id);
        let token = GeneratedToken {
            id: chosen.id,
            logprob: chosen.logprob,
            entropy: chosen.entropy,
        };
        if on_token(token).is_break() {
            self.finish = Some(Finish::Stopped);
        } else if self.new.len() >= self.max_new_tokens {
            self.finish = Some(Finish::Length);
        }
        Ok(())
    }

    /// What becomes of a window that is over the limit: the text ends, or the newer half is to be read afresh.
    fn settle(&mut self, at: usize, decoding: &mut Decoding) {
        if self.window.len() <= self.limit || self.finish.is_some() {
            return;
        }
        match self.when_full {
            WhenFull::Stop => self.finish = Some(Finish::Context),
            WhenFull::Roll => {
                self.window
                    .drain(..self.window.len() - self.limit.div_ceil(2));
                self.read = 0;
                decoding.restart(at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
