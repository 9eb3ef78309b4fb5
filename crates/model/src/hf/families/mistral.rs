//! Mistral: Llama with a sliding window (and its own head_dim).

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use crate::nn::ModelConfig;
use serde_json::{Value, json};

pub struct Mistral;

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(8),
    ..Defaults::LLAMA
};
/// The default window; null means none.
const WINDOW: usize = 4096;

impl Family for Mistral {
    fn model_type(&self) -> &'static str {
        "mistral"
    }

    fn class(&self) -> &'static str {
        "MistralForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "MistralForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        let sliding_window = match keys.has("sliding_window") {
            true => keys.size("sliding_window")?,
            false => Some(WINDOW),
        };
        Ok(ModelConfig {
            sliding_window,
            ..DEFAULTS.read(keys)?
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["sliding_window"] = json!(config.sliding_window);
        value
    }
}
