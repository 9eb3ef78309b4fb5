//! `llama`: Llama and models with its architecture (Mistral without a window, SmolLM, Mixtral). Rows of queries and keys are
//! permuted so that RoPE pairs are adjacent.

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
        let rotated = common::rotates_all(config, shape);
        let unlike = matches!(
            config.attention_biases(),
            AttentionBias::Qkv | AttentionBias::Output
        );
        if !plain || !weighted || !rotated || unlike {
            return None;
        }
        common::write_one_width(config, shape)
    }

    fn rotated(&self) -> Rotated {
        Rotated::Neighbours
    }
}
