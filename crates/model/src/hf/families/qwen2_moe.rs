//! Qwen2-MoE (Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B): Qwen2 with experts, one of which every token passes.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::experts::Experts;
use super::family::Family;
use crate::nn::{AttentionBias, ModelConfig};
use serde_json::{Value, json};

pub struct Qwen2Moe;

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(16),
    ..Defaults::LLAMA
};
const EXPERTS: Experts = Experts {
    n_expert: 60,
    top_k: 4,
    d_ff: 1408,
    shared: Some(5632),
    norm_topk: Some(false),
    some_dense: true,
};

impl Family for Qwen2Moe {
    fn model_type(&self) -> &'static str {
        "qwen2_moe"
    }

    fn class(&self) -> &'static str {
        "Qwen2MoeForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Qwen2MoeForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        let config = DEFAULTS.read(keys)?;
        Ok(ModelConfig {
            attention_bias: match keys.flag("qkv_bias", true)? {
                true => AttentionBias::Qkv,
                false => AttentionBias::None,
            },
            sliding_window: window(keys, config.n_layer)?,
            moe: Some(EXPERTS.read(keys, config.n_layer)?),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["qkv_bias"] = json!(config.attention_biases() == AttentionBias::Qkv);
        common::write_qwen_window(config, &mut value);
        EXPERTS.write(config, &mut value);
        value
    }
}

/// A window in all blocks, or in none. Where it is on, `layer_types` must say so: the class has it in every other block otherwise.
fn window(keys: &Keys, n_layer: usize) -> Result<Option<usize>, String> {
    let from = keys.count("max_window_layers")?;
    // 0 in files of the class where it is off.
    let stated = keys.count("sliding_window")?;
    if !keys.flag("use_sliding_window", false)? {
        return match common::layer_types(keys, n_layer, None) {
            Ok(_) => Ok(None),
            Err(error) => Err(format!("{error}: use_sliding_window is false")),
        };
    }
    let window = match stated {
        Some(0) => None,
        _ => common::qwen_size(keys)?,
    };
    match common::layer_types(keys, n_layer, window)? {
        Some((window, None)) => Ok(window),
        Some((_, Some(_))) => Err(
            "layer_types: a sliding window is supported in all blocks of this model type or in none".into(),
        ),
        None => Err(format!(
            "use_sliding_window without layer_types gives the first {} blocks a window by turns, which is not supported",
            from.unwrap_or(28)
        )),
    }
}
