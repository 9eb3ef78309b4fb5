//! `granite`, and with experts in every block `granitemoe`: `llama` with scales of embeddings, attention scores, what is added to the residual stream, and logits, which are
//! divided by theirs.

use super::{Architecture, Keys, OwnKeys, Rotated, Seen, common};
use crate::nn::{AttentionBias, ModelConfig, ModelShape};

pub struct Granite {
    name: &'static str,
    has_experts: bool,
}

pub const GRANITE: Granite = Granite {
    name: "granite",
    has_experts: false,
};
pub const GRANITE_MOE: Granite = Granite {
    name: "granitemoe",
    has_experts: true,
};

impl Architecture for Granite {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        // Of hybrid models, which share the code in llama.cpp.
        if keys.flag_if("rope.scaling.finetuned") == Some(false) {
            return Err(format!(
                "{}.rope.scaling.finetuned is false: a model without rotary positions, which is not supported",
                self.name
            ));
        }
        keys.number("logit_scale")?;
        read_scales(keys, common::read(keys, seen)?)
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let unscaled = ModelConfig {
            embedding_scale: None,
            residual_scale: None,
            logit_scale: None,
            ..common::without_experts(config)
        };
        let experts_fit = match &config.moe {
            None => !self.has_experts,
            // A shared one has no gate there.
            Some(moe) => {
                let is_plain = common::has_plain_experts(config) && moe.norm_topk;
                self.has_experts && is_plain && !moe.shared_gate && !config.bias
            }
        };
        let own = common::is_plain(&unscaled)
            && !config.qk_norm
            && experts_fit
            && matches!(
                config.attention_biases(),
                AttentionBias::None | AttentionBias::All
            )
            && common::rotates_all(config, shape);
        if !own {
            return None;
        }
        let mut keys = common::write_one_width(config, shape)?;
        write_scales(config, shape, &mut keys);
        Some(keys)
    }

    /// In the file.
    fn attention_scale(&self, config: &ModelConfig, shape: &ModelShape) -> f64 {
        let plain = (shape.head_dim as f64).powf(-0.5);
        config.attention_scale.unwrap_or(plain)
    }

    fn rotated(&self) -> Rotated {
        Rotated::Neighbours
    }
}

/// `config` with the scales of a file.
///
/// # Errors
/// One that is not a positive number.
pub fn read_scales(keys: Keys, config: ModelConfig) -> Result<ModelConfig, String> {
    let scale = |key| Ok::<_, String>(keys.number_if(key)?.map(common::seven_digits));
    let unless_one = |x: Option<f64>| x.filter(|x| *x != 1.0);
    Ok(ModelConfig {
        embedding_scale: unless_one(scale("embedding_scale")?),
        attention_scale: scale("attention.scale")?,
        residual_scale: unless_one(scale("residual_scale")?),
        logit_scale: unless_one(scale("logit_scale")?.map(|divisor| 1.0 / divisor)),
        ..config
    })
}

/// Their keys.
pub fn write_scales(config: &ModelConfig, shape: &ModelShape, keys: &mut OwnKeys) {
    let plain = (shape.head_dim as f64).powf(-0.5);
    let scales = [
        ("attention.scale", config.attention_scale.unwrap_or(plain)),
        ("embedding_scale", config.embedding_scale.unwrap_or(1.0)),
        ("residual_scale", config.residual_scale.unwrap_or(1.0)),
        ("logit_scale", config.logit_divisor()),
    ];
    keys.extend(scales.map(|(key, scale)| (key, common::float(scale))));
}
