//! Qwen2 and Qwen2.5: Llama with biases on queries, keys and values.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use crate::nn::{AttentionBias, ModelConfig};
use serde_json::Value;

pub struct Qwen2;

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(32),
    ..Defaults::LLAMA
};

impl Family for Qwen2 {
    fn model_type(&self) -> &'static str {
        "qwen2"
    }

    fn class(&self) -> &'static str {
        "Qwen2ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Qwen2ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        // Of Qwen2.5-1M, for vLLM; transformers attends to everything.
        let _ = keys.table("dual_chunk_attention_config")?;
        let config = DEFAULTS.read(keys)?;
        Ok(ModelConfig {
            attention_bias: AttentionBias::Qkv,
            sliding_window: common::qwen_window(keys, config.n_layer)?,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        common::write_qwen_window(config, &mut value);
        value
    }
}
