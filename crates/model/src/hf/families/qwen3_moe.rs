//! Qwen3-MoE: Qwen3 with experts.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::experts::Experts;
use super::family::Family;
use crate::nn::{AttentionBias, ModelConfig};
use serde_json::{Value, json};

pub struct Qwen3Moe;

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(4),
    ..Defaults::LLAMA
};

const EXPERTS: Experts = Experts {
    n_expert: 128,
    top_k: 8,
    d_ff: 768,
    shared: None,
    norm_topk: Some(false),
    some_dense: true,
};

impl Family for Qwen3Moe {
    fn model_type(&self) -> &'static str {
        "qwen3_moe"
    }

    fn class(&self) -> &'static str {
        "Qwen3MoeForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Qwen3MoeForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        let config = DEFAULTS.read(keys)?;
        let on = keys.flag("use_sliding_window", false)?;
        let moe = EXPERTS.read(keys, config.n_layer)?;
        // Present in some files but unused: the window is in all blocks.
        keys.value("max_window_layers");
        Ok(ModelConfig {
            qk_norm: true,
            attention_bias: common::attention_bias(keys)?,
            sliding_window: common::qwen_size(keys)?.filter(|_| on),
            moe: Some(moe),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        value["use_sliding_window"] = json!(config.sliding_window.is_some());
        value["sliding_window"] = json!(config.sliding_window);
        EXPERTS.write(config, &mut value);
        value
    }
}
