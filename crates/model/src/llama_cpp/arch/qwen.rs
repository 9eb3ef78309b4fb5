//! `qwen2`, `qwen3` and `qwen3moe`: Llama with QKV biases; with QK-norm; and with experts.

use super::{Architecture, Keys, OwnKeys, Seen, common};
use crate::nn::{AttentionBias, ModelConfig, ModelShape};

type Written = Option<OwnKeys>;

pub struct Qwen2;

impl Architecture for Qwen2 {
    fn name(&self) -> &'static str {
        "qwen2"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        common::read(keys, seen)
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Written {
        let has_bias = config.attention_biases() == AttentionBias::Qkv;
        let plain = is_whole(config, shape) && !config.qk_norm && config.moe.is_none();
        (plain && has_bias).then(|| common::write(config, shape))?
    }
}

fn normed(config: ModelConfig) -> ModelConfig {
    ModelConfig {
        qk_norm: true,
        ..config
    }
}

/// Llama-like, with whole heads rotated.
fn is_whole(config: &ModelConfig, shape: &ModelShape) -> bool {
    let plain = common::is_plain(config) && !common::has_factors(config);
    plain && common::rotates_all(config, shape)
}

fn is_normed(config: &ModelConfig, shape: &ModelShape) -> bool {
    is_whole(config, shape) && config.qk_norm && config.attention_biases() == AttentionBias::None
}

pub struct Qwen3;

impl Architecture for Qwen3 {
    fn name(&self) -> &'static str {
        "qwen3"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        common::read(keys, seen).map(normed)
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Written {
        (is_normed(config, shape) && config.moe.is_none()).then(|| common::write(config, shape))?
    }
}

pub struct Qwen3Moe;

impl Architecture for Qwen3Moe {
    fn name(&self) -> &'static str {
        "qwen3moe"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut config = common::read(keys, seen).map(normed)?;
        let width = config.d_ff;
        if let Some(moe) = config.moe.as_mut().filter(|moe| moe.d_ff.is_none()) {
            // Without an expert width, the block's width is that of all selected experts together.
            moe.d_ff = width.map(|width| width / moe.top_k.max(1));
        }
        Ok(config)
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Written {
        let weighted = config.moe.as_ref().is_some_and(|moe| moe.norm_topk);
        (is_normed(config, shape) && weighted).then(|| common::write(config, shape))?
    }
}
