//! `stablelm`: Llama with biased LayerNorms and partial RoPE.

use super::common::{self, LAYER_EPS, seven_digits};
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::nn::norm::{LayerNormConfig, NormConfig};
use crate::nn::{AttentionBias, ModelConfig, ModelShape};

pub struct StableLm;

impl Architecture for StableLm {
    fn name(&self) -> &'static str {
        "stablelm"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let norm = NormConfig::LayerNorm(LayerNormConfig {
            eps: seven_digits(keys.number(LAYER_EPS)?),
            bias: Some(true),
        });
        common::read_normed(keys, seen, norm)
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let NormConfig::LayerNorm(norm) = &config.norm else {
            return None;
        };
        let but_norm = ModelConfig {
            norm: NormConfig::RmsNorm(Default::default()),
            ..config.clone()
        };
        let own = norm.bias == Some(true)
            && common::is_plain(&but_norm)
            && matches!(
                config.attention_biases(),
                AttentionBias::None | AttentionBias::Qkv
            )
            && !config.qk_norm
            && config.moe.is_none()
            && !common::has_factors(config)
            && shape.n_head * shape.head_dim == shape.d_model;
        own.then(|| common::write(config, shape))?
    }

    fn needs_head(&self) -> bool {
        true
    }
}
