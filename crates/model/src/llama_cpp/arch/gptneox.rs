//! `gptneox`: GPT-NeoX and Pythia, with LayerNorm, tanh GELU, biases, partial RoPE and a fused QKV projection (all queries, all
//! keys, all values). A model with exact GELU is written too: the difference is smaller than the rounding of llama.cpp's lookup
//! table.

use super::common::{self, count, float, seven_digits};
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::gguf::Value;
use crate::nn::mlp::{Approximate, GeluConfig, MlpConfig};
use crate::nn::norm::{LayerNormConfig, NormConfig};
use crate::nn::position::{PositionConfig, ScalingConfig};
use crate::nn::{ModelConfig, ModelShape, NormPlacement};

pub struct GptNeoX;

impl Architecture for GptNeoX {
    fn name(&self) -> &'static str {
        "gptneox"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let (n_head, d_model) = (
            keys.count("attention.head_count")?,
            keys.count("embedding_length")?,
        );
        let head_dim = d_model.checked_div(n_head).unwrap_or(0);
        let eps = seven_digits(keys.number("attention.layer_norm_epsilon")?);
        Ok(ModelConfig {
            n_layer: keys.count("block_count")?,
            n_head,
            d_model,
            d_ff: Some(keys.count("feed_forward_length")?),
            seq_len: keys.count("context_length")?.min(common::MAX_SEQ_LEN),
            vocab_size: Some(seen.vocab_size),
            position: PositionConfig::Rope(common::rope(keys, seen, head_dim)?),
            norm: NormConfig::LayerNorm(LayerNormConfig { eps, bias: None }),
            parallel_residual: keys.flag("use_parallel_residual")?,
            mlp: MlpConfig::Gelu(GeluConfig {
                approximate: Approximate::Tanh,
            }),
            bias: true,
            tie_embeddings: !seen.has_head,
            ..ModelConfig::default()
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let rope = config.position.rope()?;
        let is_own = matches!(config.norm, NormConfig::LayerNorm(_))
            && matches!(config.mlp, MlpConfig::Gelu(_))
            && config.norm_placement == NormPlacement::Pre
            && rope.local_theta.is_none()
            && shape.n_kv_head == shape.n_head
            && shape.n_head * shape.head_dim == shape.d_model
            && config.moe.is_none()
            && !config.qk_norm
            && rope.nope_every.is_none()
            && common::is_unscaled(config);
        if !is_own {
            return None;
        }
        let mut keys = vec![
            ("context_length", count(shape.seq_len)),
            ("embedding_length", count(shape.d_model)),
            ("block_count", count(shape.n_layer)),
            ("feed_forward_length", count(shape.d_ff)),
            ("attention.head_count", count(shape.n_head)),
            ("attention.layer_norm_epsilon", float(config.norm.eps())),
            (
                "use_parallel_residual",
                Value::Bool(config.parallel_residual),
            ),
            ("vocab_size", count(shape.vocab_size)),
            ("rope.dimension_count", count(rope.width(shape.head_dim))),
            ("rope.freq_base", float(rope.theta)),
        ];
        match &rope.scaling {
            None => {}
            Some(ScalingConfig::Linear(linear)) => {
                keys.push(("rope.scaling.type", Value::String("linear".into())));
                keys.push(("rope.scaling.factor", float(linear.factor)));
            }
            Some(_) => return None,
        }
        Some(keys)
    }

    fn notes(&self, config: &ModelConfig) -> Vec<String> {
        super::gpt2::gelu_notes(config)
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn needs_biases(&self) -> bool {
        true
    }

    fn needs_head(&self) -> bool {
        true
    }
}
