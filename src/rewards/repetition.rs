//! A penalty for saying the same again: the share of word groups that occurred before.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

pub const ENTRY: Entry = Entry {
    id: "repetition",
    title: "Repetition penalty",
    summary: "Minus the share of groups of n words that stood in the answer before.",
    source: "Yeo et al. 2025, arXiv 2502.03373, appendix on the repetition penalty",
};

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
    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let words: Vec<&str> = answer.text.split_whitespace().collect();
        let groups = words.windows(self.words);
        let all = groups.len();
        let different = groups.collect::<HashSet<_>>().len();
        // Not −0 where nothing repeats.
        Ok(match all - different {
            0 => 0.0,
            again => -(again as f64 / all as f64),
        })
    }

    fn fault(&self) -> Option<(String, String)> {
        (self.words == 0).then(|| ("groups of 0 words".into(), "words: 3 is usual".into()))
    }
}
