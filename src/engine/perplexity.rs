//! How well a model predicts a text: exp of the mean loss per token, in windows that do not overlap.

use crate::nn::{Model, TokenBatch};
use candle_core::Result;

/// A model's perplexity on a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Perplexity {
    /// Tokens that were predicted.
    pub tokens: usize,
    /// Mean loss in nats.
    pub loss: f64,
}

impl Perplexity {
    pub fn value(&self) -> f64 {
        self.loss.exp()
    }
}

/// Reads `tokens` in windows of at most `window` tokens, each with what stands before it in its window alone.
///
/// # Errors
/// Fewer than two tokens, or one that is outside the vocabulary.
pub fn perplexity(model: &mut Model, tokens: &[u32], window: usize) -> Result<Perplexity> {
    let (mut sum, mut count) = (0.0, 0);
    let mut from = 0;
    while from + 1 < tokens.len() {
        let n = window.max(1).min(tokens.len() - 1 - from);
        let inputs = &tokens[from..from + n];
        let targets = &tokens[from + 1..from + n + 1];
        let scored = model.score(&TokenBatch::plain(inputs, targets, 1, n))?;
        let logp: Vec<f32> = scored.logp.flatten_all()?.to_vec1()?;
        sum -= logp.iter().map(|x| f64::from(*x)).sum::<f64>();
        count += n;
        from += n;
    }
    if count == 0 {
        candle_core::bail!("the text has fewer than two tokens")
    }
    Ok(Perplexity {
        tokens: count,
        loss: sum / count as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::ModelConfig;

    #[test]
    fn a_model_without_weights_knows_every_token_equally_badly() {
        let cpu = candle_core::Device::Cpu;
        let mut model = Model::new(&ModelConfig::default(), 17, &cpu).unwrap();
        let tokens: Vec<u32> = (0..50).map(|i| i % 17).collect();
        for window in [1, 7, 49, 64] {
            let found = perplexity(&mut model, &tokens, window).unwrap();
            assert_eq!(found.tokens, 49);
            assert!((found.value() - 17.0).abs() < 1e-3, "{found:?}");
        }
        assert!(perplexity(&mut model, &[1], 8).is_err());
    }
}
