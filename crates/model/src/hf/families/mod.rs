//! The supported Hugging Face families, one file each. A family defines the keys of its
//! `config.json` and the names of its tensors; the computation is in `nn`.

mod bamba;
mod canonical;
mod common;
mod deepseek;
mod deepseek_v2;
mod deepseek_v3;
mod experts;
mod family;
mod gemma;
mod gemma1;
mod gemma2;
mod gemma3;
mod glm4_moe_lite;
mod gpt2;
mod gpt_neo;
mod gpt_neox;
mod gpt_oss;
mod granite;
mod granitemoe;
mod granitemoehybrid;
mod granitemoeshared;
mod lfm2;
mod lfm2_moe;
mod llama;
mod mamba;
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

pub use canonical::canonical;
pub use experts::TOGETHER;
pub use experts::stacked as stacked_experts;
pub use family::{Family, one_by_one};
pub use nested::{left_out, text_model};
pub use rope::{ignored, parameters as rope_parameters};

use super::keys::{Keys, same};
use super::packed::{Format, QUANTIZATION};
use crate::nn::{ModelConfig, ModelShape};
use serde_json::{Map, Value, json};

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
    &granitemoeshared::GraniteMoeShared,
    &stablelm::StableLm,
    &lfm2::Lfm2,
    &lfm2_moe::Lfm2Moe,
    &qwen3_5::Qwen35,
    &qwen3_5_moe::Qwen35Moe,
    &qwen3_next::Qwen3Next,
    &deepseek_v2::DeepSeekV2,
    &deepseek_v3::DeepSeekV3,
    &glm4_moe_lite::Glm4MoeLite,
    &gpt_oss::GptOss,
    &granitemoehybrid::GraniteMoeHybrid,
    &bamba::Bamba,
    // Last: without its blocks that do not rotate it is any of the Llamas.
    &smollm3::SmolLm3,
];

/// Families with other names than ours for the matrices of adapters of this model: Phi-3 for any model that has the parts of its
/// fused matrices, others for the models that they compute. Other models may have matrices of the same shapes.
pub fn renamed(config: &ModelConfig) -> Vec<&'static dyn Family> {
    let shape = config.shape(1);
    let renaming = FAMILIES
        .iter()
        .copied()
        .filter(|family| family.renames_matrices());
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
        "granite_swa" => {
            "; of Granite only models of model_type granite, granitemoe, granitemoeshared and granitemoehybrid are supported (such as ibm-granite/granite-4.0-h-350m)"
        }
        "mamba" | "mamba2" | "nemotron_h" | "zamba2" | "falcon_h1" => {
            "; Mamba 2 is supported in granitemoehybrid and bamba, whose blocks all have a feed-forward block"
        }
        "kimi_k2" => {
            "; Kimi K2 computes as DeepSeek-V3: write deepseek_v3, transformers' class for it"
        }
        "deepseek_v32" | "deepseek_v4" | "deepseek" => {
            "; of DeepSeek's models those of model_type deepseek_v2 and deepseek_v3 are supported"
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
    if let Some(says) = keys.value(QUANTIZATION) {
        let format = Format::of(&json!({QUANTIZATION: says}))?;
        if format == Format::Mxfp4 && !family.reads_mxfp4() {
            return Err(format!(
                "{QUANTIZATION}: mxfp4 is supported in gpt_oss alone; use the original model, or a GGUF file of it"
            ));
        }
    }
    let config = family.read(&keys)?;
    keys.finish()?;
    Ok(config)
}

#[cfg(test)]
mod tests;
