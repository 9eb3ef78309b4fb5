//! `config.json`: the model's words as Hugging Face says them, where a family of theirs computes the same, and ours under
//! the key `llmtui` for the exact way back.

use crate::nn::mlp::{Approximate, MlpConfig};
use crate::nn::norm::NormConfig;
use crate::nn::position::PositionConfig;
use crate::nn::{ModelConfig, ModelShape};
use serde_json::{Value, json};

/// A Hugging Face model class that computes what our config says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `GPT2LMHeadModel`: learned positions, LayerNorm, GELU, multi-head attention.
    Gpt2,
    /// `LlamaForCausalLM`: rotary positions, RMSNorm, SwiGLU, grouped-query attention.
    Llama,
}

impl Family {
    /// The family that computes the same as `config`; `None` when no class of theirs does.
    pub fn of(config: &ModelConfig) -> Option<Family> {
        let multi_head = config.n_kv_head.is_none_or(|n| n == config.n_head);
        match (&config.position, &config.norm, &config.mlp) {
            (PositionConfig::Learned(_), NormConfig::LayerNorm(_), MlpConfig::Gelu(_)) => {
                multi_head.then_some(Family::Gpt2)
            }
            (PositionConfig::Rope(_), NormConfig::RmsNorm(_), MlpConfig::SwiGlu(_)) => {
                Some(Family::Llama)
            }
            _ => None,
        }
    }
}

/// The whole `config.json`. `eos` is the id of the end-of-text token, when the tokenizer has one.
pub fn write(config: &ModelConfig, shape: &ModelShape, eos: Option<u32>) -> Value {
    let mut value = match Family::of(config) {
        Some(Family::Gpt2) => gpt2(config, shape),
        Some(Family::Llama) => llama(config, shape),
        None => json!({"model_type": "llmtui"}),
    };
    // The tokenizer's vocabulary decides where the spec named none; written out, the folder stands on its own.
    let mut own = config.clone();
    own.vocab_size = Some(shape.vocab_size);
    value["vocab_size"] = json!(shape.vocab_size);
    value["tie_word_embeddings"] = json!(config.tie_embeddings);
    value["initializer_range"] = json!(config.init_std);
    value["bos_token_id"] = json!(eos);
    value["eos_token_id"] = json!(eos);
    value["torch_dtype"] = json!("float32");
    value["llmtui"] = json!({"version": env!("CARGO_PKG_VERSION"), "model": own});
    value
}

fn gpt2(config: &ModelConfig, shape: &ModelShape) -> Value {
    let activation = match &config.mlp {
        MlpConfig::Gelu(gelu) if gelu.approximate == Approximate::Tanh => "gelu_new",
        _ => "gelu",
    };
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": shape.n_layer,
        "n_head": shape.n_head,
        "n_embd": shape.d_model,
        "n_inner": shape.d_ff,
        "n_positions": shape.seq_len,
        "n_ctx": shape.seq_len,
        "activation_function": activation,
        "layer_norm_epsilon": config.norm.eps(),
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    })
}

fn llama(config: &ModelConfig, shape: &ModelShape) -> Value {
    let theta = config.position.rotary_theta().unwrap_or(10_000.0);
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": shape.n_layer,
        "num_attention_heads": shape.n_head,
        "num_key_value_heads": shape.n_kv_head,
        "head_dim": shape.head_dim,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff,
        "max_position_embeddings": shape.seq_len,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm.eps(),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "attention_dropout": 0.0,
    })
}

/// Our own words in a `config.json`; an error says what is missing or wrong.
pub fn read(value: &Value) -> Result<ModelConfig, String> {
    let Some(own) = value.pointer("/llmtui/model") else {
        let family = value["model_type"].as_str().unwrap_or("unknown");
        return Err(format!(
            "no `llmtui` entry: this folder (model_type `{family}`) was not written by llmtui, and foreign models cannot be read yet"
        ));
    };
    serde_json::from_value(own.clone()).map_err(|e| format!("llmtui.model: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama_config() -> ModelConfig {
        ModelConfig {
            position: PositionConfig::Rope(Default::default()),
            norm: NormConfig::RmsNorm(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            n_kv_head: Some(2),
            ..Default::default()
        }
    }

    #[test]
    fn families_are_told_by_their_parts() {
        assert_eq!(Family::of(&ModelConfig::default()), Some(Family::Gpt2));
        assert_eq!(Family::of(&llama_config()), Some(Family::Llama));
        let mixed = ModelConfig {
            norm: NormConfig::LayerNorm(Default::default()),
            ..llama_config()
        };
        assert_eq!(Family::of(&mixed), None);
        let grouped = ModelConfig {
            n_kv_head: Some(2),
            ..Default::default()
        };
        assert_eq!(Family::of(&grouped), None, "GPT-2 has no grouped queries");
    }

    #[test]
    fn our_words_come_back_exactly_with_the_vocabulary_filled_in() {
        for config in [ModelConfig::default(), llama_config()] {
            let written = write(&config, &config.shape(65), Some(3));
            let text = serde_json::to_string(&written).unwrap();
            let read = read(&serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!(
                read,
                ModelConfig {
                    vocab_size: Some(65),
                    ..config
                }
            );
        }
    }

    #[test]
    fn foreign_configs_are_refused_by_name() {
        let error = read(&json!({"model_type": "mamba"})).unwrap_err();
        assert!(error.contains("mamba"), "{error}");
        assert!(read(&json!({"llmtui": {"model": {"n_layer": "x"}}})).is_err());
    }
}
