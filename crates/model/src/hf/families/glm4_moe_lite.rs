//! GLM-4.7-Flash: DeepSeek-V3 with other sizes, and a list of the blocks that have experts.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::deepseek::{self, DeepSeek};
use super::deepseek_v3::{with_sigmoids, write_sigmoids};
use super::family::Family;
use crate::nn::{ModelConfig, MoeConfig, ParamInfo};
use serde_json::{Value, json};

pub struct Glm4MoeLite;

const DEFAULTS: DeepSeek = DeepSeek {
    q_rank: 768,
    nope_dim: 192,
    v_dim: 256,
    n_expert: 64,
    top_k: 4,
    d_ff: 1536,
    n_shared: 1,
    n_dense: 1,
    gate_scale: 1.8,
    norm_topk: true,
    groups: [1, 1],
    eps: 1e-5,
};

const TYPES: &str = "mlp_layer_types";

impl Family for Glm4MoeLite {
    fn model_type(&self) -> &'static str {
        "glm4_moe_lite"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "Glm4MoeLiteForCausalLM"
    }

    /// Named as the others.
    fn classifier(&self) -> &'static str {
        "Glm4MoeLiteForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        let config = with_sigmoids(DEFAULTS, keys)?;
        let n_layer = config.n_layer;
        let Some(types) = keys.words(TYPES)? else {
            // The class leaves `first_k_dense_replace` out.
            keys.only("first_k_dense_replace", &json!(1))?;
            return Ok(config);
        };
        if types.len() != n_layer || types.iter().any(|kind| !["dense", "sparse"].contains(kind)) {
            return Err(format!(
                "{TYPES}: expected dense or sparse for each of {n_layer} blocks"
            ));
        }
        let (every, dense_blocks) = MoeConfig::blocks_of(n_layer, |layer| types[layer] == "sparse");
        let moe = config.moe.map(|moe| MoeConfig {
            every,
            dense_blocks,
            ..moe
        });
        Ok(ModelConfig { moe, ..config })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = write_sigmoids(DEFAULTS, config);
        let kind = |layer| match config.experts(layer) {
            Some(_) => "sparse",
            None => "dense",
        };
        let types: Vec<&str> = (0..config.n_layer).map(kind).collect();
        value[TYPES] = json!(types);
        value
    }

    fn disk_name(&self, own: &str) -> String {
        deepseek::disk_name(own)
    }

    fn is_behind(&self, config: &ModelConfig, name: &str) -> bool {
        deepseek::is_behind(config, name)
    }

    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        deepseek::tensors(infos)
    }
}
