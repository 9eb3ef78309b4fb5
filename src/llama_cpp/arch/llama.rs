//! `llama`: Llama and whoever has its architecture (Mistral without a window, SmolLM, Mixtral). Rows of queries and keys are
//! shuffled so that neighbours turn together.

use super::{Architecture, Keys, OwnKeys, Rotated, Seen, common};
use crate::nn::{AttentionBias, ModelConfig, ModelShape};

pub struct Llama;

impl Architecture for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let window = keys.count_if("attention.sliding_window")?;
        Ok(ModelConfig {
            sliding_window: window.filter(|n| *n > 0),
            ..common::read(keys, seen)?
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let plain = common::is_plain(config) && !config.qk_norm;
        let weighted = config
            .moe
            .as_ref()
            .is_none_or(|moe| moe.norm_topk && !config.bias);
        if !plain || !weighted || config.attention_biases() == AttentionBias::Qkv {
            return None;
        }
        common::write(config, shape)
    }

    fn rotated(&self) -> Rotated {
        Rotated::Neighbours
    }
}
