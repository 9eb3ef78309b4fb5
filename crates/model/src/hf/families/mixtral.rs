//! Mixtral: Mistral with experts in every block.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use super::rope::Rope;
use crate::nn::ModelConfig;
use crate::nn::MoeConfig;
use serde_json::{Value, json};

pub struct Mixtral;

const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        theta: 1_000_000.0,
        partial: false,
        fraction: 1.0,
        longrope: false,
        sections: false,
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
        let moe = MoeConfig {
            n_expert: keys.size("num_local_experts")?.unwrap_or(8),
            top_k: keys.size("num_experts_per_tok")?.unwrap_or(2),
            d_ff: config.d_ff,
            norm_topk: true,
            aux_loss_coef: keys.number("router_aux_loss_coef")?.unwrap_or(0.001),
            z_loss_coef: 0.0,
            every: 1,
            ..MoeConfig::default()
        };
        Ok(ModelConfig {
            sliding_window: keys.size("sliding_window")?,
            moe: Some(moe),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["sliding_window"] = json!(config.sliding_window);
        if let Some(moe) = &config.moe {
            value["num_local_experts"] = json!(moe.n_expert);
            value["num_experts_per_tok"] = json!(moe.top_k);
            value["intermediate_size"] = json!(moe.d_ff);
            value["router_aux_loss_coef"] = json!(moe.aux_loss_coef);
        }
        value
    }

    fn disk_name(&self, own: &str) -> String {
        own.replace(".mlp.", ".block_sparse_moe.")
            .replace(".gate_proj.", ".w1.")
            .replace(".down_proj.", ".w2.")
            .replace(".up_proj.", ".w3.")
    }
}
