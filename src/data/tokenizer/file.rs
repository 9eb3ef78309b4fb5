//! An existing `tokenizer.json`.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub const ENTRY: Entry = Entry {
    id: "file",
    title: "tokenizer.json",
    summary: "A tokenizer that exists already, in Hugging Face's file format.",
    source: "huggingface/tokenizers",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The tokenizer.json file.
    pub path: PathBuf,
}

impl super::TokenizerKind for Config {
    fn vocab_size(&self) -> Option<usize> {
        None
    }
}
