//! LFM2 with experts (LFM2-8B-A1B, LFM2-24B-A2B): sigmoid scores, biases for the choice, and none in the first blocks.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::family::Family;
use super::lfm2::{disk_name, hybrid, hybrid_tensors, write_hybrid};
use crate::nn::{Balancing, ModelConfig, MoeConfig, ParamInfo, Scoring};
use serde_json::{Value, json};

pub struct Lfm2Moe;

/// `num_dense_layers` where no key says another number.
const DENSE: usize = 2;

impl Family for Lfm2Moe {
    fn model_type(&self) -> &'static str {
        "lfm2_moe"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "Lfm2MoeForCausalLM"
    }

    /// Named as the others.
    fn classifier(&self) -> &'static str {
        "Lfm2MoeForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        let config = hybrid(keys, keys.need_size("intermediate_size")?)?;
        let dense = keys.count("num_dense_layers")?.unwrap_or(DENSE);
        let (every, dense_blocks) = MoeConfig::blocks_of(config.n_layer, |layer| layer >= dense);
        let scale = keys.number("routed_scaling_factor")?;
        let moe = MoeConfig {
            n_expert: keys.size("num_experts")?.unwrap_or(32),
            top_k: keys.size("num_experts_per_tok")?.unwrap_or(4),
            d_ff: Some(keys.size("moe_intermediate_size")?.unwrap_or(1792)),
            norm_topk: keys.flag("norm_topk_prob", true)?,
            scoring: Scoring::Sigmoid,
            gate_scale: scale.filter(|scale| *scale != 1.0),
            // The class has no balancing losses.
            aux_loss_coef: 0.0,
            z_loss_coef: 0.0,
            balancing: match keys.flag("use_expert_bias", true)? {
                // Training leaves them as they are, unless it is told otherwise.
                true => Balancing::Bias { rate: 0.0 },
                false => Balancing::Loss {},
            },
            every,
            dense_blocks,
            ..MoeConfig::default()
        };
        Ok(ModelConfig {
            moe: Some(moe),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = write_hybrid(config);
        let Some(moe) = &config.moe else {
            return value;
        };
        let has_experts = |layer: &usize| config.experts(*layer).is_some();
        let first = (0..config.n_layer).find(has_experts);
        value["num_dense_layers"] = json!(first.unwrap_or(config.n_layer));
        value["num_experts"] = json!(moe.n_expert);
        value["num_experts_per_tok"] = json!(moe.top_k);
        value["moe_intermediate_size"] = json!(moe.d_ff);
        value["norm_topk_prob"] = json!(moe.norm_topk);
        value["routed_scaling_factor"] = json!(moe.gate_scale.unwrap_or(1.0));
        value["use_expert_bias"] = json!(moe.balancing != Balancing::Loss {});
        value
    }

    fn disk_name(&self, own: &str) -> String {
        disk_name(own)
    }

    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        hybrid_tensors(infos)
    }
}
