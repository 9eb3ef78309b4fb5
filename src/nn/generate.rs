//! Continues a prompt token by token, with keys and values of earlier tokens kept.
//!
//! At the context limit (`seq_len`) the window rolls: the newer half of the text is read again from its first position, and
//! generation goes on from there.

use super::Model;
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
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The end-of-sequence token came; it is not among the tokens.
    Eos,
    /// `max_new_tokens` are there.
    Length,
    /// The callback said so.
    Stopped,
}

/// What came of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// New tokens, without the prompt and without `eos`.
    pub tokens: Vec<u32>,
    pub finish: Finish,
}

/// Continues `prompt` by at most `sampling.max_new_tokens`. `on_token` sees each token as it comes and may break off.
/// `sampling.stop` is about text and is the caller's to watch.
pub fn generate(
    model: &mut Model,
    prompt: &[u32],
    sampling: &Sampling,
    eos: Option<u32>,
    on_token: &mut dyn FnMut(GeneratedToken) -> ControlFlow<()>,
) -> Result<Generated> {
    if prompt.is_empty() {
        bail!("generate: the prompt is empty; give at least one token")
    }
    let limit = model.shape().seq_len;
    let mut sampler = Sampler::new(sampling, model.shape().vocab_size, prompt);
    let mut window = prompt[prompt.len().saturating_sub(limit)..].to_vec();
    let mut tokens = Vec::new();
    let mut decoding = model.decoding()?;
    let mut unread = window.clone();
    for index in 0..sampling.max_new_tokens {
        let logits = decoding.read(&unread)?;
        let (id, logprob) = sampler.next(&logits, index as u64)?;
        if Some(id) == eos {
            return Ok(Generated {
                tokens,
                finish: Finish::Eos,
            });
        }
        tokens.push(id);
        if on_token(GeneratedToken { id, logprob }).is_break() {
            return Ok(Generated {
                tokens,
                finish: Finish::Stopped,
            });
        }
        window.push(id);
        if window.len() > limit {
            window.drain(..window.len() - limit.div_ceil(2));
            decoding.restart();
            unread.clone_from(&window);
        } else {
            unread.clear();
            unread.push(id);
        }
    }
    Ok(Generated {
        tokens,
        finish: Finish::Length,
    })
}
