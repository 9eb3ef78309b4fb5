//! DeepSeek-V2 and V2-Lite, and DeepSeek-Coder-V2: softmax scores, which are not normalized.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::deepseek::{self, DeepSeek};
use super::family::Family;
use crate::base::text::one_line;
use crate::nn::{ModelConfig, MoeConfig, ParamInfo};
use serde_json::{Value, json};

pub struct DeepSeekV2;

const DEFAULTS: DeepSeek = DeepSeek {
    q_rank: 1536,
    nope_dim: 128,
    v_dim: 128,
    n_expert: 64,
    top_k: 6,
    d_ff: 1407,
    n_shared: 2,
    n_dense: 0,
    gate_scale: 1.0,
    norm_topk: false,
    groups: [1, 1],
    eps: 1e-6,
};

impl Family for DeepSeekV2 {
    fn model_type(&self) -> &'static str {
        "deepseek_v2"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "DeepseekV2ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "DeepseekV2ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        let config = DEFAULTS.read(keys)?;
        keys.only("norm_topk_prob", &json!(false))?;
        keys.only("scoring_func", &json!("softmax"))?;
        if config.moe.is_some() {
            keys.need_size("num_experts_per_tok")?;
        }
        let groups = DEFAULTS.groups(keys)?;
        let (n_group, top_group) = match keys.word("topk_method")? {
            None | Some("greedy") => (None, None),
            Some("group_limited_greedy") => groups,
            Some(other) => {
                return Err(format!(
                    "topk_method `{}`: greedy and group_limited_greedy are supported for this model type",
                    one_line(other)
                ));
            }
        };
        let moe = config.moe.map(|moe| MoeConfig {
            n_group,
            top_group,
            ..moe
        });
        Ok(ModelConfig { moe, ..config })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        let has_groups = config.moe.as_ref().is_some_and(|moe| moe.n_group.is_some());
        value["topk_method"] = json!(if has_groups {
            "group_limited_greedy"
        } else {
            "greedy"
        });
        value["scoring_func"] = json!("softmax");
        value["mlp_bias"] = json!(false);
        value
    }

    fn disk_name(&self, own: &str) -> String {
        deepseek::disk_name(own)
    }

    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        deepseek::tensors(infos)
    }
}
