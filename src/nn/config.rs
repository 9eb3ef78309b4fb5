//! What a decoder is made of, as said in a spec.

use super::{mlp::MlpConfig, norm::NormConfig, position::PositionConfig};
use serde::{Deserialize, Serialize};

/// A decoder-only transformer. Defaults are the quickstart's: a small GPT-2 style model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Number of transformer blocks.
    #[schemars(range(min = 1, max = 1000))]
    pub n_layer: usize,
    /// Query heads; must divide d_model.
    #[schemars(range(min = 1, max = 1024))]
    pub n_head: usize,
    /// Key/value heads; must divide n_head. Equal to n_head is multi-head, 1 is multi-query, between is grouped-query
    /// attention. Default: n_head.
    #[schemars(range(min = 1, max = 1024))]
    pub n_kv_head: Option<usize>,
    /// Width of the residual stream.
    #[schemars(range(min = 1, max = 131072))]
    pub d_model: usize,
    /// Width inside the feed-forward block. Default: 4 × d_model, or 8/3 × d_model rounded up to a multiple of 64 for
    /// gated blocks.
    #[schemars(range(min = 1, max = 1048576))]
    pub d_ff: Option<usize>,
    /// Longest context in tokens, and the length of training sequences.
    #[schemars(range(min = 1, max = 1048576))]
    pub seq_len: usize,
    /// Vocabulary size. Default: from the tokenizer.
    #[schemars(range(min = 2, max = 10000000))]
    pub vocab_size: Option<usize>,
    /// How a token knows where it stands.
    pub position: PositionConfig,
    /// Normalisation in front of each sub-layer.
    pub norm: NormConfig,
    /// The feed-forward block.
    pub mlp: MlpConfig,
    /// Bias vectors in linear layers and layer norms.
    pub bias: bool,
    /// The output head shares the token embedding's weights.
    pub tie_embeddings: bool,
    /// Standard deviation of initial weights; projections into the residual stream get init_std / √(2 · n_layer)
    /// (GPT-2).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub init_std: f64,
}

impl Default for ModelConfig {
    fn default() -> Self {
        ModelConfig {
            n_layer: 4,
            n_head: 4,
            n_kv_head: None,
            d_model: 128,
            d_ff: None,
            seq_len: 64,
            vocab_size: None,
            position: PositionConfig::Learned(Default::default()),
            norm: NormConfig::LayerNorm(Default::default()),
            mlp: MlpConfig::Gelu(Default::default()),
            bias: false,
            tie_embeddings: true,
            init_std: 0.02,
        }
    }
}

/// The numbers of a [`ModelConfig`] with every default filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    pub n_layer: usize,
    pub n_head: usize,
    pub n_kv_head: usize,
    pub head_dim: usize,
    pub d_model: usize,
    pub d_ff: usize,
    pub seq_len: usize,
    pub vocab_size: usize,
}

impl ModelConfig {
    /// Fills in what follows from the rest; `vocab_size` is the tokenizer's, used where the config names none.
    pub fn shape(&self, vocab_size: usize) -> ModelShape {
        let d_ff = self.d_ff.unwrap_or_else(|| {
            if self.mlp.gated() {
                (8 * self.d_model).div_ceil(3).next_multiple_of(64)
            } else {
                4 * self.d_model
            }
        });
        ModelShape {
            n_layer: self.n_layer,
            n_head: self.n_head,
            n_kv_head: self.n_kv_head.unwrap_or(self.n_head),
            head_dim: self.d_model / self.n_head.max(1),
            d_model: self.d_model,
            d_ff,
            seq_len: self.seq_len,
            vocab_size: self.vocab_size.unwrap_or(vocab_size),
        }
    }
}
