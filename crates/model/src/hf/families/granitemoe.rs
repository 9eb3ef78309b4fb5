//! GraniteMoE (granite-3.1-1b-a400m, -3b-a800m): Granite with experts in every block, all of a block in two tensors.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::{self, Defaults};
use super::experts::{everywhere, stacked, write_everywhere};
use super::family::{Family, one_by_one};
use super::granite::{scaled, write_scales};
use crate::nn::{AttentionBias, ModelConfig, ParamInfo};
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
        Ok(ModelConfig {
            attention_bias: common::attention_bias(keys)?,
            moe: Some(everywhere(keys, &config)?),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        write_scales(config, &mut value);
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        write_everywhere(config, &mut value);
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
