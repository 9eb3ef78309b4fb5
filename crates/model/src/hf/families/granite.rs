//! Granite (IBM): Llama with four multipliers, of embeddings, attention scores, what is added to the residual stream, and logits
//! (muP; Yang et al. 2022, arXiv 2203.03466).

use super::super::keys::Keys;
use super::family::Family;
use super::llama::Llama;
use crate::nn::ModelConfig;
use serde_json::{Value, json};

pub struct Granite;

impl Family for Granite {
    fn model_type(&self) -> &'static str {
        "granite"
    }

    fn class(&self) -> &'static str {
        "GraniteForCausalLM"
    }

    /// Named as the others.
    fn classifier(&self) -> &'static str {
        "GraniteForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        scaled(Llama.read(keys)?, keys)
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = Llama.write(config);
        write_scales(config, &mut value);
        value
    }
}

/// A Llama-like `config` with the four multipliers.
///
/// # Errors
/// One that is not above 0.
pub(super) fn scaled(config: ModelConfig, keys: &Keys) -> Result<ModelConfig, String> {
    let multiplier = |key: &str| match keys.number(key)?.unwrap_or(1.0) {
        x if x > 0.0 => Ok(x),
        x => Err(format!("{key}: {x} is not above 0")),
    };
    let unless_one = |x: f64| Some(x).filter(|x| *x != 1.0);
    Ok(ModelConfig {
        embedding_scale: unless_one(multiplier("embedding_multiplier")?),
        // It is the scale itself: a missing key does not mean 1 / √head_dim.
        attention_scale: Some(multiplier("attention_multiplier")?),
        residual_scale: unless_one(multiplier("residual_multiplier")?),
        logit_scale: unless_one(1.0 / multiplier("logits_scaling")?),
        ..config
    })
}

/// Their keys.
pub(super) fn write_scales(config: &ModelConfig, value: &mut Value) {
    let plain = (config.head_width() as f64).powf(-0.5);
    value["embedding_multiplier"] = json!(config.embedding_scale.unwrap_or(1.0));
    value["attention_multiplier"] = json!(config.attention_scale.unwrap_or(plain));
    value["residual_multiplier"] = json!(config.residual_scale.unwrap_or(1.0));
    value["logits_scaling"] = json!(config.logit_divisor());
}
