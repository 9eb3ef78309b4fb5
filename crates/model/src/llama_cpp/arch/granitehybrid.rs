//! `granitehybrid`: Mamba 2 where a block has no key and value heads, attention in the others, with or without positions, and
//! Granite's scales; experts in every block, or none (llama.cpp, src/models/granite-hybrid.cpp and `GraniteHybridModel` of its
//! conversion script). Decay rates are stored as −exp(A_log). There are no biases of Mamba's projections and no limits of its steps.

use super::common::{self, KV_HEADS, RMS_EPS, count};
use super::granite::{read_scales, write_scales};
use super::{Architecture, Keys, OwnKeys, Rotated, Seen};
use crate::gguf::{Array, Value};
use crate::nn::mixer::{Mamba2Config, MixerConfig, attention_keys};
use crate::nn::position::{PositionConfig, RopeConfig};
use crate::nn::{AttentionBias, ModelConfig, ModelShape};

pub struct GraniteHybrid;

const CONV_LEN: &str = "ssm.conv_kernel";
const STATE_DIM: &str = "ssm.state_size";
const GROUPS: &str = "ssm.group_count";
const HEADS: &str = "ssm.time_step_rank";
const INNER: &str = "ssm.inner_size";
/// Whether attention rotates; it does without the key.
const ROTATES: &str = "rope.scaling.finetuned";

impl Architecture for GraniteHybrid {
    fn name(&self) -> &'static str {
        "granitehybrid"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let n_layer = keys.count("block_count")?;
        let (has_attention, n_kv_head) = common::key_heads(keys, n_layer)?;
        let norm = common::rms(keys.number(RMS_EPS)?, false);
        let config = common::read_grouped(keys, seen, norm, n_kv_head)?;
        let rotates = keys.flag_if(ROTATES) != Some(false);
        let fraction = config.position.rope().map_or(1.0, |rope| rope.fraction);
        if rotates && fraction != 1.0 {
            return Err(format!(
                "{}.rope.dimension_count: heads that rotate in part are not supported",
                self.name()
            ));
        }
        let (n_head, inner) = (keys.count(HEADS)?, keys.count(INNER)?);
        let net = Mamba2Config {
            n_head,
            head_dim: inner.checked_div(n_head).unwrap_or(0),
            state_dim: keys.count(STATE_DIM)?,
            n_group: keys.count(GROUPS)?,
            conv_len: keys.count(CONV_LEN)?,
            conv_bias: seen.has_conv_bias,
            ..Mamba2Config::default()
        };
        if net.n_group == 0 || net.inner() != inner {
            return Err(format!(
                "{}.{INNER} {inner} is not a multiple of {HEADS} {n_head}, or {GROUPS} is 0",
                self.name()
            ));
        }
        let mixes = has_attention.contains(&false);
        let (attention_every, attention_blocks) = attention_keys(&has_attention);
        read_scales(
            keys,
            ModelConfig {
                position: match rotates {
                    true => config.position,
                    false => PositionConfig::None(Default::default()),
                },
                mixer: mixes.then_some(MixerConfig::Mamba2(net)),
                attention_every,
                attention_blocks,
                ..config
            },
        )
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let Some(MixerConfig::Mamba2(net)) = &config.mixer else {
            return None;
        };
        let rotates = match config.position {
            PositionConfig::Rope(_) => true,
            PositionConfig::None(_) => false,
            _ => return None,
        };
        let rope = PositionConfig::Rope(RopeConfig::default());
        let plain = ModelConfig {
            embedding_scale: None,
            residual_scale: None,
            logit_scale: None,
            position: match rotates {
                true => config.position.clone(),
                false => rope.clone(),
            },
            ..common::without_experts(config)
        };
        let has_attention = |layer: &usize| config.mixer(*layer).is_none();
        let fits = common::is_plain(&plain)
            && common::rotates_alike(&plain, shape)
            && !config.qk_norm
            && !config.attention_gate
            && matches!(
                config.attention_biases(),
                AttentionBias::None | AttentionBias::All
            )
            && !config.bias
            && config.moe.as_ref().is_none_or(|moe| {
                common::has_plain_experts(config) && moe.norm_topk && !moe.shared_gate
            })
            && !net.bias
            && net.dt_min == 0.0
            && net.dt_max.is_none()
            && net.conv_len > 1
            // llama.cpp has no other width.
            && net.inner() == 2 * shape.d_model
            && (0..shape.n_layer).any(|layer| has_attention(&layer));
        let written = ModelConfig {
            position: plain.position,
            ..config.clone()
        };
        let mut keys = fits.then(|| common::write_one_width(&written, shape))??;
        let heads = (0..shape.n_layer).map(|layer| match has_attention(&layer) {
            true => i32::try_from(shape.n_kv_head).unwrap_or(i32::MAX),
            false => 0,
        });
        let heads = Value::Array(Array::I32(heads.collect()));
        keys.retain(|(key, _)| *key != KV_HEADS);
        keys.extend([
            (KV_HEADS, heads),
            (CONV_LEN, count(net.conv_len)),
            (STATE_DIM, count(net.state_dim)),
            (GROUPS, count(net.n_group)),
            (HEADS, count(net.n_head)),
            (INNER, count(net.inner())),
            (ROTATES, Value::Bool(rotates)),
        ]);
        write_scales(config, shape, &mut keys);
        Some(keys)
    }

    /// In the file.
    fn attention_scale(&self, config: &ModelConfig, shape: &ModelShape) -> f64 {
        let plain = (shape.head_dim as f64).powf(-0.5);
        config.attention_scale.unwrap_or(plain)
    }

    fn rotated(&self) -> Rotated {
        Rotated::Neighbours
    }

    fn is_hybrid(&self) -> bool {
        true
    }
}
