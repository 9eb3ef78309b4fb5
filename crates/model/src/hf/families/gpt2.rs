//! GPT-2: learned positions, LayerNorm, GELU, biases everywhere, linear layers stored as (in, out).

use super::super::keys::Keys;
use super::super::tensors::{DiskTensor, Values};
use super::family::{Family, one_by_one};
use crate::nn::mlp::{Approximate, GeluConfig, MlpConfig, ReluConfig};
use crate::nn::norm::{LayerNormConfig, NormConfig};
use crate::nn::position::PositionConfig;
use crate::nn::{AttentionBias, ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct Gpt2;

/// Matrices that transformers stores transposed (`Conv1D`).
const TRANSPOSED: [&str; 3] = ["c_attn.weight", "c_proj.weight", "c_fc.weight"];
/// Parts that have a bias.
const BIASED: [&str; 6] = ["ln_1", "ln_2", "ln_f", "c_attn", "c_proj", "c_fc"];

impl Family for Gpt2 {
    fn model_type(&self) -> &'static str {
        "gpt2"
    }

    fn class(&self) -> &'static str {
        "GPT2LMHeadModel"
    }

    fn classifier(&self) -> &'static str {
        "GPT2ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        keys.only("scale_attn_weights", &json!(true))?;
        // Of the first versions of transformers: gpt2-medium, gpt2-large, gpt2-xl.
        for old in ["output_past", "predict_special_tokens"] {
            let _ = keys.flag(old, false)?;
        }
        let d_model = keys.need_size("n_embd")?;
        let n_head = keys.need_size("n_head")?;
        Ok(ModelConfig {
            n_layer: keys.need_size("n_layer")?,
            n_head,
            n_kv_head: Some(n_head),
            head_dim: Some(d_model / n_head),
            d_model,
            d_ff: Some(keys.size("n_inner")?.unwrap_or(4 * d_model)),
            seq_len: keys.need_size("n_positions")?,
            vocab_size: Some(keys.need_size("vocab_size")?),
            position: PositionConfig::Learned(Default::default()),
            norm: NormConfig::LayerNorm(LayerNormConfig {
                eps: keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
                bias: None,
            }),
            mlp: activation(keys)?,
            bias: true,
            tie_embeddings: keys.flag("tie_word_embeddings", true)?,
            ..ModelConfig::default()
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        json!({
            "n_layer": config.n_layer,
            "n_head": config.n_head,
            "n_embd": config.d_model,
            "n_inner": config.d_ff,
            "n_positions": config.seq_len,
            "n_ctx": config.seq_len,
            "activation_function": activation_word(&config.mlp),
            "layer_norm_epsilon": config.norm.eps(),
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        })
    }

    /// A model without biases is written with zero biases.
    fn canonical(&self, config: ModelConfig) -> ModelConfig {
        if config.attention_bias != AttentionBias::None {
            return config;
        }
        ModelConfig {
            bias: true,
            attention_bias: AttentionBias::All,
            ..config
        }
    }

    fn tensors(&self, config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let mut tensors = Vec::new();
        for tensor in one_by_one(infos) {
            let transposed = TRANSPOSED.iter().any(|end| tensor.name.ends_with(end));
            let zeros = zero_bias(&tensor, &BIASED).filter(|_| !config.bias);
            tensors.push(if transposed {
                tensor.transposed()
            } else {
                tensor
            });
            tensors.extend(zeros);
        }
        tensors
    }

    /// Mask buffers in old files.
    fn is_buffer(&self, name: &str) -> bool {
        name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
    }
}

/// The feed-forward block of `activation_function`.
///
/// # Errors
/// Another activation.
pub(super) fn activation(keys: &Keys) -> Result<MlpConfig, String> {
    Ok(
        match keys.word("activation_function")?.unwrap_or("gelu_new") {
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => gelu(Approximate::Tanh),
            "gelu" => gelu(Approximate::None),
            "relu" => MlpConfig::Relu(ReluConfig::default()),
            other => {
                return Err(format!(
                    "activation_function `{}` is not supported; use gelu_new, gelu or relu",
                    crate::base::text::one_line(other)
                ));
            }
        },
    )
}

/// `activation_function` of a feed-forward block; reading it back shows whether there is one.
pub(super) fn activation_word(mlp: &MlpConfig) -> &'static str {
    match mlp {
        MlpConfig::Gelu(gelu) if gelu.approximate == Approximate::Tanh => "gelu_new",
        MlpConfig::Relu(_) => "relu",
        _ => "gelu",
    }
}

fn gelu(approximate: Approximate) -> MlpConfig {
    MlpConfig::Gelu(GeluConfig { approximate })
}

/// The zero bias of a weight whose name ends with one of `biased`.
pub(super) fn zero_bias(weight: &DiskTensor, biased: &[&str]) -> Option<DiskTensor> {
    let part = weight.name.strip_suffix(".weight")?;
    biased
        .iter()
        .any(|end| part.ends_with(end))
        .then(|| DiskTensor {
            name: format!("{part}.bias"),
            // Ours is (out, in).
            shape: weight.shape[..1].to_vec(),
            values: Values::Zeros,
            more_rows: false,
            keeps_f32: false,
        })
}
