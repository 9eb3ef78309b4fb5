//! Qwen 3.5 with experts (Qwen3.5-35B-A3B), one of which every token passes: its text model, as `qwen3_5` in other respects. The
//! published files hold the experts of a block in two tensors; transformers writes each by itself, as is done here.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::Defaults;
use super::experts::Experts;
use super::family::Family;
use super::qwen3_5::{self, hybrid, hybrid_tensors, is_beside, unread, write_hybrid, write_rope};
use crate::nn::{ModelConfig, ParamInfo};
use serde_json::Value;

pub struct Qwen35Moe;

/// The `model_type`, and the class of it alone.
pub(super) const TEXT: &str = "qwen3_5_moe_text";
pub(super) const CLASS: &str = "Qwen3_5MoeForCausalLM";

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(2),
    // No block has a feed-forward block of another width.
    width: "moe_intermediate_size",
    ..qwen3_5::DEFAULTS
};
const EXPERTS: Experts = Experts {
    n_expert: 256,
    top_k: 8,
    d_ff: 512,
    shared: Some(512),
    norm_topk: None,
    some_dense: false,
};

impl Family for Qwen35Moe {
    fn model_type(&self) -> &'static str {
        TEXT
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        CLASS
    }

    /// Named as the others.
    fn classifier(&self) -> &'static str {
        "Qwen3_5MoeTextForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        unread(keys)?;
        // In some files, and of no block.
        let _ = keys.size("intermediate_size")?;
        let config = hybrid(DEFAULTS.read(keys)?, keys)?;
        let moe = EXPERTS.read(keys, config.n_layer)?;
        Ok(ModelConfig {
            moe: Some(moe),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        write_hybrid(config, &mut value);
        write_rope(config, &mut value);
        EXPERTS.write(config, &mut value);
        value
    }

    fn tensors(&self, config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        hybrid_tensors(config, infos)
    }

    fn is_buffer(&self, name: &str) -> bool {
        is_beside(name)
    }
}
