//! Qwen3-MoE: Qwen3 with experts in every n-th block.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use crate::nn::MoeConfig;
use crate::nn::{AttentionBias, ModelConfig};
use serde_json::{Value, json};

pub struct Qwen3Moe;

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(4),
    ..Defaults::LLAMA
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
        keys.only("mlp_only_layers", &json!([]))?;
        let old = keys.size("num_experts")?;
        let on = keys.flag("use_sliding_window", false)?;
        let moe = MoeConfig {
            n_expert: keys.size("num_local_experts")?.or(old).unwrap_or(128),
            top_k: keys.size("num_experts_per_tok")?.unwrap_or(8),
            d_ff: Some(keys.size("moe_intermediate_size")?.unwrap_or(768)),
            norm_topk: keys.flag("norm_topk_prob", false)?,
            aux_loss_coef: keys.number("router_aux_loss_coef")?.unwrap_or(0.001),
            z_loss_coef: 0.0,
            every: keys.size("decoder_sparse_step")?.unwrap_or(1),
            ..MoeConfig::default()
        };
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
        value["mlp_only_layers"] = json!([]);
        if let Some(moe) = &config.moe {
            value["num_experts"] = json!(moe.n_expert);
            value["num_experts_per_tok"] = json!(moe.top_k);
            value["moe_intermediate_size"] = json!(moe.d_ff);
            value["norm_topk_prob"] = json!(moe.norm_topk);
            value["router_aux_loss_coef"] = json!(moe.aux_loss_coef);
            value["decoder_sparse_step"] = json!(moe.every);
        }
        value
    }
}
