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
        let scale = |key| {
            let value = keys.number_if(key)?.map(common::seven_digits);
            Ok::<_, String>(value.filter(|x| *x != 1.0))
        };
        let divisor = common::seven_digits(keys.number("logit_scale")?);
        Ok(ModelConfig {
            embedding_scale: scale("embedding_scale")?,
            attention_scale: keys.number_if("attention.scale")?.map(common::seven_digits),
            residual_scale: scale("residual_scale")?,
            logit_scale: Some(1.0 / divisor).filter(|x| *x != 1.0),
            ..common::read(keys, seen)?
        })
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
        let scales = [
            ("attention.scale", self.attention_scale(config, shape)),
            ("embedding_scale", config.embedding_scale.unwrap_or(1.0)),
            ("residual_scale", config.residual_scale.unwrap_or(1.0)),
            ("logit_scale", config.logit_divisor()),
        ];
        keys.extend(scales.map(|(key, scale)| (key, common::float(scale))));
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
