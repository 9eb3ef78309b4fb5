//! Gemma, the first: Llama with unit-offset gains, GeGLU, heads of 256 features and embeddings times √d_model. The factor is
//! that of f32; transformers rounds it to the dtype of the weights (55.5 for 55.4256 in bf16).

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use super::{gemma, gemma2};
use crate::nn::mlp::{Approximate, GeGluConfig, MlpConfig};
use crate::nn::{AttentionBias, ModelConfig};
use serde_json::{Value, json};

pub struct Gemma1;

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(16),
    ..gemma2::DEFAULTS
};

/// The only activation.
const TANH: &str = "gelu_pytorch_tanh";

impl Family for Gemma1 {
    fn model_type(&self) -> &'static str {
        "gemma"
    }

    fn class(&self) -> &'static str {
        "GemmaForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "GemmaForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        keys.only("use_bidirectional_attention", &json!(false))?;
        tanh(keys)?;
        let config = DEFAULTS.read(keys)?;
        Ok(ModelConfig {
            head_dim: Some(keys.size("head_dim")?.unwrap_or(gemma::HEAD_DIM)),
            mlp: MlpConfig::GeGlu(GeGluConfig {
                approximate: Approximate::Tanh,
            }),
            attention_bias: common::attention_bias(keys)?,
            embedding_scale: Some((config.d_model as f64).sqrt()),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["hidden_act"] = json!(TANH);
        value["hidden_activation"] = json!(TANH);
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        value
    }
}

/// Checks the activation. `hidden_act: gelu` of the first files means the tanh approximation, with which the models were trained;
/// transformers 4 reads `hidden_activation` before it, 5 does not know that key.
fn tanh(keys: &Keys) -> Result<(), String> {
    let named = [
        ("hidden_activation", keys.word("hidden_activation")?, None),
        ("hidden_act", keys.word("hidden_act")?, Some("gelu")),
    ];
    for (key, word, old) in named {
        let known = word.is_none_or(|word| {
            [TANH, "gelu_new", "gelu_fast"].contains(&word) || Some(word) == old
        });
        if !known {
            return Err(format!(
                "{key} `{}`: only {TANH} is supported for this model type",
                crate::base::text::one_line(word.unwrap_or_default())
            ));
        }
    }
    Ok(())
}
