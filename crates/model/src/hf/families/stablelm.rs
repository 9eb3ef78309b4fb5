//! StableLM: Llama with LayerNorms that have biases, and RoPE on a quarter of each head. The models with a parallel residual
//! read one norm in both halves of a block, which is not supported, and neither is their normalization of queries and keys.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use super::rope::Rope;
use crate::nn::norm::{LayerNormConfig, NormConfig};
use crate::nn::{AttentionBias, ModelConfig};
use serde_json::{Value, json};

pub struct StableLm;

const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        theta: 10_000.0,
        partial: true,
        fraction: 0.25,
        longrope: false,
        sections: false,
        mscale: false,
    },
    eps: 1e-5,
    kv_heads: Some(32),
    ..Defaults::LLAMA
};

impl Family for StableLm {
    fn model_type(&self) -> &'static str {
        "stablelm"
    }

    fn class(&self) -> &'static str {
        "StableLmForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "StableLmForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        keys.only("use_parallel_residual", &json!(false))?;
        keys.only("qk_layernorm", &json!(false))?;
        let config = DEFAULTS.read(keys)?;
        let plain = config.d_model / config.n_head;
        if config.head_width() != plain {
            return Err(format!(
                "head_dim {}: heads of this model type have hidden_size / num_attention_heads = {plain} features",
                config.head_width()
            ));
        }
        Ok(ModelConfig {
            norm: NormConfig::LayerNorm(LayerNormConfig {
                eps: keys.number("layer_norm_eps")?.unwrap_or(DEFAULTS.eps),
                bias: Some(true),
            }),
            attention_bias: match keys.flag("use_qkv_bias", false)? {
                true => AttentionBias::Qkv,
                false => AttentionBias::None,
            },
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        if let Some(map) = value.as_object_mut() {
            map.remove("rms_norm_eps");
            map.remove("head_dim");
        }
        value["layer_norm_eps"] = json!(config.norm.eps());
        value["use_qkv_bias"] = json!(config.attention_bias == AttentionBias::Qkv);
        value["qk_layernorm"] = json!(false);
        value["use_parallel_residual"] = json!(false);
        value["hidden_dropout"] = json!(0.0);
        // Its default is a quarter.
        if let Some(rope) = config.position.rope() {
            value["partial_rotary_factor"] = json!(rope.fraction);
            value["rope_parameters"]["partial_rotary_factor"] = json!(rope.fraction);
        }
        value
    }
}
