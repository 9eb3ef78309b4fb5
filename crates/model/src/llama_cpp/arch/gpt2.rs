//! `gpt2`: learned positions, LayerNorm, tanh GELU, a fused QKV projection. A model with
//! exact GELU is written too: the difference is smaller than the rounding of llama.cpp's lookup table.

use super::common::{self, LAYER_EPS, count, float, seven_digits};
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::nn::mlp::{Approximate, MlpConfig};
use crate::nn::norm::NormConfig;
use crate::nn::position::PositionConfig;
use crate::nn::{ModelConfig, ModelShape, Naming};

pub struct Gpt2;

impl Architecture for Gpt2 {
    fn name(&self) -> &'static str {
        "gpt2"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut norm = NormConfig::LayerNorm(Default::default());
        if let NormConfig::LayerNorm(config) = &mut norm {
            config.eps = seven_digits(keys.number(LAYER_EPS)?);
        }
        let mut mlp = MlpConfig::Gelu(Default::default());
        if let MlpConfig::Gelu(config) = &mut mlp {
            config.approximate = Approximate::Tanh;
        }
        Ok(ModelConfig {
            n_layer: keys.count("block_count")?,
            n_head: keys.count("attention.head_count")?,
            d_model: keys.count("embedding_length")?,
            d_ff: Some(keys.count("feed_forward_length")?),
            seq_len: keys.count("context_length")?,
            vocab_size: Some(seen.vocab_size),
            position: PositionConfig::Learned(Default::default()),
            norm,
            mlp,
            bias: true,
            tie_embeddings: !seen.has_head,
            ..ModelConfig::default()
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let plain = !config.parallel_residual
            && config.attention_scale.is_none()
            && common::is_unscaled(config);
        let gelu = matches!(&config.mlp, MlpConfig::Gelu(_));
        if Naming::of(config) != Naming::Gpt2 || !gelu || !plain {
            return None;
        }
        Some(vec![
            ("context_length", count(shape.seq_len)),
            ("embedding_length", count(shape.d_model)),
            ("block_count", count(shape.n_layer)),
            ("feed_forward_length", count(shape.d_ff)),
            ("attention.head_count", count(shape.n_head)),
            (LAYER_EPS, float(config.norm.eps())),
            ("vocab_size", count(shape.vocab_size)),
        ])
    }

    fn notes(&self, config: &ModelConfig) -> Vec<String> {
        gelu_notes(config)
    }

    fn needs_biases(&self) -> bool {
        true
    }
}

/// The difference of a model with exact GELU.
pub(super) fn gelu_notes(config: &ModelConfig) -> Vec<String> {
    let tanh = matches!(&config.mlp, MlpConfig::Gelu(g) if g.approximate == Approximate::Tanh);
    let note = "llama.cpp uses the tanh approximation of GELU, this model the exact form: values differ by less than 0.0005";
    (!tanh).then(|| note.into()).into_iter().collect()
}
