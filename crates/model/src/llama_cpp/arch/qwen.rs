//! `qwen2`, `qwen2moe`, `qwen3` and `qwen3moe`: Llama with QKV biases, or with QK-norm; and each with experts, the first with a
//! shared one beside them (llama.cpp, src/models/qwen2moe.cpp).

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

pub struct Qwen2Moe;

impl Architecture for Qwen2Moe {
    fn name(&self) -> &'static str {
        "qwen2moe"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut config = common::with_widths(common::read(keys, seen)?);
        let width = config.d_ff;
        if let Some(moe) = &mut config.moe {
            moe.norm_topk = false;
            moe.shared_d_ff = moe.shared_d_ff.or(width);
            moe.shared_gate = true;
        }
        Ok(config)
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Written {
        let fits = config
            .moe
            .as_ref()
            .is_some_and(|moe| !moe.norm_topk && moe.shared_d_ff.is_some() && moe.shared_gate)
            && common::has_plain_experts(config)
            && is_whole(&common::without_experts(config), shape)
            && !config.qk_norm
            && !config.bias
            && matches!(
                config.attention_biases(),
                AttentionBias::None | AttentionBias::Qkv
            )
            && shape.n_head * shape.head_dim == shape.d_model;
        fits.then(|| common::write(config, shape))?
    }

    fn needs_head(&self) -> bool {
        true
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
        let config = common::read(keys, seen).map(normed)?;
        Ok(common::with_widths(config))
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Written {
        let weighted = config.moe.as_ref().is_some_and(|moe| moe.norm_topk);
        (is_normed(config, shape) && weighted).then(|| common::write(config, shape))?
    }
}
