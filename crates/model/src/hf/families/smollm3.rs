//! SmolLM3: Llama with tied embeddings and no position encoding (NoPE) in every n-th block.

use super::super::keys::Keys;
use super::common::{self, Defaults};
use super::family::Family;
use super::rope::Rope;
use crate::nn::ModelConfig;
use crate::nn::position::{PositionConfig, RopeConfig};
use serde_json::{Value, json};

pub struct SmolLm3;

const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        theta: 2_000_000.0,
        ..Defaults::LLAMA.rope
    },
    tied: true,
    kv_heads: Some(4),
    ..Defaults::LLAMA
};
/// transformers' default of the interval.
const NOPE_EVERY: usize = 4;
/// Which blocks rotate, 1 or 0 each; and without it, one block in how many does not.
const LAYERS: &str = "no_rope_layers";
const INTERVAL: &str = "no_rope_layer_interval";

impl Family for SmolLm3 {
    fn model_type(&self) -> &'static str {
        "smollm3"
    }

    fn class(&self) -> &'static str {
        "SmolLM3ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "SmolLM3ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        // The published files have it; this class does not read it.
        let _ = keys.count("max_window_layers")?;
        let n_layer = keys.need_size("num_hidden_layers")?;
        let nope_every = nope_every(keys, n_layer)?;
        let (sliding_window, global_every) = windows(keys, n_layer, nope_every)?;
        let rope = RopeConfig {
            nope_every,
            ..DEFAULTS.rope.read(keys)?
        };
        let config = DEFAULTS.with(keys, PositionConfig::Rope(rope))?;
        let config = ModelConfig {
            sliding_window,
            global_every,
            ..config
        };
        common::with_biases(keys, config)
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        common::write_biases(config, &mut value);
        let rotates = (0..config.n_layer).map(|layer| u8::from(config.rotates(layer)));
        value[LAYERS] = rotates.collect::<Vec<u8>>().into();
        let every = config.position.rope().and_then(|rope| rope.nope_every);
        // Beyond the last block: none is without, for readers of this key alone.
        value[INTERVAL] = json!(every.unwrap_or(config.n_layer + 1));
        value["use_sliding_window"] = json!(config.sliding_window.is_some());
        value["sliding_window"] = json!(config.sliding_window);
        value["layer_types"] = common::write_layer_types(config);
        value
    }
}

/// One block in how many has no position encoding: by the list, else by the interval.
fn nope_every(keys: &Keys, n_layer: usize) -> Result<Option<usize>, String> {
    let interval = keys.size(INTERVAL)?.unwrap_or(NOPE_EVERY);
    let (key, every) = match keys.numbers(LAYERS)? {
        Some(list) => (LAYERS, listed(&list, n_layer)?),
        None => (INTERVAL, Some(interval)),
    };
    match every {
        Some(1) => Err(format!(
            "{key}: no block has position encoding, which is not supported with this model type"
        )),
        every => Ok(every.filter(|n| *n <= n_layer)),
    }
}

/// The list may be longer than the model, as in transformers.
fn listed(list: &[f64], n_layer: usize) -> Result<Option<usize>, String> {
    let Some(list) = list.get(..n_layer) else {
        return Err(format!(
            "{LAYERS} has {} entries for {n_layer} layers",
            list.len()
        ));
    };
    if let Some(other) = list.iter().find(|x| ![0.0, 1.0].contains(x)) {
        return Err(format!(
            "{LAYERS}: expected 1 for a block with RoPE and 0 for one without, found {other}"
        ));
    }
    let Some(first) = list.iter().position(|x| *x == 0.0) else {
        return Ok(None);
    };
    let every = first + 1;
    let mut blocks = list.iter().enumerate();
    match blocks.all(|(i, x)| (*x == 0.0) == (i + 1).is_multiple_of(every)) {
        true => Ok(Some(every)),
        false => Err(format!(
            "{LAYERS}: blocks without position encoding are supported only as every n-th; here the first is block {every} and the others do not follow that pattern"
        )),
    }
}

/// Windows of the blocks that `layer_types` names. Without such a list transformers has them in the blocks without position
/// encoding alone, which is no pattern of ours.
fn windows(keys: &Keys, n_layer: usize, nope: Option<usize>) -> Result<common::Windows, String> {
    let on = keys.flag("use_sliding_window", false)?;
    let size = keys.size("sliding_window")?;
    let listed = common::layer_types(keys, n_layer, size)?;
    match (size.filter(|_| on), listed) {
        (None, Some((Some(_), _))) => Err(
            "layer_types has sliding_attention, but use_sliding_window is false: transformers masks such blocks in some attention implementations and not in others".into(),
        ),
        (None, _) => Ok((None, None)),
        (Some(_), Some(windows)) => Ok(windows),
        (Some(_), None) if nope.is_none() => Ok((None, None)),
        (Some(window), None) => Err(format!(
            "sliding_window {window} without layer_types is a window in the blocks without position encoding alone, which is not supported; windows are supported in all blocks, or in all but every n-th"
        )),
    }
}
