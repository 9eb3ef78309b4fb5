//! Qwen3: QK-norm; no biases.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use crate::nn::{AttentionBias, ModelConfig};
use serde_json::{Value, json};

pub struct Qwen3;

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(32),
    ..Defaults::LLAMA
};

/// The default head_dim, whatever hidden_size.
const HEAD_DIM: usize = 128;

impl Family for Qwen3 {
    fn model_type(&self) -> &'static str {
        "qwen3"
    }

    fn class(&self) -> &'static str {
        "Qwen3ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Qwen3ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        let config = DEFAULTS.read(keys)?;
        Ok(ModelConfig {
            head_dim: Some(keys.size("head_dim")?.unwrap_or(HEAD_DIM)),
            qk_norm: true,
            attention_bias: common::attention_bias(keys)?,
            sliding_window: common::qwen_window(keys, config.n_layer)?,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        common::write_qwen_window(config, &mut value);
        value
    }
}
