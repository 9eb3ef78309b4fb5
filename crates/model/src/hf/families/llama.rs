//! Llama and models with its architecture: SmolLM, TinyLlama, Yi, DeepSeek's first, …

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use crate::nn::ModelConfig;
use serde_json::{Value, json};

pub struct Llama;

impl Family for Llama {
    fn model_type(&self) -> &'static str {
        "llama"
    }

    fn class(&self) -> &'static str {
        "LlamaForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "LlamaForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        // Falcon 3's, beside hidden_act.
        keys.only("activation", &json!("swiglu"))?;
        common::with_biases(keys, Defaults::LLAMA.read(keys)?)
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = Defaults::LLAMA.write(config);
        common::write_biases(config, &mut value);
        value
    }
}
