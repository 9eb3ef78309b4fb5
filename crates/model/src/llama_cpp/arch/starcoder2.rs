//! `starcoder2`: LayerNorm, biases everywhere, RoPE, tanh GELU without a gate. What has no bias gets zeros, and a model with
//! exact GELU is written too, as for `gpt2`.

use super::{Architecture, Keys, OwnKeys, Seen, common, gpt2};
use crate::nn::mlp::{Approximate, MlpConfig};
use crate::nn::norm::NormConfig;
use crate::nn::{ModelConfig, ModelShape, NormPlacement};

pub struct Starcoder2;

impl Architecture for Starcoder2 {
    fn name(&self) -> &'static str {
        "starcoder2"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut norm = NormConfig::LayerNorm(Default::default());
        if let NormConfig::LayerNorm(config) = &mut norm {
            config.eps = common::seven_digits(keys.number(common::LAYER_EPS)?);
            // With `use_bias: false` the norms alone have them.
            config.bias = (!seen.has_mlp_bias).then_some(true);
        }
        let mut mlp = MlpConfig::Gelu(Default::default());
        if let MlpConfig::Gelu(config) = &mut mlp {
            config.approximate = Approximate::Tanh;
        }
        let window = keys.count_if("attention.sliding_window")?;
        Ok(ModelConfig {
            mlp,
            sliding_window: window.filter(|n| *n > 0),
            ..common::read_normed(keys, seen, norm)?
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let own = matches!(config.norm, NormConfig::LayerNorm(_))
            && matches!(config.mlp, MlpConfig::Gelu(_))
            && !config.qk_norm
            && !config.parallel_residual
            && config.moe.is_none()
            && config.norm_placement == NormPlacement::Pre
            && common::rotates_alike(config, shape)
            && shape.n_head * shape.head_dim == shape.d_model
            && common::is_unscaled(config);
        own.then(|| common::write(config, shape))?
    }

    fn notes(&self, config: &ModelConfig) -> Vec<String> {
        gpt2::gelu_notes(config)
    }

    fn needs_biases(&self) -> bool {
        true
    }
}
