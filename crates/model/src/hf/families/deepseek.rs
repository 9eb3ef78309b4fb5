//! What DeepSeek-V2, V3 and GLM-4.7-Flash share: latent attention, experts behind the first blocks with one that every token passes,
//! and the names of tensors.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::{self, Defaults};
use super::family::one_by_one;
use super::rope::Rope;
use crate::nn::{MlaConfig, ModelConfig, MoeConfig, ParamInfo};
use serde_json::{Value, json};

/// Defaults for absent keys: those of transformers' config classes.
#[derive(Debug, Clone, Copy)]
pub struct DeepSeek {
    pub q_rank: usize,
    pub nope_dim: usize,
    pub v_dim: usize,
    pub n_expert: usize,
    pub top_k: usize,
    pub d_ff: usize,
    pub n_shared: usize,
    /// `first_k_dense_replace`.
    pub n_dense: usize,
    pub gate_scale: f64,
    pub norm_topk: bool,
    pub groups: [usize; 2],
    pub eps: f64,
}

const DENSE: &str = "first_k_dense_replace";
/// Keys of the published files that no class reads: of losses, and of training on several machines.
const UNREAD: [&str; 3] = ["aux_loss_alpha", "ep_size", "seq_aux"];

impl DeepSeek {
    const fn defaults(self) -> Defaults {
        Defaults {
            rope: Rope {
                mscale: true,
                ..Defaults::LLAMA.rope
            },
            eps: self.eps,
            ..Defaults::LLAMA
        }
    }

    /// Everything but how experts are scored and chosen.
    ///
    /// # Errors
    /// A missing or invalid key, named.
    pub fn read(self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        let config = self.defaults().read(keys)?;
        let size = |key, default| Ok::<_, String>(keys.size(key)?.unwrap_or(default));
        let q_rank = match keys.has("q_lora_rank") {
            true => keys.size("q_lora_rank")?,
            false => Some(self.q_rank),
        };
        let mla = MlaConfig {
            kv_rank: size("kv_lora_rank", 512)?,
            q_rank,
            nope_dim: size("qk_nope_head_dim", self.nope_dim)?,
            rope_dim: size("qk_rope_head_dim", 64)?,
            v_dim: size("v_head_dim", self.v_dim)?,
            ..MlaConfig::default()
        };
        keys.only("head_dim", &json!(mla.rope_dim))?;
        keys.only("qk_head_dim", &json!(mla.qk_dim()))?;
        keys.only("num_key_value_heads", &json!(config.n_head))?;
        keys.only("attention_bias", &json!(false))?;
        keys.only("mlp_bias", &json!(false))?;
        keys.only("rope_interleave", &json!(true))?;
        keys.only("moe_layer_freq", &json!(1))?;
        for key in UNREAD {
            let _ = keys.value(key);
        }
        // Blocks that predict tokens further ahead come after those of the model, and are left out.
        let _ = keys.count("num_nextn_predict_layers")?;
        let _ = keys.count("num_mtp_layers")?;
        Ok(ModelConfig {
            n_kv_head: None,
            head_dim: None,
            mla: Some(mla),
            moe: self.experts(keys, config.n_layer)?,
            ..config
        })
    }

    /// `None` if all blocks come before the first that has experts.
    fn experts(self, keys: &Keys, n_layer: usize) -> Result<Option<MoeConfig>, String> {
        let size = |key, default| Ok::<_, String>(keys.size(key)?.unwrap_or(default));
        let by_alias = keys
            .size("num_local_experts")?
            .or(keys.size("num_experts")?);
        let n_expert = keys.size("n_routed_experts")?.or(by_alias);
        let dense = keys.count(DENSE)?.unwrap_or(self.n_dense);
        let (every, dense_blocks) = MoeConfig::blocks_of(n_layer, |layer| layer >= dense);
        let d_ff = size("moe_intermediate_size", self.d_ff)?;
        let n_shared = keys.count("n_shared_experts")?.unwrap_or(self.n_shared);
        if n_shared == 0 {
            return Err(
                "n_shared_experts: transformers has no such model without a shared expert".into(),
            );
        }
        let scale = keys.number("routed_scaling_factor")?;
        let moe = MoeConfig {
            n_expert: n_expert.unwrap_or(self.n_expert),
            top_k: size("num_experts_per_tok", self.top_k)?,
            d_ff: Some(d_ff),
            norm_topk: keys.flag("norm_topk_prob", self.norm_topk)?,
            gate_scale: scale
                .or(Some(self.gate_scale))
                .filter(|scale| *scale != 1.0),
            shared_d_ff: Some(n_shared.saturating_mul(d_ff)),
            // The classes have no balancing losses.
            aux_loss_coef: 0.0,
            z_loss_coef: 0.0,
            every,
            dense_blocks,
            ..MoeConfig::default()
        };
        Ok((dense < n_layer).then_some(moe))
    }

    /// (n_group, top_group) of a file.
    ///
    /// # Errors
    /// A key of another type.
    pub fn groups(self, keys: &Keys) -> Result<(Option<usize>, Option<usize>), String> {
        let [n, top] = self.groups;
        let n = keys.size("n_group")?.unwrap_or(n);
        let top = keys.size("topk_group")?.unwrap_or(top);
        Ok(match top < n {
            true => (Some(n), Some(top)),
            false => (None, None),
        })
    }

    /// The keys of a canonical config.
    pub fn write(self, config: &ModelConfig) -> Value {
        let mut value = self.defaults().write(config);
        if let Some(mla) = &config.mla {
            value["head_dim"] = json!(mla.rope_dim);
            value["qk_head_dim"] = json!(mla.qk_dim());
            value["kv_lora_rank"] = json!(mla.kv_rank);
            value["q_lora_rank"] = json!(mla.q_rank);
            value["qk_nope_head_dim"] = json!(mla.nope_dim);
            value["qk_rope_head_dim"] = json!(mla.rope_dim);
            value["v_head_dim"] = json!(mla.v_dim);
        }
        value["num_key_value_heads"] = json!(config.n_head);
        value["attention_bias"] = json!(false);
        let Some(moe) = &config.moe else {
            value[DENSE] = json!(config.n_layer);
            return value;
        };
        let d_ff = moe.d_ff.unwrap_or(1).max(1);
        let has_experts = |layer: &usize| config.experts(*layer).is_some();
        let first = (0..config.n_layer).find(has_experts);
        value[DENSE] = json!(first.unwrap_or(config.n_layer));
        value["n_routed_experts"] = json!(moe.n_expert);
        value["num_experts_per_tok"] = json!(moe.top_k);
        value["moe_intermediate_size"] = json!(d_ff);
        // What the model does not have shows when it is read.
        value["n_shared_experts"] = json!((moe.shared_d_ff.unwrap_or(0) / d_ff).max(1));
        value["norm_topk_prob"] = json!(moe.norm_topk);
        value["routed_scaling_factor"] = json!(moe.gate_scale.unwrap_or(1.0));
        value["n_group"] = json!(moe.n_group.unwrap_or(1));
        value["topk_group"] = json!(moe.top_group.unwrap_or(1));
        value
    }
}

/// Our parameters under their names.
pub fn tensors(infos: &[ParamInfo]) -> Vec<DiskTensor> {
    let renamed = |tensor: DiskTensor| {
        let name = disk_name(&tensor.name);
        tensor.named(name)
    };
    one_by_one(infos).into_iter().map(renamed).collect()
}

/// The shared experts are one feed-forward block, whose name is their plural.
pub fn disk_name(own: &str) -> String {
    own.replace(".mlp.shared_expert.", ".mlp.shared_experts.")
}

/// Whether a tensor is of a block that predicts tokens further ahead: numbered on from the model's own.
pub fn is_behind(config: &ModelConfig, name: &str) -> bool {
    let block = name
        .strip_prefix("model.layers.")
        .and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    block.is_some_and(|block| block >= config.n_layer)
}

/// What of a folder is left out, as a sentence; `has` knows whether there are tensors whose names begin so.
pub fn left_out(config: &Value, has: impl Fn(&str) -> bool) -> Option<String> {
    let is_one = ["deepseek_v3", "glm4_moe_lite"]
        .iter()
        .any(|name| config["model_type"] == *name);
    let first = config["num_hidden_layers"].as_u64().filter(|_| is_one)?;
    has(&format!("model.layers.{first}.")).then(|| {
        format!("it is read without the blocks that predict tokens further ahead (from model.layers.{first} on), and written without them")
    })
}
