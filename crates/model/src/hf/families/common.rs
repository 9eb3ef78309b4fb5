//! Shared by most families: Llama's keys.

use super::super::keys::Keys;
use super::rope::{self, Rope};
use crate::nn::mlp::{Approximate, GeGluConfig, MlpConfig};
use crate::nn::norm::{NormConfig, RmsNormConfig};
use crate::nn::position::PositionConfig;
use crate::nn::{AttentionBias, ModelConfig};
use serde_json::{Value, json};

const KV_HEADS: &str = "num_key_value_heads";

/// Defaults for absent keys: those of transformers' config classes.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    pub rope: Rope,
    pub eps: f64,
    pub tied: bool,
    /// `num_key_value_heads`; `None` is as many as query heads, which null always is.
    pub kv_heads: Option<usize>,
    pub gain: GainConvention,
    /// The key of `d_ff`.
    pub width: &'static str,
}

/// How a family stores the gains of its norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GainConvention {
    Plain,
    /// Minus one (Gemma).
    UnitOffset,
}

impl Defaults {
    pub const LLAMA: Defaults = Defaults {
        rope: Rope {
            theta: 10_000.0,
            partial: false,
            fraction: 1.0,
            longrope: false,
            sections: false,
            mscale: false,
        },
        eps: 1e-6,
        tied: false,
        kv_heads: None,
        gain: GainConvention::Plain,
        width: "intermediate_size",
    };

    /// Sizes, norms, RoPE, SwiGLU: everything common. `hidden_act` is not read.
    ///
    /// # Errors
    /// A missing or invalid key, named.
    pub fn read(self, keys: &Keys) -> Result<ModelConfig, String> {
        let rope = self.rope.read(keys)?;
        self.with(keys, PositionConfig::Rope(rope))
    }

    /// The same with positions already read.
    ///
    /// # Errors
    /// As [`Defaults::read`].
    pub fn with(self, keys: &Keys, position: PositionConfig) -> Result<ModelConfig, String> {
        let (d_model, n_head) = (
            keys.need_size("hidden_size")?,
            keys.need_size("num_attention_heads")?,
        );
        Ok(ModelConfig {
            n_layer: keys.need_size("num_hidden_layers")?,
            n_head,
            n_kv_head: Some(self.kv_heads(keys)?.unwrap_or(n_head)),
            head_dim: Some(keys.size("head_dim")?.unwrap_or(d_model / n_head)),
            d_model,
            d_ff: Some(keys.need_size(self.width)?),
            seq_len: keys.need_size("max_position_embeddings")?,
            vocab_size: Some(keys.need_size("vocab_size")?),
            position,
            norm: NormConfig::RmsNorm(RmsNormConfig {
                eps: keys.number("rms_norm_eps")?.unwrap_or(self.eps),
                unit_offset: self.gain == GainConvention::UnitOffset,
            }),
            mlp: MlpConfig::SwiGlu(Default::default()),
            bias: false,
            tie_embeddings: keys.flag("tie_word_embeddings", self.tied)?,
            ..ModelConfig::default()
        })
    }

    /// The default is that of an absent key.
    fn kv_heads(self, keys: &Keys) -> Result<Option<usize>, String> {
        match keys.has(KV_HEADS) {
            true => keys.size(KV_HEADS),
            false => Ok(self.kv_heads),
        }
    }

    /// The keys of a canonical config, old and new.
    pub fn write(self, config: &ModelConfig) -> Value {
        let mut value = json!({
            "num_hidden_layers": config.n_layer,
            "num_attention_heads": config.n_head,
            "num_key_value_heads": config.kv_heads(),
            "head_dim": config.head_width(),
            "hidden_size": config.d_model,
            "max_position_embeddings": config.seq_len,
            "hidden_act": "silu",
            "rms_norm_eps": config.norm.eps(),
            "attention_dropout": 0.0,
            "use_cache": true,
        });
        value[self.width] = json!(config.d_ff);
        rope::write(&config.position, &mut value);
        value
    }
}

/// Rejects every activation but SwiGLU's.
///
/// # Errors
/// Another one.
pub fn silu(keys: &Keys) -> Result<(), String> {
    match keys.word("hidden_act")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => Err(format!(
            "hidden_act `{}`: only silu is supported for this model type",
            crate::base::text::one_line(other)
        )),
    }
}

/// Gemma's activation: `hidden_activation`, or `hidden_act` in early files.
///
/// # Errors
/// An unsupported activation.
pub fn geglu(keys: &Keys) -> Result<MlpConfig, String> {
    let old = keys.word("hidden_act")?;
    let word = keys.word("hidden_activation")?.or(old);
    let approximate = match word.unwrap_or("gelu_pytorch_tanh") {
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Approximate::Tanh,
        "gelu" => Approximate::None,
        other => {
            return Err(format!(
                "hidden_activation `{}` is not supported; use gelu_pytorch_tanh or gelu",
                crate::base::text::one_line(other)
            ));
        }
    };
    Ok(MlpConfig::GeGlu(GeGluConfig { approximate }))
}

/// Llama-style `attention_bias`: all four projections.
///
/// # Errors
/// No flag.
pub fn attention_bias(keys: &Keys) -> Result<AttentionBias, String> {
    Ok(match keys.flag("attention_bias", false)? {
        true => AttentionBias::All,
        false => AttentionBias::None,
    })
}

/// A Llama-like config with its biases: `attention_bias` of the four projections, `mlp_bias` of the rest beside it.
///
/// # Errors
/// No flags, or `mlp_bias` alone.
pub fn with_biases(keys: &Keys, config: ModelConfig) -> Result<ModelConfig, String> {
    let attention_bias = attention_bias(keys)?;
    match (attention_bias, keys.flag("mlp_bias", false)?) {
        (AttentionBias::All, true) => Ok(ModelConfig {
            bias: true,
            ..config
        }),
        (attention_bias, false) => Ok(ModelConfig {
            attention_bias,
            ..config
        }),
        (_, true) => Err("mlp_bias without attention_bias is not supported".into()),
    }
}

/// Its keys for a canonical config.
pub fn write_biases(config: &ModelConfig, into: &mut Value) {
    into["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
    into["mlp_bias"] = json!(config.bias);
}

const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";

/// (sliding_window, global_every) of a config.
pub type Windows = (Option<usize>, Option<usize>);

/// `layer_types`: which blocks have the window, as (window, global_every) for `window` tokens. `None` if the file has no
/// such list.
///
/// # Errors
/// An unsupported pattern: global blocks at positions other than every n-th.
pub fn layer_types(
    keys: &Keys,
    n_layer: usize,
    window: Option<usize>,
) -> Result<Option<Windows>, String> {
    let Some(types) = keys.words("layer_types")? else {
        return Ok(None);
    };
    one_per_block(&types, n_layer, &[FULL, SLIDING])?;
    if types.iter().all(|t| *t == FULL) {
        return Ok(Some((None, None)));
    }
    let window =
        window.ok_or("layer_types has sliding_attention, but sliding_window is missing")?;
    let Some(first) = types.iter().position(|t| *t == FULL) else {
        return Ok(Some((Some(window), None)));
    };
    let every = first + 1;
    let regular = types
        .iter()
        .enumerate()
        .all(|(i, t)| (*t == FULL) == (i + 1).is_multiple_of(every));
    match regular {
        true => Ok(Some((Some(window), Some(every)))),
        false => Err(format!(
            "layer_types: full attention is supported only in every n-th block; here the first is block {every} and the others do not follow that pattern"
        )),
    }
}

/// Checks `layer_types`: one of these words for each block.
///
/// # Errors
/// Another number of words, or another word.
pub fn one_per_block(types: &[&str], n_layer: usize, known: &[&str]) -> Result<(), String> {
    if types.len() != n_layer {
        return Err(format!(
            "layer_types has {} entries for {n_layer} layers",
            types.len()
        ));
    }
    match types.iter().find(|word| !known.contains(word)) {
        None => Ok(()),
        Some(other) => Err(format!(
            "layer_types: `{}` is not supported; known are {}",
            crate::base::text::one_line(other),
            known.join(" and ")
        )),
    }
}

/// The same list for a canonical config.
pub fn write_layer_types(config: &ModelConfig) -> Value {
    let word = |layer| match config.window(layer) {
        Some(_) => SLIDING,
        None => FULL,
    };
    (0..config.n_layer).map(word).collect::<Vec<_>>().into()
}

/// Qwen's form: a window that `use_sliding_window` enables from block `max_window_layers` on.
///
/// # Errors
/// An unsupported pattern.
pub fn qwen_window(keys: &Keys, n_layer: usize) -> Result<Option<usize>, String> {
    let on = keys.flag("use_sliding_window", false)?;
    let window = qwen_size(keys)?.filter(|_| on);
    let from = keys.count("max_window_layers")?;
    if let Some((window, every)) = layer_types(keys, n_layer, window)? {
        return match every {
            None => Ok(window),
            Some(_) => {
                Err("layer_types: this model type has the window in all blocks or in none".into())
            }
        };
    }
    match (window, from.unwrap_or(28)) {
        (None, _) => Ok(None),
        (Some(window), 0) => Ok(Some(window)),
        (Some(_), from) if from >= n_layer => Ok(None),
        (Some(_), from) => Err(format!(
            "max_window_layers {from}: a sliding window is supported only in all blocks or none"
        )),
    }
}

/// Qwen's default window in transformers.
const WINDOW: usize = 4096;

/// The size of Qwen's window, used or not: transformers' default if the key is absent, none if it is null.
///
/// # Errors
/// No size.
pub fn qwen_size(keys: &Keys) -> Result<Option<usize>, String> {
    match keys.has("sliding_window") {
        true => keys.size("sliding_window"),
        false => Ok(Some(WINDOW)),
    }
}

/// Its keys for a canonical config.
pub fn write_qwen_window(config: &ModelConfig, into: &mut Value) {
    into["use_sliding_window"] = json!(config.sliding_window.is_some());
    into["sliding_window"] = json!(config.sliding_window);
    into["max_window_layers"] = json!(0);
    into["layer_types"] = write_layer_types(config);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(words: &[&str], window: Option<usize>) -> Result<Option<Windows>, String> {
        let value = json!({"layer_types": words});
        layer_types(&Keys::new(value.as_object().unwrap()), words.len(), window)
    }

    #[test]
    fn patterns_are_recognized_in_lists() {
        assert_eq!(types(&[FULL, FULL], Some(5)), Ok(Some((None, None))));
        assert_eq!(
            types(&[SLIDING, SLIDING], Some(5)),
            Ok(Some((Some(5), None)))
        );
        let three = [SLIDING, SLIDING, FULL, SLIDING];
        assert_eq!(types(&three, Some(5)), Ok(Some((Some(5), Some(3)))));
        let config = ModelConfig {
            sliding_window: Some(5),
            global_every: Some(3),
            ..ModelConfig::default()
        };
        assert_eq!(write_layer_types(&config), json!(three));
        for bad in [
            &[FULL, SLIDING][..],
            &[SLIDING, FULL, FULL],
            &[SLIDING, "chunked"],
        ] {
            assert!(types(bad, Some(5)).is_err(), "{bad:?}");
        }
        assert!(
            types(&[SLIDING], None)
                .unwrap_err()
                .contains("sliding_window is missing")
        );
        let value = json!({"layer_types": [FULL]});
        assert!(layer_types(&Keys::new(value.as_object().unwrap()), 2, None).is_err());
    }

    #[test]
    fn qwens_window_is_on_in_all_blocks_or_in_none() {
        let read = |value: Value| qwen_window(&Keys::new(value.as_object().unwrap()), 4);
        assert_eq!(
            read(json!({"sliding_window": 5, "use_sliding_window": false})),
            Ok(None)
        );
        assert_eq!(
            read(json!({"sliding_window": 5, "use_sliding_window": true, "max_window_layers": 4})),
            Ok(None)
        );
        assert_eq!(
            read(json!({"sliding_window": 5, "use_sliding_window": true, "max_window_layers": 0})),
            Ok(Some(5))
        );
        // transformers' own default, and none if the file has null.
        let on = json!({"use_sliding_window": true, "max_window_layers": 0});
        assert_eq!(read(on.clone()), Ok(Some(4096)));
        let mut none = on;
        none["sliding_window"] = Value::Null;
        assert_eq!(read(none), Ok(None));
        assert_eq!(read(json!({})), Ok(None));
        assert!(
            read(json!({"sliding_window": 5, "use_sliding_window": true, "max_window_layers": 2}))
                .is_err()
        );
        for wrong in [json!("2"), json!(0.5), json!(-1)] {
            let error = read(json!({"max_window_layers": wrong})).unwrap_err();
            assert!(error.contains("max_window_layers: expected"), "{error}");
        }
    }
}
