//! Shared by Gemma 2 and 3.

use super::super::keys::Keys;
use super::common;
use crate::nn::{ModelConfig, NormPlacement};
use serde_json::{Value, json};

/// Defaults of absent keys.
const WINDOW: usize = 4096;
pub const HEAD_DIM: usize = 256;
const QUERY_SCALAR: f64 = 256.0;

/// `config` with Gemma's own keys; `every` is the default position of global blocks.
///
/// # Errors
/// An invalid or unsupported key.
pub fn read(config: ModelConfig, keys: &Keys, every: usize) -> Result<ModelConfig, String> {
    keys.only("use_bidirectional_attention", &json!(false))?;
    let scalar = keys
        .number("query_pre_attn_scalar")?
        .unwrap_or(QUERY_SCALAR);
    if scalar <= 0.0 {
        return Err(format!("query_pre_attn_scalar: {scalar} is not above 0"));
    }
    let window = match keys.has("sliding_window") {
        true => keys.size("sliding_window")?,
        false => Some(WINDOW),
    };
    // Gemma 2 says it twice; transformers reads the one above.
    if let Some(window) = window {
        keys.only("sliding_window_size", &json!(window))?;
    }
    let (sliding_window, global_every) = common::layer_types(keys, config.n_layer, window)?
        .unwrap_or((window, window.map(|_| every)));
    Ok(ModelConfig {
        head_dim: Some(keys.size("head_dim")?.unwrap_or(HEAD_DIM)),
        mlp: common::geglu(keys)?,
        norm_placement: NormPlacement::Both,
        attention_bias: common::attention_bias(keys)?,
        attention_scale: Some(scalar.powf(-0.5)),
        embedding_scale: Some((config.d_model as f64).sqrt()),
        sliding_window,
        global_every,
        ..config
    })
}

/// Gemma's own keys for a canonical config.
pub fn write(config: &ModelConfig, mut value: Value) -> Value {
    use crate::nn::AttentionBias;
    use crate::nn::mlp::{Approximate, MlpConfig};
    let scale = config
        .attention_scale
        .unwrap_or_else(|| (config.head_width() as f64).powf(-0.5));
    let exact = matches!(&config.mlp, MlpConfig::GeGlu(c) if c.approximate == Approximate::None);
    if let Some(map) = value.as_object_mut() {
        map.remove("hidden_act");
    }
    value["hidden_activation"] = json!(if exact { "gelu" } else { "gelu_pytorch_tanh" });
    // transformers uses an integer; reading it back shows whether that is this scale.
    value["query_pre_attn_scalar"] = json!(scale.powi(-2).round().clamp(1.0, 1e12) as u64);
    value["sliding_window"] = json!(config.sliding_window);
    value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
    value
}
