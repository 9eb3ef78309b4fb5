//! LFM2 and LFM2.5: gated short convolutions in most blocks, grouped queries with QK-norm in the others, SwiGLU, names of its own
//! for nearly every tensor.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::{self, Defaults};
use super::family::{Family, one_by_one};
use super::rope::{self, Rope};
use crate::nn::mixer::{MAX_BLOCKS, MixerConfig, ShortConvConfig, attention_keys};
use crate::nn::mlp::MlpConfig;
use crate::nn::norm::{NormConfig, RmsNormConfig};
use crate::nn::position::PositionConfig;
use crate::nn::{ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct Lfm2;

const ROPE: Rope = Rope {
    theta: 1_000_000.0,
    ..Defaults::LLAMA.rope
};
/// Defaults of absent keys.
const EPS: f64 = 1e-5;
const KV_HEADS: usize = 8;
const CONV_LEN: usize = 3;
const MULTIPLE_OF: usize = 256;

/// Words of `layer_types`.
const CONV: &str = "conv";
const FULL: &str = "full_attention";

/// Parts of our names ⇄ theirs.
const NAMES: [(&str, &str); 11] = [
    ("model.norm.", "model.embedding_norm."),
    (".input_layernorm.", ".operator_norm."),
    (".post_attention_layernorm.", ".ffn_norm."),
    (".self_attn.o_proj.", ".self_attn.out_proj."),
    (".self_attn.q_norm.", ".self_attn.q_layernorm."),
    (".self_attn.k_norm.", ".self_attn.k_layernorm."),
    (".mlp.gate.e_score_correction_bias", ".mlp.expert_bias"),
    (".mlp.", ".feed_forward."),
    (".gate_proj.", ".w1."),
    (".down_proj.", ".w2."),
    (".up_proj.", ".w3."),
];

impl Family for Lfm2 {
    fn model_type(&self) -> &'static str {
        "lfm2"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "Lfm2ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Lfm2ForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        hybrid(keys, width(keys)?)
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = write_hybrid(config);
        value["block_auto_adjust_ff_dim"] = json!(false);
        // Of no effect then, but other programs ask for them.
        value["block_ffn_dim_multiplier"] = json!(1.0);
        value["block_multiple_of"] = json!(MULTIPLE_OF);
        value
    }

    fn disk_name(&self, own: &str) -> String {
        disk_name(own)
    }

    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        hybrid_tensors(infos)
    }
}

/// Convolutions and attention by the keys of both versions, with feed-forward blocks of this width.
///
/// # Errors
/// A key that is missing, of another type, or says what the class does not do.
pub(super) fn hybrid(keys: &Keys, d_ff: usize) -> Result<ModelConfig, String> {
    let (d_model, n_head) = (
        keys.need_size("hidden_size")?,
        keys.need_size("num_attention_heads")?,
    );
    let n_layer = keys.need_size("num_hidden_layers")?;
    let position = ROPE.read(keys)?;
    unread(keys, d_model, n_head, position.theta)?;
    let conv = ShortConvConfig {
        conv_len: keys.size("conv_L_cache")?.unwrap_or(CONV_LEN),
        bias: keys.flag("conv_bias", false)?,
    };
    let has_attention = attention(keys, n_layer)?;
    let mixes = has_attention.contains(&false);
    let (attention_every, attention_blocks) = attention_keys(&has_attention);
    let tied = keys.flag("tie_word_embeddings", true)?;
    Ok(ModelConfig {
        n_layer,
        n_head,
        n_kv_head: Some(keys.size("num_key_value_heads")?.unwrap_or(KV_HEADS)),
        head_dim: Some(keys.size("head_dim")?.unwrap_or(d_model / n_head)),
        d_model,
        d_ff: Some(d_ff),
        seq_len: keys.need_size("max_position_embeddings")?,
        vocab_size: Some(keys.need_size("vocab_size")?),
        mixer: mixes.then_some(MixerConfig::ShortConv(conv)),
        attention_every,
        attention_blocks,
        position: PositionConfig::Rope(position),
        qk_norm: true,
        norm: NormConfig::RmsNorm(RmsNormConfig {
            eps: keys.number("norm_eps")?.unwrap_or(EPS),
            unit_offset: false,
        }),
        mlp: MlpConfig::SwiGlu(Default::default()),
        // The key of the first files counts where both are there.
        tie_embeddings: keys.flag("tie_embedding", tied)?,
        ..ModelConfig::default()
    })
}

/// Their keys.
pub(super) fn write_hybrid(config: &ModelConfig) -> Value {
    let conv = match &config.mixer {
        Some(MixerConfig::ShortConv(conv)) => conv.clone(),
        // Of no effect, or not what the model has, which shows when it is read.
        _ => ShortConvConfig::default(),
    };
    let word = |layer| match config.mixer(layer) {
        Some(_) => CONV,
        None => FULL,
    };
    let types: Vec<&str> = (0..config.n_layer).map(word).collect();
    let mut value = json!({
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.kv_heads(),
        "head_dim": config.head_width(),
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "max_position_embeddings": config.seq_len,
        "norm_eps": config.norm.eps(),
        "conv_L_cache": conv.conv_len,
        "conv_bias": conv.bias,
        "layer_types": types,
        "use_cache": true,
    });
    rope::write(&config.position, &mut value);
    value
}

pub(super) fn disk_name(own: &str) -> String {
    let mut name = own.to_string();
    for (ours, theirs) in NAMES {
        name = name.replace(ours, theirs);
    }
    name
}

pub(super) fn hybrid_tensors(infos: &[ParamInfo]) -> Vec<DiskTensor> {
    let theirs = |tensor: DiskTensor| {
        let name = disk_name(&tensor.name);
        let tensor = match name.ends_with(".conv.conv.weight") {
            true => tensor.depthwise(),
            false => tensor,
        };
        tensor.named(name)
    };
    one_by_one(infos).into_iter().map(theirs).collect()
}

/// Keys of the published files that the class does not read: each has the only value that it computes, or is of training.
fn unread(keys: &Keys, d_model: usize, n_head: usize, theta: f64) -> Result<(), String> {
    common::silu(keys)?;
    for (key, expected) in [
        ("block_dim", json!(d_model)),
        ("conv_dim", json!(d_model)),
        ("conv_dim_out", json!(d_model)),
        ("num_heads", json!(n_head)),
        ("theta", json!(theta)),
        ("block_use_swiglu", json!(true)),
        ("use_pos_enc", json!(true)),
    ] {
        keys.only(key, &expected)?;
    }
    for key in [
        "block_norm_eps",
        "block_mlp_init_scale",
        "block_out_init_scale",
    ] {
        let _ = keys.number(key)?;
    }
    for key in ["block_use_xavier_init", "conv_use_xavier_init"] {
        let _ = keys.flag(key, false)?;
    }
    Ok(())
}

/// Which blocks have attention: by `layer_types`, else by `full_attn_idxs`; all of them without either.
fn attention(keys: &Keys, n_layer: usize) -> Result<Vec<bool>, String> {
    let numbers = keys.numbers("full_attn_idxs")?;
    let Some(types) = keys.words("layer_types")? else {
        let has = |layer: usize| match &numbers {
            Some(numbers) => numbers.contains(&(layer as f64)),
            None => true,
        };
        return Ok((0..n_layer.min(MAX_BLOCKS)).map(has).collect());
    };
    common::one_per_block(&types, n_layer, &[FULL, CONV])?;
    Ok(types.iter().map(|word| *word == FULL).collect())
}

/// Width of the feed-forward blocks: what the file states, or two thirds of it times a factor, as a multiple of a number.
fn width(keys: &Keys) -> Result<usize, String> {
    let plain = keys.size("intermediate_size")?;
    let stated = keys.size("block_ff_dim")?.or(plain);
    let stated = stated.ok_or("block_ff_dim and intermediate_size are missing")?;
    let adjusts = keys.flag("block_auto_adjust_ff_dim", true)?;
    let factor = keys.number("block_ffn_dim_multiplier")?;
    let multiple_of = keys.size("block_multiple_of")?.unwrap_or(MULTIPLE_OF);
    if !adjusts {
        return Ok(stated);
    }
    let width = (factor.unwrap_or(1.0) * (2 * stated / 3) as f64).floor();
    match width >= 1.0 && width < (1_u64 << 40) as f64 {
        true => Ok((width as usize).next_multiple_of(multiple_of)),
        false => Err(format!(
            "block_ffn_dim_multiplier: {} gives feed-forward blocks of {width} features",
            factor.unwrap_or(1.0)
        )),
    }
}
