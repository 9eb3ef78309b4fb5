//! Llama and models with its architecture: SmolLM, TinyLlama, Yi, DeepSeek's first, …

use super::super::keys::Keys;
use super::Family;
use super::common::{self, Defaults};
use crate::nn::{AttentionBias, ModelConfig};
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
        let attention = common::attention_bias(keys)?;
        let mlp = keys.flag("mlp_bias", false)?;
        let config = Defaults::LLAMA.read(keys)?;
        match (attention, mlp) {
            (AttentionBias::All, true) => Ok(ModelConfig {
                bias: true,
                ..config
            }),
            (attention_bias, false) => Ok(ModelConfig {
                attention_bias,
                ..config
            }),
            (_, true) => Err("mlp_bias without attention_bias is not supported".into()),
        }
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = Defaults::LLAMA.write(config);
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        value["mlp_bias"] = json!(config.bias);
        value
    }
}
