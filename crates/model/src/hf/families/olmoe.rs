//! OLMoE: Llama with experts in every block, and queries and keys normalized over all heads of a token.

use super::super::keys::Keys;
use super::common;
use super::family::Family;
use super::olmo2::DEFAULTS;
use crate::nn::{AttentionBias, ModelConfig, MoeConfig, QkNormOver};
use serde_json::{Value, json};

pub struct Olmoe;

impl Family for Olmoe {
    fn model_type(&self) -> &'static str {
        "olmoe"
    }

    fn class(&self) -> &'static str {
        "OlmoeForCausalLM"
    }

    /// Named as the others.
    fn classifier(&self) -> &'static str {
        "OlmoeForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        // Clipped activations: in no published file.
        keys.only("clip_qkv", &Value::Null)?;
        let config = DEFAULTS.read(keys)?;
        let old = keys.size("num_experts")?;
        let moe = MoeConfig {
            n_expert: keys.size("num_local_experts")?.or(old).unwrap_or(64),
            top_k: keys.size("num_experts_per_tok")?.unwrap_or(8),
            d_ff: config.d_ff,
            norm_topk: keys.flag("norm_topk_prob", false)?,
            aux_loss_coef: keys.number("router_aux_loss_coef")?.unwrap_or(0.01),
            z_loss_coef: 0.0,
            ..MoeConfig::default()
        };
        Ok(ModelConfig {
            qk_norm: true,
            qk_norm_over: QkNormOver::AllHeads,
            attention_bias: common::attention_bias(keys)?,
            moe: Some(moe),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        value["clip_qkv"] = Value::Null;
        if let Some(moe) = &config.moe {
            value["num_experts"] = json!(moe.n_expert);
            value["num_experts_per_tok"] = json!(moe.top_k);
            value["intermediate_size"] = json!(moe.d_ff);
            value["norm_topk_prob"] = json!(moe.norm_topk);
            value["router_aux_loss_coef"] = json!(moe.aux_loss_coef);
        }
        value
    }
}
