//! gpt-oss (OpenAI 2025, arXiv 2508.10925): attention with sinks and biases, windows in every other block; experts with biases and
//! clamped SwiGLU, of which files have all of a block in one tensor, gate and up in turns.

use super::super::keys::Keys;
use super::super::tensors::{DiskTensor, Experts, Values};
use super::common::{self, Defaults};
use super::experts;
use super::family::{Family, one_by_one};
use super::rope::Rope;
use crate::nn::mlp::{ClampedSwiGluConfig, MlpConfig};
use crate::nn::position::scaling::Yarn;
use crate::nn::position::{PositionConfig, ScalingConfig};
use crate::nn::{AttentionBias, ModelConfig, MoeConfig, ParamInfo};
use serde_json::{Value, json};

pub struct GptOss;

const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        theta: 150_000.0,
        ..Defaults::LLAMA.rope
    },
    eps: 1e-5,
    kv_heads: Some(8),
    ..Defaults::LLAMA
};
/// transformers' values of absent keys.
const N_EXPERT: usize = 128;
const TOP_K: usize = 4;
const WINDOW: usize = 128;
const HEAD_DIM: usize = 64;
/// Its scaling where no key says one.
const FACTOR: f64 = 32.0;
const ORIGINAL: usize = 4096;

const ALPHA: &str = "swiglu_alpha";
const LIMIT: &str = "swiglu_limit";

impl Family for GptOss {
    fn model_type(&self) -> &'static str {
        "gpt_oss"
    }

    fn class(&self) -> &'static str {
        "GptOssForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "GptOssForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        let mut config = DEFAULTS.read(keys)?;
        if !keys.has("head_dim") {
            config.head_dim = Some(HEAD_DIM);
        }
        let is_silent = |key| keys.value(key).is_none();
        if let PositionConfig::Rope(rope) = &mut config.position
            && ["rope_parameters", "rope_scaling"]
                .into_iter()
                .all(is_silent)
        {
            rope.scaling = Some(ScalingConfig::Yarn(Yarn {
                factor: FACTOR,
                original_len: Some(ORIGINAL),
                truncate: false,
                ..Yarn::default()
            }));
        }
        // OpenAI's names of what other keys say.
        for key in ["initial_context_length", "experts_per_token"] {
            keys.size(key)?;
        }
        let window = match keys.has("sliding_window") {
            true => keys.size("sliding_window")?,
            false => Some(WINDOW),
        };
        let (sliding_window, global_every) = common::layer_types(keys, config.n_layer, window)?
            .unwrap_or((window, window.map(|_| 2)));
        let swiglu = ClampedSwiGluConfig::default();
        let moe = MoeConfig {
            n_expert: keys.size("num_local_experts")?.unwrap_or(N_EXPERT),
            top_k: keys.size("num_experts_per_tok")?.unwrap_or(TOP_K),
            bias: true,
            ..experts::everywhere(keys, &config)?
        };
        Ok(ModelConfig {
            attention_bias: match keys.flag("attention_bias", true)? {
                true => AttentionBias::All,
                false => AttentionBias::None,
            },
            attention_sinks: true,
            sliding_window,
            global_every,
            mlp: MlpConfig::ClampedSwiGlu(ClampedSwiGluConfig {
                limit: keys.number(LIMIT)?.unwrap_or(swiglu.limit),
                slope: keys.number(ALPHA)?.unwrap_or(swiglu.slope),
            }),
            moe: Some(moe),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        value["sliding_window"] = json!(config.sliding_window);
        value["layer_types"] = common::write_layer_types(config);
        if let MlpConfig::ClampedSwiGlu(swiglu) = &config.mlp {
            value[LIMIT] = json!(swiglu.limit);
            value[ALPHA] = json!(swiglu.slope);
        }
        experts::write_everywhere(config, &mut value);
        value
    }

    fn disk_name(&self, own: &str) -> String {
        own.replace(".mlp.gate.", ".mlp.router.")
    }

    fn reads_mxfp4(&self) -> bool {
        true
    }

    fn tensors(&self, config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let mut found: Vec<DiskTensor> = Vec::new();
        for (info, tensor) in infos.iter().zip(one_by_one(infos)) {
            match together(info) {
                None => {
                    let name = self.disk_name(&tensor.name);
                    found.push(tensor.named(name));
                }
                Some(name) => {
                    let begun = found.iter_mut().rev().find(|tensor| tensor.name == name);
                    if let Some(Values::Experts(of)) = begun.map(|tensor| &mut tensor.values) {
                        of.add(info.expert, info.offset..info.offset + info.len);
                        continue;
                    }
                    found.push(all_experts(config, info, name, tensor));
                }
            }
        }
        found
    }
}

/// The tensor that holds a parameter of an expert, if it is one.
fn together(info: &ParamInfo) -> Option<String> {
    info.expert?;
    let (stem, rest) = info.name.split_once(".mlp.experts.")?;
    let (_, part) = rest.split_once('.')?;
    let end = match part {
        "gate_proj.weight" | "up_proj.weight" => "gate_up_proj",
        "gate_proj.bias" | "up_proj.bias" => "gate_up_proj_bias",
        "down_proj.weight" => "down_proj",
        "down_proj.bias" => "down_proj_bias",
        _ => return None,
    };
    Some(format!("{stem}.mlp.experts.{end}"))
}

/// The tensor that begins with this parameter of the first expert.
fn all_experts(
    config: &ModelConfig,
    info: &ParamInfo,
    name: String,
    tensor: DiskTensor,
) -> DiskTensor {
    let n_expert = config.moe.as_ref().map_or(1, |moe| moe.n_expert);
    let in_turns = if name.contains("gate_up") { 2 } else { 1 };
    let rows = in_turns * info.shape[0];
    let mut experts = Experts {
        parts: Vec::new(),
        cols: info.shape.get(1).copied().unwrap_or(1),
        turned: info.shape.len() == 2,
    };
    experts.add(info.expert, info.offset..info.offset + info.len);
    let shape = match info.shape[..] {
        [_, cols] => vec![n_expert, cols, rows],
        _ => vec![n_expert, rows],
    };
    DiskTensor {
        name,
        shape,
        values: Values::Experts(experts),
        ..tensor
    }
}

impl Experts {
    /// Adds a matrix of an expert, whose number is at most that of the last one plus one.
    fn add(&mut self, expert: Option<u32>, range: std::ops::Range<usize>) {
        let expert = expert.unwrap_or_default() as usize;
        if self.parts.len() <= expert {
            self.parts.resize_with(expert + 1, Vec::new);
        }
        self.parts[expert].push(range);
    }
}
