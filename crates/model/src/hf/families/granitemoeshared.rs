//! GraniteMoeShared: Granite with experts in every block, and a feed-forward block beside them that every token passes. The names of
//! its tensors are those of Granite 4.0.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::{self, Defaults};
use super::family::Family;
use super::granite::{scaled, write_scales};
use super::granitemoehybrid::{disk_name, tensors, unread, with_shared, write_shared};
use crate::nn::{AttentionBias, ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct GraniteMoeShared;

const DEFAULTS: Defaults = Defaults::LLAMA;

impl Family for GraniteMoeShared {
    fn model_type(&self) -> &'static str {
        "granitemoeshared"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "GraniteMoeSharedForCausalLM"
    }

    /// Named as the others.
    fn classifier(&self) -> &'static str {
        "GraniteMoeSharedForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        unread(keys)?;
        let config = scaled(DEFAULTS.read(keys)?, keys)?;
        let config = with_shared(keys, config, 0)?;
        match config.moe.is_some() {
            true => Ok(ModelConfig {
                attention_bias: common::attention_bias(keys)?,
                ..config
            }),
            false => Err("num_local_experts 0: the class has experts in every block".into()),
        }
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        write_scales(config, &mut value);
        write_shared(config, &mut value);
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        value
    }

    fn disk_name(&self, own: &str) -> String {
        disk_name(own)
    }

    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        tensors(infos)
    }
}
