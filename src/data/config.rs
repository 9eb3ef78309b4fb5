//! Where training text comes from and how it is cut, as said in a spec.

use super::tokenizer::TokenizerConfig;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// In which order training windows are drawn.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Every window starts at an independent random token, as nanoGPT.
    #[default]
    Random,
    /// Each epoch visits every disjoint window once, in a fresh random order.
    Shuffled,
}

/// Where training text comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// A UTF-8 text file, or a folder of `.txt` files read in name order. Default: the embedded corpus.
    pub path: Option<PathBuf>,
    /// The embedded corpus used when no path is given: `tinyshakespeare`.
    pub corpus: String,
    /// How text becomes tokens.
    pub tokenizer: TokenizerConfig,
    /// The share of the text, taken from its end, that is held out for validation.
    #[schemars(range(min = 0.0, max = 0.9))]
    pub val_fraction: f64,
    /// In which order training windows are drawn.
    pub order: Order,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            path: None,
            corpus: "tinyshakespeare".into(),
            tokenizer: TokenizerConfig::Char(Default::default()),
            val_fraction: 0.1,
            order: Order::Random,
        }
    }
}
