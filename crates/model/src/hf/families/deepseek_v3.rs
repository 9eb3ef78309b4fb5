//! DeepSeek-V3, R1 and their kin (Moonlight, Kimi K2): sigmoid scores with biases for the choice, in groups.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::deepseek::{self, DeepSeek};
use super::family::Family;
use crate::nn::{Balancing, ModelConfig, MoeConfig, ParamInfo, Scoring};
use serde_json::{Value, json};

pub struct DeepSeekV3;

const DEFAULTS: DeepSeek = DeepSeek {
    q_rank: 1536,
    nope_dim: 128,
    v_dim: 128,
    n_expert: 256,
    top_k: 8,
    d_ff: 2048,
    n_shared: 1,
    n_dense: 3,
    gate_scale: 2.5,
    norm_topk: true,
    groups: [8, 4],
    eps: 1e-6,
};

impl Family for DeepSeekV3 {
    fn model_type(&self) -> &'static str {
        "deepseek_v3"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "DeepseekV3ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "DeepseekV3ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        with_sigmoids(DEFAULTS, keys)
    }

    fn write(&self, config: &ModelConfig) -> Value {
        write_sigmoids(DEFAULTS, config)
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

/// Sigmoid scores, biases for the choice, groups.
///
/// # Errors
/// A missing or invalid key, named.
pub(super) fn with_sigmoids(defaults: DeepSeek, keys: &Keys) -> Result<ModelConfig, String> {
    let config = defaults.read(keys)?;
    keys.only("scoring_func", &json!("sigmoid"))?;
    keys.only("topk_method", &json!("noaux_tc"))?;
    let (n_group, top_group) = defaults.groups(keys)?;
    let moe = config.moe.map(|moe| MoeConfig {
        n_group,
        top_group,
        scoring: Scoring::Sigmoid,
        // Training leaves them as they are, unless it is told otherwise.
        balancing: Balancing::Bias { rate: 0.0 },
        ..moe
    });
    Ok(ModelConfig { moe, ..config })
}

/// Their keys.
pub(super) fn write_sigmoids(defaults: DeepSeek, config: &ModelConfig) -> Value {
    let mut value = defaults.write(config);
    value["scoring_func"] = json!("sigmoid");
    value["topk_method"] = json!("noaux_tc");
    value["rope_interleave"] = json!(true);
    value["num_nextn_predict_layers"] = json!(0);
    value
}
