//! GPT-Neo (the TinyStories models): GPT-2 with a sliding window in every other block, scores that are not scaled, and no biases
//! of queries, keys and values, which are matrices of their own.

use super::super::keys::Keys;
use super::family::Family;
use super::gpt2;
use crate::nn::norm::{LayerNormConfig, NormConfig};
use crate::nn::position::PositionConfig;
use crate::nn::{AttentionBias, ModelConfig};
use serde_json::{Value, json};

pub struct GptNeo;

/// transformers' defaults: the window, and the blocks that have it, as [[kinds, repetitions], …].
const WINDOW: usize = 256;
const USUAL: (&[&str], usize) = (&[GLOBAL, LOCAL], 12);

const GLOBAL: &str = "global";
const LOCAL: &str = "local";

/// The most blocks that a config may list; more than any model has.
const MOST: usize = 10_000;

/// Parts of our names ⇄ theirs, the longer first.
const NAMES: [(&str, &str); 10] = [
    ("model.embed_tokens", "transformer.wte"),
    ("model.embed_positions", "transformer.wpe"),
    ("model.norm", "transformer.ln_f"),
    ("model.layers", "transformer.h"),
    ("input_layernorm", "ln_1"),
    ("post_attention_layernorm", "ln_2"),
    ("self_attn.o_proj", "attn.attention.out_proj"),
    ("self_attn", "attn.attention"),
    ("mlp.up_proj", "mlp.c_fc"),
    ("mlp.down_proj", "mlp.c_proj"),
];

impl Family for GptNeo {
    fn model_type(&self) -> &'static str {
        "gpt_neo"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "GPTNeoForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "GPTNeoForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        let _ = keys.number("classifier_dropout")?;
        let n_layer = keys.need_size("num_layers")?;
        let n_head = keys.need_size("num_heads")?;
        let d_model = keys.need_size("hidden_size")?;
        let window = keys.size("window_size")?.unwrap_or(WINDOW);
        let (sliding_window, global_every, global_first) = windows(keys, n_layer, window)?;
        Ok(ModelConfig {
            n_layer,
            n_head,
            n_kv_head: Some(n_head),
            d_model,
            d_ff: Some(keys.size("intermediate_size")?.unwrap_or(4 * d_model)),
            seq_len: keys.need_size("max_position_embeddings")?,
            vocab_size: Some(keys.need_size("vocab_size")?),
            position: PositionConfig::Learned(Default::default()),
            sliding_window,
            global_every,
            global_first,
            attention_scale: Some(1.0),
            norm: NormConfig::LayerNorm(LayerNormConfig {
                eps: keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
                bias: None,
            }),
            mlp: gpt2::activation(keys)?,
            bias: true,
            attention_bias: AttentionBias::Output,
            tie_embeddings: keys.flag("tie_word_embeddings", true)?,
            ..ModelConfig::default()
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let kind = |layer| match config.window(layer) {
            Some(_) => LOCAL,
            None => GLOBAL,
        };
        let kinds: Vec<&str> = (0..config.n_layer).map(kind).collect();
        json!({
            "num_layers": config.n_layer,
            "num_heads": config.n_head,
            "hidden_size": config.d_model,
            "intermediate_size": config.d_ff,
            "max_position_embeddings": config.seq_len,
            "window_size": config.sliding_window.unwrap_or(WINDOW),
            "attention_types": [[kinds, 1]],
            "attention_layers": kinds,
            "activation_function": gpt2::activation_word(&config.mlp),
            "layer_norm_epsilon": config.norm.eps(),
            "attention_dropout": 0.0,
            "embed_dropout": 0.0,
            "resid_dropout": 0.0,
            "use_cache": true,
        })
    }

    fn disk_name(&self, own: &str) -> String {
        let mut name = own.to_string();
        for (ours, theirs) in NAMES {
            name = name.replace(ours, theirs);
        }
        name
    }

    /// Masks in files of transformers 4.
    fn is_buffer(&self, name: &str) -> bool {
        name.ends_with(".attn.attention.bias") || name.ends_with(".attn.attention.masked_bias")
    }
}

/// (sliding_window, global_every, global_first).
type Windows = (Option<usize>, Option<usize>, bool);

/// Which blocks have the window. transformers reads `attention_types` and writes `attention_layers` from it.
fn windows(keys: &Keys, n_layer: usize, window: usize) -> Result<Windows, String> {
    let types = match keys.value("attention_types") {
        None => USUAL.0.repeat(USUAL.1),
        Some(value) => expanded(value).ok_or_else(|| {
            format!(
                "attention_types: expected [[[kind, …], repetitions], …] with {GLOBAL} and {LOCAL}"
            )
        })?,
    };
    if types.len() != n_layer {
        return Err(format!(
            "attention_types is for {} layers, and num_layers is {n_layer}",
            types.len()
        ));
    }
    let windows = pattern(&types, window)?;
    match keys.words("attention_layers")? {
        Some(layers) if layers != types => {
            Err("attention_layers differs from attention_types, which transformers reads".into())
        }
        _ => Ok(windows),
    }
}

/// The same from the kind of each block.
fn pattern(types: &[&str], window: usize) -> Result<Windows, String> {
    if types.iter().all(|kind| *kind == GLOBAL) {
        return Ok((None, None, false));
    }
    if types.iter().all(|kind| *kind == LOCAL) {
        return Ok((Some(window), None, false));
    }
    let is_pattern = |every: usize, first: bool| {
        let is_global = |at: usize| (at + usize::from(!first)).is_multiple_of(every);
        let mut kinds = types.iter().enumerate();
        kinds.all(|(at, kind)| (*kind == GLOBAL) == is_global(at))
    };
    let mut patterns = (2..=types.len()).flat_map(|every| [(every, false), (every, true)]);
    match patterns.find(|(every, first)| is_pattern(*every, *first)) {
        Some((every, first)) => Ok((Some(window), Some(every), first)),
        None => Err(format!(
            "attention_types: {GLOBAL} attention is supported only in every n-th block, from the first or the n-th on"
        )),
    }
}

/// One kind for each block.
fn expanded(value: &Value) -> Option<Vec<&str>> {
    let mut all = Vec::new();
    for item in value.as_array()? {
        let kinds = item.get(0)?.as_array()?.iter();
        let kinds: Vec<&str> = kinds.map(Value::as_str).collect::<Option<_>>()?;
        let times = usize::try_from(item.get(1)?.as_u64()?).ok()?;
        let len = kinds.len().checked_mul(times)?;
        if len.saturating_add(all.len()) > MOST
            || kinds.iter().any(|kind| ![GLOBAL, LOCAL].contains(kind))
        {
            return None;
        }
        all.extend(kinds.repeat(times));
    }
    Some(all)
}
