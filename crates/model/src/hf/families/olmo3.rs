//! OLMo 3: OLMo 2 with a sliding window in three of four blocks, which RoPE scaling leaves out.

use super::super::keys::Keys;
use super::family::Family;
use super::rope::{self, Rope};
use super::{common, olmo2};
use crate::nn::ModelConfig;
use crate::nn::position::{PositionConfig, RopeConfig};
use serde_json::{Value, json};

pub struct Olmo3;

/// Defaults of absent keys.
const WINDOW: usize = 4096;
const EVERY: usize = 4;
const ROPE: Rope = Rope {
    theta: 500_000.0,
    partial: false,
    fraction: 1.0,
    longrope: false,
    sections: false,
    mscale: false,
};

impl Family for Olmo3 {
    fn model_type(&self) -> &'static str {
        "olmo3"
    }

    fn class(&self) -> &'static str {
        "Olmo3ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Olmo3ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        // Read below, when it is known whether there are windows.
        let position = PositionConfig::Rope(RopeConfig::default());
        let config = olmo2::DEFAULTS.with(keys, position)?;
        let config = olmo2::normed(config, keys)?;
        let window = match keys.has("sliding_window") {
            true => keys.size("sliding_window")?,
            false => Some(WINDOW),
        };
        let (sliding_window, global_every) = common::layer_types(keys, config.n_layer, window)?
            .unwrap_or((window, window.map(|_| EVERY)));
        Ok(ModelConfig {
            position: PositionConfig::Rope(rotation(keys, sliding_window.is_some())?),
            sliding_window,
            global_every,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = olmo2::write(config);
        if let Some(rope) = config.position.rope() {
            // What transformers 4 reads stays beside it: the base of all blocks, and the scaling of those without a window.
            value["rope_parameters"] = json!({
                "full_attention": rope::parameters(rope),
                "sliding_attention": {
                    "rope_type": "default",
                    "rope_theta": rope.local_theta.unwrap_or(rope.theta),
                },
            });
        }
        value["sliding_window"] = json!(config.sliding_window);
        value["layer_types"] = common::write_layer_types(config);
        value
    }
}

/// Two tables by block type; or the keys of transformers 4, where scaling applies to blocks without a window.
fn rotation(keys: &Keys, has_windows: bool) -> Result<RopeConfig, String> {
    let (global, local) = match keys.table("rope_parameters")? {
        Some(tables) => of_tables(keys, &tables)?,
        None => {
            let rope = ROPE.read(keys)?;
            if has_windows && rope.theta != ROPE.theta {
                return Err(format!(
                    "rope_theta {} without rope_parameters: transformers 4 takes it in all blocks, and 5 takes {} in those with a sliding window; say rope_parameters.full_attention and rope_parameters.sliding_attention, each with its rope_theta",
                    rope.theta, ROPE.theta
                ));
            }
            let theta = rope.theta;
            (rope, theta)
        }
    };
    let is_other = global.scaling.is_some() || global.theta != local;
    Ok(RopeConfig {
        local_theta: Some(local).filter(|_| has_windows && is_other),
        ..global
    })
}

/// The rotation of blocks without a window, and the base of those with one.
fn of_tables(keys: &Keys, tables: &Keys) -> Result<(RopeConfig, f64), String> {
    // Each table has its own base. Without it transformers 5 takes this one in blocks without a window alone.
    let above = keys.number("rope_theta")?;
    let inner = |key: &str, above: Option<f64>| match tables.table(key)? {
        Some(table) => ROPE.table(keys, &table, above),
        None => Ok(RopeConfig {
            theta: above.unwrap_or(ROPE.theta),
            ..RopeConfig::default()
        }),
    };
    let global = inner("full_attention", above)?;
    let window = inner("sliding_attention", None)?;
    tables.finish()?;
    if let Some(old) = keys.table("rope_scaling")? {
        rope::agree(&global, &ROPE.table(keys, &old, Some(global.theta))?)?;
    }
    if window.scaling.is_some() || window.fraction != 1.0 || global.fraction != 1.0 {
        return Err("rope_parameters: scaling is supported only in blocks without a sliding window, and only with whole heads rotated".into());
    }
    Ok((global, window.theta))
}
