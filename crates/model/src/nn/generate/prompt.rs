//! What a model makes of a prompt: the log-probability of each of its tokens, and the tokens that are likelier at its place.

use crate::kernels::distribution;
use crate::kernels::threads;
use crate::nn::decoding::Decoding;
use crate::nn::sampler::{Alternative, logprob, most_likely};
use candle_core::{DType, IndexOp, Result, Tensor};

/// A token of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptToken {
    pub id: u32,
    /// In nats; none of the first, which nothing is before.
    pub logprob: Option<f32>,
    /// The most likely tokens at its place, likeliest first.
    pub top: Vec<Alternative>,
}

/// Appends `inputs` to a text, at most a chunk of tokens, and scores the token after each, with `top` alternatives.
///
/// # Errors
/// Damaged weights.
pub(super) fn score(
    decoding: &mut Decoding,
    text: usize,
    (inputs, targets): (&[u32], &[u32]),
    top: usize,
) -> Result<Vec<PromptToken>> {
    let mut tokens = Vec::with_capacity(targets.len());
    let mut weights = Vec::new();
    decoding.each_row((text, inputs), &mut |logits| {
        let of = distribution::softmax(logits, &mut weights);
        let id = targets[tokens.len()];
        tokens.push(PromptToken {
            id,
            logprob: Some(logprob(logits, &of, id)),
            top: most_likely(logits, &of, top),
        });
    })?;
    Ok(tokens)
}

impl Decoding<'_> {
    /// Appends tokens to a text, and calls `visit` with the logits (V) after each.
    fn each_row(
        &mut self,
        (text, tokens): (usize, &[u32]),
        visit: &mut (dyn FnMut(&[f32]) + Send),
    ) -> Result<()> {
        match self {
            Decoding::Composite { decoder, pasts } => {
                let ids = Tensor::from_slice(tokens, (1, tokens.len()), &decoder.device())?;
                let hidden = decoder.hidden(&ids, &mut pasts[text], None)?;
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
                texts.take_up(&[(text, tokens)], ids);
                threads::enter(|| pass.each_logits(plan, ids, texts, visit));
            }
        }
        Ok(())
    }
}
