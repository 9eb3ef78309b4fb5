//! Gemma 3's text model: Gemma 2 with QK-norm instead of soft caps, a window in five of six blocks, and
//! a different RoPE base in windowed blocks.

use super::super::keys::Keys;
use super::family::Family;
use super::gemma2::DEFAULTS;
use super::rope::{self, Rope};
use super::{common, gemma};
use crate::nn::ModelConfig;
use crate::nn::position::{PositionConfig, RopeConfig};
use serde_json::{Value, json};

pub struct Gemma3;

const GLOBAL: Rope = Rope {
    theta: 1_000_000.0,
    partial: false,
    fraction: 1.0,
    longrope: false,
    sections: false,
    mscale: false,
};
const LOCAL: Rope = Rope {
    theta: 10_000.0,
    partial: false,
    fraction: 1.0,
    longrope: false,
    sections: false,
    mscale: false,
};

impl Family for Gemma3 {
    fn model_type(&self) -> &'static str {
        "gemma3_text"
    }

    fn class(&self) -> &'static str {
        "Gemma3ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Gemma3TextForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        let position = PositionConfig::Rope(position(keys)?);
        keys.only("attn_logit_softcapping", &Value::Null)?;
        let every = keys.size("sliding_window_pattern")?;
        let every = every.or(keys.size("_sliding_window_pattern")?).unwrap_or(6);
        let config = gemma::read(DEFAULTS.with(keys, position)?, keys, every)?;
        Ok(ModelConfig {
            qk_norm: true,
            logit_softcap: keys.number("final_logit_softcapping")?,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = gemma::write(config, DEFAULTS.write(config));
        if let Some(map) = value.as_object_mut() {
            map.remove("rope_theta");
        }
        if let Some(rope) = config.position.rope() {
            let local = rope.local_theta.unwrap_or(rope.theta);
            value["rope_theta"] = json!(rope.theta);
            value["rope_local_base_freq"] = json!(local);
            value["rope_parameters"] = json!({
                "full_attention": rope::parameters(rope),
                "sliding_attention": {"rope_type": "default", "rope_theta": local},
            });
        }
        value["final_logit_softcapping"] = json!(config.logit_softcap);
        value["attn_logit_softcapping"] = Value::Null;
        value["layer_types"] = common::write_layer_types(config);
        value
    }
}

/// Two tables by block type; or the keys of transformers 4, where scaling applies to global blocks.
fn position(keys: &Keys) -> Result<RopeConfig, String> {
    let above = keys.number("rope_theta")?;
    let local = keys.number("rope_local_base_freq")?;
    let tables = keys.table("rope_parameters")?;
    let Some(tables) = tables else {
        let rope = GLOBAL.read(keys)?;
        return Ok(RopeConfig {
            local_theta: Some(local.unwrap_or(LOCAL.theta)),
            ..rope
        });
    };
    let inner = |key: &str, rope: Rope, above| {
        let table = tables.table(key)?;
        table.map_or_else(
            || {
                Ok(RopeConfig {
                    theta: above,
                    ..RopeConfig::default()
                })
            },
            |table| rope.table(keys, &table, Some(above)),
        )
    };
    let global = inner("full_attention", GLOBAL, above.unwrap_or(GLOBAL.theta))?;
    let window = inner("sliding_attention", LOCAL, local.unwrap_or(LOCAL.theta))?;
    tables.finish()?;
    if let Some(old) = keys.table("rope_scaling")? {
        rope::agree(&global, &GLOBAL.table(keys, &old, Some(global.theta))?)?;
    }
    if window.scaling.is_some() || window.fraction != 1.0 || global.fraction != 1.0 {
        return Err("rope_parameters: scaling is supported only in global blocks, and only with whole heads rotated".into());
    }
    Ok(RopeConfig {
        local_theta: Some(window.theta),
        ..global
    })
}
