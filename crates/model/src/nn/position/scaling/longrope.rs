//! LongRoPE: each pair has its own divisor, found by search; one list for texts within the original context, one for longer
//! ones. The model's seq_len decides which list applies, as in llama.cpp: results do not depend on the batch, and a cache
//! never mixes keys of both. transformers decides by the text instead: within the original context it uses the short list
//! even if the model allows more.

use super::Rotation;
use crate::base::registry::Entry;
use crate::nn::Fault;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "longrope",
    title: "LongRoPE",
    summary: "Divides each pair's frequency by its own factor, from two lists (Phi-3).",
    source: "Ding et al. 2024, arXiv 2402.13753; Abdin et al. 2024, arXiv 2404.14219",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Divisors of the pairs' speeds where seq_len is within original_len, one per pair. Empty: 1.
    pub short_factor: Vec<f64>,
    /// The same where seq_len is longer. Empty: 1.
    pub long_factor: Vec<f64>,
    /// The context that the model was trained with. With train.from: its context, unless it is set.
    #[schemars(range(min = 2, max = 1048576))]
    pub original_len: usize,
    /// Multiplier of cosines and sines. Default: √(1 + ln(s) / ln(original_len)) with s = seq_len / original_len,
    /// 1 where s is not above 1.
    #[schemars(range(min = 0.001, max = 1000.0))]
    pub attention_factor: Option<f64>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            short_factor: Vec::new(),
            long_factor: Vec::new(),
            original_len: 4096,
            attention_factor: None,
        }
    }
}

impl Config {
    /// The factor on cosines and sines in a model of this context.
    pub fn attention_factor(&self, seq_len: usize) -> f64 {
        let original = self.original_len as f64;
        let longer = seq_len as f64 / original;
        let usual = match longer > 1.0 {
            true => (1.0 + longer.ln() / original.ln()).sqrt(),
            false => 1.0,
        };
        self.attention_factor.unwrap_or(usual)
    }
}

impl super::Scaling for Config {
    fn rotation(&self, theta: f64, half: usize, seq_len: usize) -> Rotation {
        let factors = match seq_len > self.original_len {
            true => &self.long_factor,
            false => &self.short_factor,
        };
        let mut rotation = Rotation::plain(theta, half);
        for (frequency, factor) in rotation.frequencies.iter_mut().zip(factors) {
            *frequency /= factor;
        }
        rotation.factor = self.attention_factor(seq_len);
        rotation
    }

    /// A single number for it: that of the slowest pair.
    fn factor(&self) -> f64 {
        self.long_factor.last().copied().unwrap_or(1.0)
    }

    fn original_context(&self, _context: usize) -> usize {
        self.original_len
    }

    fn faults(&self, _theta: f64, half: usize) -> Vec<Fault> {
        let lists = [&self.short_factor, &self.long_factor];
        let numbers = Fault::unless(
            lists
                .iter()
                .all(|list| list.is_empty() || list.len() == half),
            &[
                "position.rope.scaling.longrope.short_factor",
                "position.rope.scaling.longrope.long_factor",
            ],
            format!(
                "{} and {} factors for {half} pairs",
                lists[0].len(),
                lists[1].len()
            ),
            "one factor per rotated pair, or none",
        );
        let positive = |x: &f64| x.is_finite() && *x > 0.0;
        let values = Fault::unless(
            lists.iter().all(|list| list.iter().all(positive)),
            &["position.rope.scaling.longrope"],
            "a factor is not above 0",
            "factors divide the speeds of the pairs: 1 changes nothing",
        );
        numbers.into_iter().chain(values).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scaling;
    use super::*;

    #[test]
    fn the_list_follows_the_context_and_each_pair_has_its_own_divisor() {
        let config = Config {
            short_factor: vec![1.0, 1.5],
            long_factor: vec![2.0, 8.0],
            original_len: 4096,
            attention_factor: None,
        };
        let (short, long) = (
            config.rotation(10_000.0, 2, 4096),
            config.rotation(10_000.0, 2, 131_072),
        );
        assert_eq!(short.frequencies, [1.0, 0.01 / 1.5]);
        assert_eq!(long.frequencies, [0.5, 0.01 / 8.0]);
        // √(1 + ln 32 / ln 4096), Phi-3-mini-128k's.
        assert_eq!(short.factor, 1.0);
        assert!(
            (long.factor - 1.190_238_071_423_808).abs() < 1e-12,
            "{}",
            long.factor
        );
    }
}
