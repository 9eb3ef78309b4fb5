//! Qwen 3.5's text model: gated delta nets in three of four blocks, gated attention in the others. The published files hold it as a
//! part of a model with vision: `nested` reads their config.json.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::{self, Defaults, GainConvention};
use super::family::{Family, one_by_one};
use super::rope::Rope;
use crate::nn::mixer::{GatedDeltaNetConfig, MAX_BLOCKS, MixerConfig, attention_keys};
use crate::nn::{AttentionBias, ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct Qwen35;

/// The `model_type`, and the class of it alone.
pub(super) const TEXT: &str = "qwen3_5_text";
pub(super) const CLASS: &str = "Qwen3_5ForCausalLM";

/// Of the dense models and of those with experts.
pub(super) const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        partial: true,
        fraction: 0.25,
        sections: true,
        ..Defaults::LLAMA.rope
    },
    kv_heads: Some(4),
    gain: GainConvention::UnitOffset,
    ..Defaults::LLAMA
};
/// Defaults of absent keys.
const HEAD_DIM: usize = 256;
const EVERY: usize = 4;

/// Words of `layer_types`.
const LINEAR: &str = "linear_attention";
const FULL: &str = "full_attention";

impl Family for Qwen35 {
    fn model_type(&self) -> &'static str {
        TEXT
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        CLASS
    }

    fn classifier(&self) -> &'static str {
        "Qwen3_5TextForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        unread(keys)?;
        hybrid(DEFAULTS.read(keys)?, keys)
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        write_hybrid(config, &mut value);
        write_rope(config, &mut value);
        value
    }

    fn tensors(&self, config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        hybrid_tensors(config, infos)
    }

    fn is_buffer(&self, name: &str) -> bool {
        is_beside(name)
    }
}

/// What files of a model with vision hold beside the text model: transformers leaves it out as well.
pub(super) fn is_beside(name: &str) -> bool {
    name.starts_with("model.visual.")
        || name.starts_with("mtp.")
        || name.ends_with(".rotary_emb.inv_freq")
}

/// Keys of the published files with one value, or without effect here.
///
/// # Errors
/// Another value.
pub(super) fn unread(keys: &Keys) -> Result<(), String> {
    common::silu(keys)?;
    // The class has no other choice.
    keys.only("attn_output_gate", &json!(true))?;
    keys.only("output_gate_type", &json!("swish"))?;
    // What states are in, and the head that predicts tokens further ahead, which is left out.
    let _ = keys.word("mamba_ssm_dtype")?;
    let _ = keys.count("mtp_num_hidden_layers")?;
    let _ = keys.flag("mtp_use_dedicated_embeddings", false)?;
    Ok(())
}

/// A Llama-like `config` with gated delta nets and gated attention.
///
/// # Errors
/// A key of another type, or `layer_types` that do not fit.
pub(super) fn hybrid(config: ModelConfig, keys: &Keys) -> Result<ModelConfig, String> {
    let has_attention = attention(keys, config.n_layer)?;
    let mixes = has_attention.contains(&false);
    let (attention_every, attention_blocks) = attention_keys(&has_attention);
    let size = |key, default| Ok::<_, String>(keys.size(key)?.unwrap_or(default));
    let net = GatedDeltaNetConfig {
        n_key_head: size("linear_num_key_heads", 16)?,
        n_value_head: size("linear_num_value_heads", 32)?,
        key_dim: size("linear_key_head_dim", 128)?,
        value_dim: size("linear_value_head_dim", 128)?,
        conv_len: size("linear_conv_kernel_dim", 4)?,
    };
    Ok(ModelConfig {
        head_dim: Some(size("head_dim", HEAD_DIM)?),
        qk_norm: true,
        attention_gate: true,
        attention_bias: common::attention_bias(keys)?,
        mixer: mixes.then_some(MixerConfig::GatedDeltaNet(net)),
        attention_every,
        attention_blocks,
        ..config
    })
}

/// Their keys.
pub(super) fn write_hybrid(config: &ModelConfig, value: &mut Value) {
    let net = match &config.mixer {
        Some(MixerConfig::GatedDeltaNet(net)) => net.clone(),
        // Of no effect, or not what the model has, which shows when it is read.
        _ => GatedDeltaNetConfig::default(),
    };
    let word = |layer| match config.mixer(layer) {
        Some(_) => LINEAR,
        None => FULL,
    };
    value["linear_num_key_heads"] = json!(net.n_key_head);
    value["linear_num_value_heads"] = json!(net.n_value_head);
    value["linear_key_head_dim"] = json!(net.key_dim);
    value["linear_value_head_dim"] = json!(net.value_dim);
    value["linear_conv_kernel_dim"] = json!(net.conv_len);
    value["layer_types"] = (0..config.n_layer).map(word).collect::<Vec<_>>().into();
    value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
    value["attn_output_gate"] = json!(true);
}

/// The share of a head that is rotated, and the sections of its pairs.
pub(super) fn write_rope(config: &ModelConfig, value: &mut Value) {
    let Some(rope) = config.position.rope() else {
        return;
    };
    write_fraction(config, value);
    let table = &mut value["rope_parameters"];
    table["mrope_section"] = json!(rope.sections(config.head_width()));
    table["mrope_interleaved"] = json!(true);
}

/// The share alone: the class takes a quarter where no key says another one.
pub(super) fn write_fraction(config: &ModelConfig, value: &mut Value) {
    if let Some(rope) = config.position.rope() {
        value["partial_rotary_factor"] = json!(rope.fraction);
        value["rope_parameters"]["partial_rotary_factor"] = json!(rope.fraction);
    }
}

/// Queries and their gates are one matrix, whose rows are (head, query | gate, head_dim).
pub(super) fn hybrid_tensors(config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
    let mut tensors: Vec<DiskTensor> = Vec::new();
    for tensor in one_by_one(infos) {
        let queries = tensor
            .name
            .replace(".self_attn.q_gate_proj.", ".self_attn.q_proj.");
        let is_gate = queries != tensor.name;
        let found = tensors.iter_mut().rfind(|t| is_gate && t.name == queries);
        match found {
            Some(found) => {
                found.append(tensor);
                let alternating = found.clone().interleaved(config.n_head);
                *found = alternating;
            }
            None if tensor.name.ends_with(".conv1d.weight") => tensors.push(tensor.depthwise()),
            None => tensors.push(tensor),
        }
    }
    tensors
}

/// Which blocks have attention: by the list, else every n-th.
fn attention(keys: &Keys, n_layer: usize) -> Result<Vec<bool>, String> {
    let every = keys.size("full_attention_interval")?.unwrap_or(EVERY);
    let Some(types) = keys.words("layer_types")? else {
        let has = |layer: usize| (layer + 1).is_multiple_of(every);
        return Ok((0..n_layer.min(MAX_BLOCKS)).map(has).collect());
    };
    common::one_per_block(&types, n_layer, &[FULL, LINEAR])?;
    Ok(types.iter().map(|word| *word == FULL).collect())
}
