//! Keys of Mamba 2 in the families that have it, and its tensors.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use crate::nn::ModelConfig;
use crate::nn::mixer::{Mamba2Config, MixerConfig};
use serde_json::{Value, json};

const LIMITS: &str = "time_step_limit";
/// How transformers 5 writes what JSON cannot.
const FLOAT: &str = "__float__";
const INFINITY: &str = "Infinity";

/// The mixer of a model of this width.
///
/// # Errors
/// A key of another type, or sizes that do not fit together.
pub fn read(keys: &Keys, d_model: usize) -> Result<Mamba2Config, String> {
    let size = |key, default| Ok::<_, String>(keys.size(key)?.unwrap_or(default));
    // Larger ones are refused later.
    let inner = size("mamba_expand", 2)?.saturating_mul(d_model);
    let n_head = size("mamba_n_heads", 128)?;
    let head_dim = match keys.value("mamba_d_head") {
        Some(Value::String(word)) if word == "auto" => inner / n_head,
        None => inner / n_head,
        Some(_) => keys.need_size("mamba_d_head")?,
    };
    if n_head.checked_mul(head_dim) != Some(inner) {
        return Err(format!(
            "mamba_n_heads {n_head} of mamba_d_head {head_dim} are not mamba_expand times hidden_size, {inner}"
        ));
    }
    unread(keys)?;
    let (dt_min, dt_max) = limits(keys)?;
    Ok(Mamba2Config {
        n_head,
        head_dim,
        state_dim: size("mamba_d_state", 256)?,
        n_group: size("mamba_n_groups", 1)?,
        conv_len: size("mamba_d_conv", 4)?,
        conv_bias: keys.flag("mamba_conv_bias", true)?,
        bias: keys.flag("mamba_proj_bias", false)?,
        dt_min,
        dt_max,
    })
}

/// Keys without effect on logits: tokens of a chunk, and how steps of time are initialized.
fn unread(keys: &Keys) -> Result<(), String> {
    let _ = keys.size("mamba_chunk_size")?;
    for key in ["time_step_min", "time_step_max", "time_step_floor"] {
        let _ = keys.number(key)?;
    }
    Ok(())
}

fn limits(keys: &Keys) -> Result<(f64, Option<f64>), String> {
    let wrong = || format!("{LIMITS}: expected two numbers, the second may be Infinity");
    let Some(value) = keys.value(LIMITS) else {
        return Ok((0.0, None));
    };
    let Some([least, most]) = value.as_array().map(Vec::as_slice) else {
        return Err(wrong());
    };
    let least = least.as_f64().filter(|x| *x >= 0.0).ok_or_else(wrong)?;
    match most.as_f64() {
        Some(most) => Ok((least, Some(most))),
        None if most[FLOAT] == INFINITY => Ok((least, None)),
        None => Err(wrong()),
    }
}

/// Its keys for a canonical config.
pub fn write(config: &ModelConfig, value: &mut Value) {
    let net = match &config.mixer {
        Some(MixerConfig::Mamba2(net)) => net.clone(),
        // Of no effect, or not what the model has, which shows when it is read.
        _ => Mamba2Config {
            n_head: 1,
            head_dim: 2 * config.d_model,
            ..Mamba2Config::default()
        },
    };
    let d_model = config.d_model.max(1);
    value["mamba_expand"] = match net.inner().is_multiple_of(d_model) {
        true => json!(net.inner() / d_model),
        // No class has such a width, which shows when it is read.
        false => json!(net.inner() as f64 / d_model as f64),
    };
    value["mamba_n_heads"] = json!(net.n_head);
    value["mamba_d_head"] = json!(net.head_dim);
    value["mamba_d_state"] = json!(net.state_dim);
    value["mamba_n_groups"] = json!(net.n_group);
    value["mamba_d_conv"] = json!(net.conv_len);
    value["mamba_conv_bias"] = json!(net.conv_bias);
    value["mamba_proj_bias"] = json!(net.bias);
    if net.dt_min > 0.0 || net.dt_max.is_some() {
        let infinite = || json!({ FLOAT: INFINITY });
        let most = net.dt_max.map_or_else(infinite, |most| json!(most));
        value[LIMITS] = json!([net.dt_min, most]);
    }
}

/// Convolutions as torch has them.
pub fn with_convolutions(tensor: DiskTensor) -> DiskTensor {
    match tensor.name.ends_with(".mamba.conv1d.weight") {
        true => tensor.depthwise(),
        false => tensor,
    }
}
