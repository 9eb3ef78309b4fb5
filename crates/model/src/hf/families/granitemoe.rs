//! GraniteMoE (granite-3.1-1b-a400m, -3b-a800m): Granite with experts in every block, all of a block in two tensors.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::{self, Defaults};
use super::experts::stacked;
use super::family::{Family, one_by_one};
use super::granite::{scaled, write_scales};
use crate::nn::{AttentionBias, ModelConfig, MoeConfig, ParamInfo};
use serde_json::{Value, json};

pub struct GraniteMoe;

const DEFAULTS: Defaults = Defaults::LLAMA;

impl Family for GraniteMoe {
    fn model_type(&self) -> &'static str {
        "granitemoe"
    }

    fn class(&self) -> &'static str {
        "GraniteMoeForCausalLM"
    }

    /// Named as the others.
    fn classifier(&self) -> &'static str {
        "GraniteMoeForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        let config = scaled(DEFAULTS.read(keys)?, keys)?;
        let moe = MoeConfig {
            n_expert: keys.size("num_local_experts")?.unwrap_or(8),
            top_k: keys.size("num_experts_per_tok")?.unwrap_or(2),
            d_ff: config.d_ff,
            // A softmax of the chosen logits alone is the same.
            norm_topk: true,
            aux_loss_coef: keys.number("router_aux_loss_coef")?.unwrap_or(0.001),
            z_loss_coef: 0.0,
            ..MoeConfig::default()
        };
        Ok(ModelConfig {
            attention_bias: common::attention_bias(keys)?,
            moe: Some(moe),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        write_scales(config, &mut value);
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        if let Some(moe) = &config.moe {
            value["num_local_experts"] = json!(moe.n_expert);
            value["num_experts_per_tok"] = json!(moe.top_k);
            value["intermediate_size"] = json!(moe.d_ff);
            value["router_aux_loss_coef"] = json!(moe.aux_loss_coef);
        }
        value
    }

    fn disk_name(&self, own: &str) -> String {
        own.replace(".mlp.gate.", ".mlp.router.layer.")
            .replace(".mlp.", ".block_sparse_moe.")
    }

    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let names = ["input_linear.weight", "output_linear.weight"];
        let renamed = |tensor: DiskTensor| {
            let name = self.disk_name(&tensor.name);
            tensor.named(name)
        };
        let tensors = stacked(one_by_one(infos), names).into_iter();
        tensors.map(renamed).collect()
    }
}
