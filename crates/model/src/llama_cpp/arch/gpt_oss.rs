//! `gpt-oss`: attention with sinks and biases, experts with biases and clamped SwiGLU. Implied by the architecture and absent from
//! files: every other block is without the window, and the constants of SwiGLU (llama.cpp, src/models/openai-moe.cpp).
//!
//! llama.cpp rounds the ends of YaRN's ramp to whole pairs, and its files do not say that the published models were trained
//! without: a file is read as those are, unless a key of ours says otherwise.

use super::common::{self, count};
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::gguf::Value;
use crate::nn::mlp::{ClampedSwiGluConfig, MlpConfig};
use crate::nn::position::{PositionConfig, ScalingConfig};
use crate::nn::{AttentionBias, ModelConfig, ModelShape, MoeConfig};

pub struct GptOss;

/// Every n-th block is without a window.
const EVERY: usize = 2;
const WINDOW: &str = "attention.sliding_window";
/// Ours, which llama.cpp does not read: the ramp's ends are whole pairs.
const TRUNCATE: &str = "rope.scaling.yarn_truncate";

impl Architecture for GptOss {
    fn name(&self) -> &'static str {
        "gpt-oss"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut config = common::read(keys, seen)?;
        let Some(moe) = config.moe.take() else {
            return Err("gpt-oss.expert_count is missing".into());
        };
        if let PositionConfig::Rope(rope) = &mut config.position
            && let Some(ScalingConfig::Yarn(yarn)) = &mut rope.scaling
        {
            yarn.truncate = keys.flag_if(TRUNCATE).unwrap_or(false);
        }
        Ok(ModelConfig {
            attention_sinks: true,
            sliding_window: Some(keys.count(WINDOW)?),
            global_every: Some(EVERY),
            mlp: MlpConfig::ClampedSwiGlu(Default::default()),
            moe: Some(MoeConfig { bias: true, ..moe }),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let moe = config.moe.as_ref().filter(|moe| moe.bias)?;
        let window = config.sliding_window?;
        let has_window = |layer: usize| config.window(layer).is_some();
        // As a Llama without what its own code has.
        let mut plain = ModelConfig {
            attention_sinks: false,
            sliding_window: None,
            global_every: None,
            mlp: MlpConfig::SwiGlu(Default::default()),
            moe: Some(MoeConfig {
                bias: false,
                ..moe.clone()
            }),
            ..config.clone()
        };
        let usual = ClampedSwiGluConfig::default();
        let fits = config.attention_sinks
            && config.attention_biases() == AttentionBias::All
            && !config.bias
            && !config.qk_norm
            && matches!(&config.mlp, MlpConfig::ClampedSwiGlu(of) if *of == usual)
            && moe.norm_topk
            && (0..shape.n_layer)
                .all(|layer| has_window(layer) != (layer + 1).is_multiple_of(EVERY))
            && common::is_plain(&plain)
            && common::rotates_alike(config, shape);
        if !fits {
            return None;
        }
        let mut is_truncated = None;
        if let PositionConfig::Rope(rope) = &mut plain.position
            && let Some(ScalingConfig::Yarn(yarn)) = &mut rope.scaling
        {
            is_truncated = Some(std::mem::replace(&mut yarn.truncate, true));
        }
        let mut keys = common::write(&plain, shape)?;
        keys.push((WINDOW, count(window)));
        if is_truncated == Some(true) {
            keys.push((TRUNCATE, Value::Bool(true)));
        }
        Some(keys)
    }

    fn notes(&self, config: &ModelConfig) -> Vec<String> {
        let rope = config.position.rope();
        let note = rope.and_then(|rope| match &rope.scaling {
            Some(ScalingConfig::Yarn(yarn)) if !yarn.truncate => Some(
                "llama.cpp rounds the ends of YaRN's ramp to whole pairs (truncate), as for any gpt-oss: its logits differ slightly".into(),
            ),
            _ => None,
        });
        note.into_iter().collect()
    }

    fn has_sinks(&self) -> bool {
        true
    }

    fn own_name(&self, part: &str) -> Option<&'static str> {
        (part == "post_attention_layernorm").then_some("post_attention_norm")
    }

    fn needs_head(&self) -> bool {
        true
    }
}
