//! OLMo 2: norms of what attention and the feed-forward block add, none before them; QK-norm over all heads of a token.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use crate::nn::{AttentionBias, ModelConfig, NormPlacement, QkNormOver};
use serde_json::{Value, json};

pub struct Olmo2;

/// Of transformers' class, and of Olmo3's.
pub(super) const DEFAULTS: Defaults = Defaults {
    eps: 1e-5,
    ..Defaults::LLAMA
};

impl Family for Olmo2 {
    fn model_type(&self) -> &'static str {
        "olmo2"
    }

    fn class(&self) -> &'static str {
        "Olmo2ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Olmo2ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        normed(DEFAULTS.read(keys)?, keys)
    }

    fn write(&self, config: &ModelConfig) -> Value {
        write(config)
    }
}

/// A Llama-like `config` with the norms and biases of both versions.
///
/// # Errors
/// Another activation, or no flag.
pub(super) fn normed(config: ModelConfig, keys: &Keys) -> Result<ModelConfig, String> {
    common::silu(keys)?;
    Ok(ModelConfig {
        norm_placement: NormPlacement::Reordered,
        qk_norm: true,
        qk_norm_over: QkNormOver::AllHeads,
        attention_bias: common::attention_bias(keys)?,
        ..config
    })
}

/// The keys of both versions.
pub(super) fn write(config: &ModelConfig) -> Value {
    let mut value = DEFAULTS.write(config);
    value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
    value
}
