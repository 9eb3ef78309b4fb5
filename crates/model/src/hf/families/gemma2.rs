//! Gemma 2: norms before and after each sub-layer, a window in every other block, soft caps, scaled embeddings.

use super::super::keys::Keys;
use super::common::{self, Defaults, GainConvention};
use super::family::Family;
use super::gemma;
use crate::nn::ModelConfig;
use serde_json::{Value, json};

pub struct Gemma2;

pub(super) const DEFAULTS: Defaults = Defaults {
    tied: true,
    kv_heads: Some(4),
    gain: GainConvention::UnitOffset,
    ..Defaults::LLAMA
};

impl Family for Gemma2 {
    fn model_type(&self) -> &'static str {
        "gemma2"
    }

    fn class(&self) -> &'static str {
        "Gemma2ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Gemma2ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        let config = gemma::read(DEFAULTS.read(keys)?, keys, 2)?;
        Ok(ModelConfig {
            attention_softcap: capped(keys, "attn_logit_softcapping", 50.0)?,
            logit_softcap: capped(keys, "final_logit_softcapping", 30.0)?,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = gemma::write(config, DEFAULTS.write(config));
        value["attn_logit_softcapping"] = json!(config.attention_softcap);
        value["final_logit_softcapping"] = json!(config.logit_softcap);
        value["layer_types"] = common::write_layer_types(config);
        value
    }
}

/// Null is no cap; a missing key is the class's default.
fn capped(keys: &Keys, key: &str, default: f64) -> Result<Option<f64>, String> {
    match keys.has(key) {
        true => keys.number(key),
        false => Ok(Some(default)),
    }
}
