//! What a model makes of a prompt: the log-probability of each of its tokens, and the tokens that are likelier at its place.

use crate::kernels::distribution;
use crate::kernels::threads;
use crate::nn::Model;
use crate::nn::decoding::Decoding;
use crate::nn::kv_cache::{CHUNK, PrefixCache};
use crate::nn::sampler::{Alternative, logprob, most_likely};
use candle_core::{DType, IndexOp, Result, Tensor, bail};
use std::ops::ControlFlow;

/// A token of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptToken {
    pub id: u32,
    /// In nats; none of the first, which nothing is before.
    pub logprob: Option<f32>,
    /// The most likely tokens at its place, likeliest first.
    pub top: Vec<Alternative>,
}

/// Scores `prompt`, with `top` alternatives for each token; a generation on `kept` prefills little after it. `on_tokens` gets them
/// piece by piece in their order, and may break off.
///
/// # Errors
/// An empty prompt, one beyond the context, ids outside the vocabulary, damaged weights.
pub fn score_prompt(
    model: &mut Model,
    kept: &mut PrefixCache,
    prompt: &[u32],
    top: usize,
    on_tokens: &mut dyn FnMut(Vec<PromptToken>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let (len, limit) = (prompt.len(), model.shape().seq_len);
    let Some((&first, targets)) = prompt.split_first() else {
        bail!("generate: the prompt is empty; give at least one token")
    };
    model.check_ids("prompt", prompt)?;
    if len > limit {
        bail!("the prompt has {len} tokens, more than the context of {limit} tokens holds")
    }
    let first = PromptToken {
        id: first,
        logprob: None,
        top: Vec::new(),
    };
    if on_tokens(vec![first]).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    if targets.is_empty() {
        return Ok(ControlFlow::Continue(()));
    }
    let inputs = &prompt[..len - 1];
    let mut flow = ControlFlow::Continue(());
    model.decode_on(kept, (prompt, len), |decoding| {
        // What is cached has no logits any more.
        decoding.restart(0);
        let mut read = 0;
        for (inputs, targets) in inputs.chunks(CHUNK).zip(targets.chunks(CHUNK)) {
            let mut tokens = Vec::with_capacity(targets.len());
            let mut weights = Vec::new();
            decoding.each_row(inputs, &mut |logits| {
                let of = distribution::softmax(logits, &mut weights);
                let id = targets[tokens.len()];
                tokens.push(PromptToken {
                    id,
                    logprob: Some(logprob(logits, &of, id)),
                    top: most_likely(logits, &of, top),
                });
            })?;
            read += inputs.len();
            if on_tokens(tokens).is_break() {
                flow = ControlFlow::Break(());
                break;
            }
        }
        Ok(prompt[..read].to_vec())
    })?;
    Ok(flow)
}

impl Decoding<'_> {
    /// Appends at most [`CHUNK`] tokens to the first text, and calls `visit` with the logits (V) after each.
    fn each_row(&mut self, tokens: &[u32], visit: &mut (dyn FnMut(&[f32]) + Send)) -> Result<()> {
        match self {
            Decoding::Composite { decoder, pasts } => {
                let ids = Tensor::from_slice(tokens, (1, tokens.len()), &decoder.device())?;
                let hidden = decoder.hidden(&ids, &mut pasts[0], None)?;
                for row in 0..tokens.len() {
                    let logits = decoder.logits(&hidden.i((0, row..row + 1))?)?;
                    visit(&logits.squeeze(0)?.to_dtype(DType::F32)?.to_vec1::<f32>()?);
                }
            }
            Decoding::Fused {
                plan,
                pass,
                texts,
                ids,
            } => {
                texts.take_up(&[(0, tokens)], ids);
                threads::enter(|| pass.each_logits(plan, ids, texts, visit));
            }
        }
        Ok(())
    }
}
