//! Perplexity of a text: exp of the mean loss per token, in non-overlapping windows.

use crate::data::Batch;
use crate::methods;
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

/// Scores `tokens` in windows of at most `window` tokens, each conditioned only on the earlier tokens of its window.
///
/// # Errors
/// Fewer than two tokens, or one that is outside the vocabulary.
pub fn perplexity(model: &mut Model, tokens: &[u32], window: usize) -> Result<Perplexity> {
    let logps = token_logps(model, tokens, window)?;
    if logps.is_empty() {
        candle_core::bail!("the text has fewer than two tokens")
    }
    let sum: f64 = logps.iter().map(|x| f64::from(*x)).sum();
    Ok(Perplexity {
        tokens: logps.len(),
        loss: -sum / logps.len() as f64,
    })
}

/// Scores the supervised targets of rows.
///
/// # Errors
/// None of them is, or a token is outside the vocabulary.
pub fn perplexity_on(model: &mut Model, rows: &[Batch]) -> Result<Perplexity> {
    let (mut sum, mut tokens) = (0.0, 0);
    for batch in rows {
        let logps = model.score(&methods::tokens(batch))?.logp;
        let logps = logps.flatten_all()?.to_vec1::<f32>()?;
        let counts = |at: usize| batch.mask.get(at).is_none_or(|counts| *counts);
        sum += logps
            .iter()
            .enumerate()
            .filter(|(at, _)| counts(*at))
            .map(|(_, logp)| f64::from(*logp))
            .sum::<f64>();
        tokens += batch.supervised();
    }
    if tokens == 0 {
        candle_core::bail!("no token of the rows is supervised")
    }
    Ok(Perplexity {
        tokens,
        loss: -sum / tokens as f64,
    })
}

/// Log-probability of each token but the first, in nats. Windows of at most `window` predictions do not overlap: each
/// begins with the last token of the one before.
///
/// # Errors
/// A token that is outside the vocabulary.
pub fn token_logps(model: &mut Model, tokens: &[u32], window: usize) -> Result<Vec<f32>> {
    let mut logps = Vec::with_capacity(tokens.len());
    let mut from = 0;
    while from + 1 < tokens.len() {
        let n = window.max(1).min(tokens.len() - 1 - from);
        let inputs = &tokens[from..from + n];
        let targets = &tokens[from + 1..from + n + 1];
        let scored = model.score(&TokenBatch::plain(inputs, targets, 1, n))?;
        logps.extend(scored.logp.flatten_all()?.to_vec1::<f32>()?);
        from += n;
    }
    Ok(logps)
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
        // Of rows, prompts and padding do not count.
        let row = Batch {
            inputs: tokens[..8].to_vec(),
            targets: tokens[1..9].to_vec(),
            batch_size: 1,
            seq_len: 8,
            mask: (0..8).map(|at| at >= 5).collect(),
            ..Batch::default()
        };
        let found = perplexity_on(&mut model, &[row.clone(), row]).unwrap();
        assert_eq!(found.tokens, 6);
        assert!((found.value() - 17.0).abs() < 1e-3, "{found:?}");
        assert!(perplexity_on(&mut model, &[]).is_err());
    }
}
