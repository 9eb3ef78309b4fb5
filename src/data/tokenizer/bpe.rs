//! Byte-level byte-pair encoding, trained on the training split.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "bpe",
    title: "Byte-level BPE",
    summary: "Merges frequent byte pairs into subwords; any text can be encoded.",
    source: "Sennrich et al. 2016, arXiv 1508.07909; Radford et al. 2019 (GPT-2)",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Tokens in the vocabulary, the 256 bytes and the end-of-text token included.
    #[schemars(range(min = 257, max = 1000000))]
    pub vocab_size: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { vocab_size: 1024 }
    }
}

impl super::TokenizerKind for Config {
    fn vocab_size(&self) -> Option<usize> {
        Some(self.vocab_size)
    }
}
