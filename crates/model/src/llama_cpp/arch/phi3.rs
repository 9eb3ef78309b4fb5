//! `phi3`: Llama with fused projections and optional partial RoPE. With separate projections and whole heads
//! rotated, the same model is written as `llama`.

use super::{Architecture, Keys, OwnKeys, Seen, common};
use crate::nn::{AttentionBias, ModelConfig, ModelShape};

pub struct Phi3;

impl Architecture for Phi3 {
    fn name(&self) -> &'static str {
        "phi3"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let config = common::read(keys, seen)?;
        let window = keys.count_if("attention.sliding_window")?;
        let rope = config.position.rope();
        let is_plain = rope.is_some_and(|rope| rope.fraction == 1.0 && rope.scaling.is_none());
        Ok(ModelConfig {
            // A window as long as the context has no effect.
            sliding_window: window.filter(|n| *n > 0 && *n < config.seq_len),
            // Llama and Mistral compute the same, but adapters are for the class of the model that the file was made of.
            family: is_plain.then(|| "phi3".into()),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let own = common::is_plain(config)
            && !config.qk_norm
            && config.moe.is_none()
            && config.attention_biases() == AttentionBias::None
            && !common::has_factors(config)
            && shape.n_head * shape.head_dim == shape.d_model;
        own.then(|| common::write(config, shape))?
    }

    fn is_fused(&self) -> bool {
        true
    }
}
