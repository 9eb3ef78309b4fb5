//! Phi-3 and Phi-4: Llama with q, k, v fused into one tensor and gate and up into another; partial RoPE and LongRoPE
//! possible.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::{self, Defaults};
use super::family::{Family, one_by_one};
use super::rope::Rope;
use crate::nn::position::ScalingConfig;
use crate::nn::position::scaling::Longrope;
use crate::nn::{ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct Phi3;

const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        theta: 10_000.0,
        partial: true,
        fraction: 1.0,
        longrope: true,
        sections: false,
        mscale: false,
    },
    eps: 1e-5,
    ..Defaults::LLAMA
};

/// The context that selects LongRoPE's list here, if another one is declared. transformers ignores the key.
const OWN_CONTEXT: &str = "llmtui_context";

/// The `max_position_embeddings` to declare with LongRoPE. transformers has no key for the attention factor that both its
/// versions read: it computes √(1 + ln(declared / original) / ln(original)), so the declared context is the one that gives the
/// model's factor. `None` if that is `seq_len`, or no context gives it.
fn declared_context(scaling: &Longrope, seq_len: usize) -> Option<usize> {
    let (original, factor) = (scaling.original_len as f64, scaling.attention_factor?);
    let declared = original * ((factor * factor - 1.0) * original.ln()).exp();
    let declared = declared.round();
    let usual = Longrope {
        attention_factor: None,
        ..scaling.clone()
    };
    let fits = (original..=MAX_CONTEXT).contains(&declared);
    (fits && usual.attention_factor(seq_len) != factor).then_some(declared as usize)
}

/// The longest context to declare.
const MAX_CONTEXT: f64 = 16_777_216.0;

/// Their tensor ← ours, first to last.
const FUSED: [(&str, &[&str]); 2] = [
    ("qkv_proj", &["q_proj", "k_proj", "v_proj"]),
    ("gate_up_proj", &["gate_proj", "up_proj"]),
];

impl Family for Phi3 {
    fn model_type(&self) -> &'static str {
        "phi3"
    }

    fn class(&self) -> &'static str {
        "Phi3ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Phi3ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        // Phi-4-mini's: of its own code, which transformers' class does not have.
        keys.only("full_attn_mod", &json!(1))?;
        keys.only("interpolate_factor", &json!(1))?;
        let config = DEFAULTS.read(keys)?;
        let scaling = config
            .position
            .rope()
            .and_then(|rope| rope.scaling.as_ref());
        if !matches!(scaling, None | Some(ScalingConfig::Longrope(_))) {
            return Err(
                "rotary scaling: transformers scales Phi-3's positions with longrope only".into(),
            );
        }
        Ok(ModelConfig {
            sliding_window: keys.size("sliding_window")?,
            seq_len: keys.size(OWN_CONTEXT)?.unwrap_or(config.seq_len),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["sliding_window"] = json!(config.sliding_window);
        let scaling = config
            .position
            .rope()
            .and_then(|rope| rope.scaling.as_ref());
        let original = match scaling {
            Some(ScalingConfig::Longrope(scaling)) => {
                if let Some(declared) = declared_context(scaling, config.seq_len) {
                    value["max_position_embeddings"] = json!(declared);
                    value[OWN_CONTEXT] = json!(config.seq_len);
                }
                scaling.original_len
            }
            _ => config.seq_len,
        };
        value["original_max_position_embeddings"] = json!(original);
        value["resid_pdrop"] = json!(0.0);
        value["embd_pdrop"] = json!(0.0);
        // transformers would use its default, which is outside small vocabularies.
        value["pad_token_id"] = Value::Null;
        value
    }

    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let mut tensors: Vec<DiskTensor> = Vec::new();
        for tensor in one_by_one(infos) {
            match place(&tensor.name) {
                Some((name, First::Yes)) => tensors.push(tensor.named(name)),
                Some((name, First::No)) => {
                    if let Some(fused) = tensors.iter_mut().rfind(|t| t.name == name) {
                        fused.append(tensor);
                    }
                }
                None => tensors.push(tensor),
            }
        }
        tensors
    }
}

enum First {
    Yes,
    No,
}

/// Their tensor that contains one of ours.
fn place(name: &str) -> Option<(String, First)> {
    FUSED.iter().find_map(|(fused, parts)| {
        let part = parts
            .iter()
            .find(|part| name.contains(&format!(".{part}.")))?;
        let first = match *part == parts[0] {
            true => First::Yes,
            false => First::No,
        };
        Some((name.replace(part, fused), first))
    })
}
