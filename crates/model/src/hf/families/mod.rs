//! The supported Hugging Face families, one file each. A family defines the keys of its
//! `config.json` and the names of its tensors; the computation is in `nn`.

mod common;
mod experts;
mod gemma;
mod gemma1;
mod gemma2;
mod gemma3;
mod gpt2;
mod gpt_neo;
mod gpt_neox;
mod granite;
mod granitemoe;
mod lfm2;
mod lfm2_moe;
mod llama;
mod mistral;
mod mixtral;
mod nested;
mod olmo2;
mod olmo3;
mod olmoe;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
mod rope;
mod smollm3;
mod stablelm;
mod starcoder2;

pub use experts::TOGETHER;
pub use experts::stacked as stacked_experts;
pub use nested::{left_out, text_model};
pub use rope::ignored;

use super::keys::Keys;
use super::tensors::DiskTensor;
use crate::nn::mixer::attention_keys;
use crate::nn::norm::NormConfig;
use crate::nn::position::{PositionConfig, ScalingConfig};
use crate::nn::{Balancing, HeadKind, ModelConfig, ModelShape, MoeConfig, ParamInfo};
use serde_json::{Map, Value, json};

/// One model class of transformers.
pub trait Family: Sync {
    /// The `model_type` in `config.json`.
    fn model_type(&self) -> &'static str;

    /// The class in `architectures` of a language model.
    fn class(&self) -> &'static str;

    /// The class with a score in place of the vocabulary.
    fn classifier(&self) -> &'static str;

    /// Whether transformers has that class.
    fn has_classifier(&self) -> bool {
        true
    }

    /// The class in `architectures` of a model of this family.
    fn class_of(&self, config: &ModelConfig) -> &'static str {
        match config.head {
            HeadKind::Vocabulary => self.class(),
            HeadKind::Score => self.classifier(),
        }
    }

    /// Reads the model config from the keys.
    ///
    /// # Errors
    /// A key that is missing, invalid or unsupported. Unread keys are the caller's
    /// concern.
    fn read(&self, keys: &Keys) -> Result<ModelConfig, String>;

    /// The keys of a canonical config, as far as the family can express it: gaps show when reading them back.
    fn write(&self, config: &ModelConfig) -> Value;

    /// `config` in the form of [`Family::read`], if this family computes the same differently.
    fn canonical(&self, config: ModelConfig) -> ModelConfig {
        config
    }

    /// Their name of a tensor that has our layout.
    fn disk_name(&self, own: &str) -> String {
        own.to_string()
    }

    /// Where each of their tensors is in our weights.
    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let renamed = |tensor: DiskTensor| {
            let name = self.disk_name(&tensor.name);
            tensor.named(name)
        };
        one_by_one(infos).into_iter().map(renamed).collect()
    }

    /// Tensors in files that follow from the config.
    fn is_buffer(&self, name: &str) -> bool {
        name.ends_with(".rotary_emb.inv_freq")
    }
}

/// Every family; if several could write a model, the one that its config names does, else the first.
pub const FAMILIES: &[&dyn Family] = &[
    &gpt2::Gpt2,
    &llama::Llama,
    &granite::Granite,
    &mistral::Mistral,
    &qwen2::Qwen2,
    &qwen3::Qwen3,
    &gemma1::Gemma1,
    &gemma2::Gemma2,
    &gemma3::Gemma3,
    &olmo2::Olmo2,
    &olmo3::Olmo3,
    &phi3::Phi3,
    &starcoder2::Starcoder2,
    &gpt_neo::GptNeo,
    &gpt_neox::GptNeoX,
    &mixtral::Mixtral,
    &qwen2_moe::Qwen2Moe,
    &qwen3_moe::Qwen3Moe,
    &olmoe::Olmoe,
    &granitemoe::GraniteMoe,
    &stablelm::StableLm,
    &lfm2::Lfm2,
    &lfm2_moe::Lfm2Moe,
    &qwen3_5::Qwen35,
    &qwen3_5_moe::Qwen35Moe,
    &qwen3_next::Qwen3Next,
    // Last: without its blocks that do not rotate it is any of the Llamas.
    &smollm3::SmolLm3,
];

/// Families whose classes rename our matrices or fuse some, beside Phi-3.
const RENAMED: &[&dyn Family] = &[
    &starcoder2::Starcoder2,
    &gpt_neo::GptNeo,
    &gpt_neox::GptNeoX,
    &lfm2::Lfm2,
    &lfm2_moe::Lfm2Moe,
    &qwen3_5::Qwen35,
    &qwen3_5_moe::Qwen35Moe,
    &qwen3_next::Qwen3Next,
];

/// Families with other names than ours for the matrices of adapters of this model: Phi-3 for any model that has the parts of its
/// fused matrices, others for the models that they compute. Other models may have matrices of the same shapes.
pub fn renamed(config: &ModelConfig) -> Vec<&'static dyn Family> {
    let shape = config.shape(1);
    let renaming = RENAMED.iter().copied();
    let mut found: Vec<&'static dyn Family> = vec![&phi3::Phi3];
    found.extend(renaming.filter(|family| covers(*family, config, &shape)));
    found
}

/// The family of a `model_type`.
///
/// # Errors
/// Unknown; lists the known ones.
pub fn named(model_type: &str) -> Result<&'static dyn Family, String> {
    if let Some(family) = FAMILIES.iter().find(|f| f.model_type() == model_type) {
        return Ok(*family);
    }
    let known: Vec<&str> = FAMILIES.iter().map(|f| f.model_type()).collect();
    let hint = match model_type {
        "gemma3" => {
            "; only the text models of Gemma 3 are supported (model_type gemma3_text, such as google/gemma-3-1b-it), not the vision ones"
        }
        "granitemoeshared" | "granitemoehybrid" | "granite_swa" => {
            "; of Granite only models of model_type granite and granitemoe are supported (such as ibm-granite/granite-3.3-2b-instruct)"
        }
        "olmo" => "; only OLMo 2 and 3 and OLMoE are supported",
        "qwen3_5" | "qwen3_5_moe" => {
            "; of model_type qwen3_5 and qwen3_5_moe the text model is read, in `text_config`, which is missing"
        }
        "lfm2_vl" | "lfm2_audio" => {
            "; of LFM2 only the text models are supported (lfm2 and lfm2_moe, such as LiquidAI/LFM2-350M)"
        }
        _ => "",
    };
    Err(format!(
        "model_type `{}` is unknown; known are {}{hint}",
        crate::base::text::one_line(model_type),
        known.join(", ")
    ))
}

/// The family that computes the same as `config`: the one that it names, else the first; `None` if there is none.
pub fn of(config: &ModelConfig) -> Option<&'static dyn Family> {
    let shape = config.shape(1);
    let said = config.family.as_deref().and_then(|name| named(name).ok());
    said.into_iter()
        .chain(FAMILIES.iter().copied())
        .find(|family| covers(*family, config, &shape))
}

/// True if the keys that the family writes describe exactly this model.
fn covers(family: &dyn Family, config: &ModelConfig, shape: &ModelShape) -> bool {
    if config.is_reward_model() && !family.has_classifier() {
        return false;
    }
    let wanted = family.canonical(canonical(config, shape));
    let mut written = family.write(&wanted);
    written["vocab_size"] = json!(shape.vocab_size);
    written["tie_word_embeddings"] = json!(wanted.tie_embeddings);
    let Some(map) = written.as_object() else {
        return false;
    };
    let Ok(read) = read_keys(family, map) else {
        return false;
    };
    let read_shape = read.shape(shape.vocab_size);
    let read = family.canonical(canonical(&read, &read_shape));
    match (serde_json::to_value(&wanted), serde_json::to_value(&read)) {
        (Ok(wanted), Ok(read)) => same(&wanted, &read),
        _ => false,
    }
}

/// The model of a set of keys, with every key accounted for.
pub(super) fn read_keys(
    family: &dyn Family,
    map: &Map<String, Value>,
) -> Result<ModelConfig, String> {
    let keys = Keys::new(map);
    if keys.value("quantization_config").is_some() {
        return Err("quantization_config: this quantization format is not supported; use the original model, or a GGUF file of it".into());
    }
    let config = family.read(&keys)?;
    keys.finish()?;
    Ok(config)
}

/// The same model in canonical form: defaults filled in, equivalent settings unified, keys without effect on logits dropped.
pub fn canonical(config: &ModelConfig, shape: &ModelShape) -> ModelConfig {
    let standard = ModelConfig::default();
    let mut c = config.clone();
    c.attention_bias = config.attention_biases();
    c.attention_type = None;
    c.family = None;
    // Stated by `architectures`, in any family.
    c.head = HeadKind::Vocabulary;
    // Not in model files: only training needs it.
    c.value_head = false;
    c.n_kv_head = Some(shape.n_kv_head);
    c.head_dim = Some(shape.head_dim);
    c.d_ff = Some(shape.d_ff);
    c.vocab_size = Some(shape.vocab_size);
    c.dropout = 0.0;
    c.init_std = standard.init_std;
    let plain_scale = (shape.head_dim as f64).powf(-0.5);
    c.attention_scale = c.attention_scale.filter(|s| !near(*s, plain_scale));
    for scale in [
        &mut c.embedding_scale,
        &mut c.residual_scale,
        &mut c.logit_scale,
    ] {
        *scale = scale.filter(|s| *s != 1.0);
    }
    if let NormConfig::LayerNorm(norm) = &mut c.norm {
        norm.bias = norm.bias.filter(|bias| *bias != config.bias);
    }
    if (0..c.n_layer).all(|layer| config.window(layer).is_none()) {
        c.sliding_window = None;
    }
    if c.sliding_window.is_none() || (0..c.n_layer).all(|layer| config.window(layer).is_some()) {
        c.global_every = None;
    }
    c.global_first &= c.global_every.is_some();
    if c.mixer.is_some() {
        let has_attention: Vec<bool> = (0..c.n_layer)
            .map(|layer| config.mixer(layer).is_none())
            .collect();
        (c.attention_every, c.attention_blocks) = attention_keys(&has_attention);
        if !has_attention.contains(&false) {
            c.mixer = None;
        }
    }
    if let Some(moe) = &mut c.moe {
        let of_loss = MoeConfig::default();
        (moe.aux_loss_coef, moe.z_loss_coef) = (of_loss.aux_loss_coef, of_loss.z_loss_coef);
        moe.d_ff = Some(moe.d_ff.unwrap_or(shape.d_ff));
        moe.gate_scale = moe.gate_scale.filter(|scale| *scale != 1.0);
        if let Balancing::Bias { rate } = &mut moe.balancing {
            // How fast training moves them.
            *rate = 0.0;
        }
        let has_experts = |layer: usize| config.experts(layer).is_some();
        (moe.every, moe.dense_blocks) = MoeConfig::blocks_of(config.n_layer, has_experts);
        if config.expert_blocks() == config.n_layer {
            // No block has a dense feed-forward block of the model's own width.
            c.d_ff = moe.d_ff;
        }
    }
    let windows = c.sliding_window.is_some();
    if let PositionConfig::Rope(rope) = &mut c.position {
        let half = rope.width(shape.head_dim) / 2;
        *rope = rope.in_files(shape.head_dim, shape.seq_len);
        match &mut rope.scaling {
            Some(ScalingConfig::Yarn(yarn)) => {
                yarn.attention_factor = Some(yarn.attention_factor());
            }
            Some(ScalingConfig::Longrope(long)) => {
                long.attention_factor = Some(long.attention_factor(shape.seq_len));
                for list in [&mut long.short_factor, &mut long.long_factor] {
                    if list.is_empty() {
                        list.resize(half, 1.0);
                    }
                }
            }
            _ => {}
        }
        let same_everywhere = rope.scaling.is_none() && rope.local_theta == Some(rope.theta);
        if !windows || same_everywhere {
            rope.local_theta = None;
        }
        rope.nope_every = rope.nope_every.filter(|n| *n <= c.n_layer);
    }
    c
}

/// Each parameter as one tensor, in our order; a position table may be longer in the file.
pub(super) fn one_by_one(infos: &[ParamInfo]) -> Vec<DiskTensor> {
    const POSITIONS: [&str; 2] = ["transformer.wpe.weight", "model.embed_positions.weight"];
    infos
        .iter()
        .map(|info| DiskTensor {
            more_rows: POSITIONS.contains(&info.name.as_str()),
            ..DiskTensor::own(info)
        })
        .collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Equal up to rounding.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => near(a, b),
            _ => a == b,
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests;
