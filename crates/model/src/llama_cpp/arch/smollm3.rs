//! `smollm3`: Llama with no position encoding (NoPE) in every 4th block. llama.cpp has that number in its code and no key for it
//! (`llama_hparams::n_no_rope_layer_step`); its loader knows no biases, and its rotations no factors of their own.

use super::{Architecture, Keys, OwnKeys, Rotated, Seen, common};
use crate::nn::position::PositionConfig;
use crate::nn::{AttentionBias, ModelConfig, ModelShape};

/// One block in so many has no position encoding.
const NOPE_EVERY: usize = 4;

pub struct SmolLm3;

impl Architecture for SmolLm3 {
    fn name(&self) -> &'static str {
        "smollm3"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut config = common::read(keys, seen)?;
        let has_nope = config.n_layer >= NOPE_EVERY;
        if let PositionConfig::Rope(rope) = &mut config.position {
            rope.nope_every = has_nope.then_some(NOPE_EVERY);
        }
        Ok(config)
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let mut rotating = config.clone();
        let PositionConfig::Rope(rope) = &mut rotating.position else {
            return None;
        };
        let every = rope.nope_every.take();
        let own = every == Some(NOPE_EVERY)
            && common::is_plain(&rotating)
            && common::rotates_all(&rotating, shape)
            && !common::has_factors(&rotating)
            && !config.qk_norm
            && config.moe.is_none()
            && config.attention_biases() == AttentionBias::None;
        own.then(|| common::write(&rotating, shape))?
    }

    fn rotated(&self) -> Rotated {
        Rotated::Neighbours
    }
}
