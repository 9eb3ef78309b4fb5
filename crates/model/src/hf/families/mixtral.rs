//! Mixtral: Mistral with experts in every block.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::experts::{everywhere, write_everywhere};
use super::family::Family;
use super::rope::Rope;
use crate::nn::ModelConfig;
use serde_json::{Value, json};

pub struct Mixtral;

const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        theta: 1_000_000.0,
        partial: false,
        fraction: 1.0,
        longrope: false,
        sections: false,
        mscale: false,
    },
    eps: 1e-5,
    kv_heads: Some(8),
    ..Defaults::LLAMA
};

impl Family for Mixtral {
    fn model_type(&self) -> &'static str {
        "mixtral"
    }

    fn class(&self) -> &'static str {
        "MixtralForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "MixtralForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        let config = DEFAULTS.read(keys)?;
        Ok(ModelConfig {
            sliding_window: keys.size("sliding_window")?,
            moe: Some(everywhere(keys, &config)?),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["sliding_window"] = json!(config.sliding_window);
        write_everywhere(config, &mut value);
        value
    }

    fn disk_name(&self, own: &str) -> String {
        own.replace(".mlp.", ".block_sparse_moe.")
            .replace(".gate_proj.", ".w1.")
            .replace(".down_proj.", ".w2.")
            .replace(".up_proj.", ".w3.")
    }
}
