//! A penalty for repetition: the share of word n-grams that occurred before.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

pub const ENTRY: Entry = Entry {
    id: "repetition",
    title: "Repetition penalty",
    summary: "Minus the share of n-grams that occurred earlier in the completion.",
    source: "Yeo et al. 2025, arXiv 2502.03373, appendix on the repetition penalty",
};

/// Share of the groups of `n` words that stood in the text before; 0 where there are fewer words.
pub fn repeated(text: &str, n: usize) -> f64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let groups = words.windows(n.max(1));
    let all = groups.len();
    let different = groups.collect::<HashSet<_>>().len();
    (all - different) as f64 / all.max(1) as f64
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Words of a group.
    #[schemars(range(min = 1, max = 64))]
    pub words: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { words: 3 }
    }
}

impl Reward for Config {
    fn is_verifier(&self) -> bool {
        false
    }

    fn judges_message(&self) -> bool {
        false
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        // Not −0 where nothing repeats.
        Ok(match repeated(&answer.words(), self.words) {
            0.0 => 0.0,
            share => -share,
        })
    }

    fn fault(&self) -> Option<(String, String)> {
        (self.words == 0).then(|| ("groups of 0 words".into(), "words: 3 is usual".into()))
    }
}
