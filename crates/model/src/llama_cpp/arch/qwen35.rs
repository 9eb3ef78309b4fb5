//! `qwen35`: Qwen 3.5's text model, gated delta nets in most blocks and gated attention in the others (llama.cpp,
//! src/models/qwen35.cpp and `Qwen3_5TextModel` of its conversion script); with experts `qwen35moe`, and `qwen3next`. The decay rates are stored as −exp(A_log), and heads of
//! values in another order where they share keys, but for `qwen3next`: see `names`. Blocks that predict tokens further ahead are left out.

use super::common::{self, RMS_EPS, count};
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::gguf::{Array, Value};
use crate::nn::mixer::{GatedDeltaNetConfig, MAX_BLOCKS, MixerConfig, attention_keys};
use crate::nn::mlp::MlpConfig;
use crate::nn::norm::NormConfig;
use crate::nn::{AttentionBias, ModelConfig, ModelShape, MoeConfig, NormPlacement, QkNormOver};

pub struct Qwen35 {
    name: &'static str,
    has_experts: bool,
    /// Of Qwen3-Next, whose pairs of features have no sections.
    is_next: bool,
}

pub const QWEN35: Qwen35 = Qwen35 {
    name: "qwen35",
    has_experts: false,
    is_next: false,
};
pub const QWEN35_MOE: Qwen35 = Qwen35 {
    name: "qwen35moe",
    has_experts: true,
    is_next: false,
};
pub const QWEN3_NEXT: Qwen35 = Qwen35 {
    name: "qwen3next",
    has_experts: true,
    is_next: true,
};

/// The `model_type` of Qwen3-Next.
const NEXT: &str = "qwen3_next";

/// llama.cpp's own where the file has no such key.
const EVERY: usize = 4;
const INTERVAL: &str = "full_attention_interval";
/// Blocks without attention, one flag each.
const RECURRENT: &str = "attention.recurrent_layers";
const CONV_LEN: &str = "ssm.conv_kernel";
const KEY_DIM: &str = "ssm.state_size";
const KEY_HEADS: &str = "ssm.group_count";
const VALUE_HEADS: &str = "ssm.time_step_rank";
const VALUES: &str = "ssm.inner_size";

impl Architecture for Qwen35 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let config = common::read_normed(keys, seen, common::rms(keys.number(RMS_EPS)?, true))?;
        let n_layer = common::without_ahead(self.name, keys, config.n_layer)?;
        let every = keys.count_if(INTERVAL)?.unwrap_or(EVERY).max(1);
        let has_attention = match keys.flags_if(RECURRENT) {
            Some(flags) => match flags.get(..n_layer) {
                Some(flags) => flags.iter().map(|flag| !flag).collect(),
                None => {
                    return Err(format!(
                        "{}.{RECURRENT} has {} entries for {n_layer} blocks",
                        self.name,
                        flags.len()
                    ));
                }
            },
            // More than there are tensors are refused for that.
            None => (1..=n_layer.min(MAX_BLOCKS))
                .map(|block| block.is_multiple_of(every))
                .collect::<Vec<bool>>(),
        };
        let n_value_head = keys.count(VALUE_HEADS)?;
        let values = keys.count(VALUES)?;
        let net = GatedDeltaNetConfig {
            n_key_head: keys.count(KEY_HEADS)?,
            n_value_head,
            key_dim: keys.count(KEY_DIM)?,
            value_dim: values.checked_div(n_value_head).unwrap_or(0),
            conv_len: keys.count(CONV_LEN)?,
        };
        if net.n_key_head == 0 || net.values() != values {
            return Err(format!(
                "{}.{VALUES} {values} is not a multiple of {VALUE_HEADS} {n_value_head}, or {KEY_HEADS} is 0",
                self.name
            ));
        }
        let (attention_every, attention_blocks) = attention_keys(&has_attention);
        let mixes = has_attention.contains(&false);
        let mut config = common::with_widths(config);
        let width = config.d_ff;
        config.moe = config
            .moe
            .filter(|_| self.has_experts)
            .map(|moe| MoeConfig {
                shared_d_ff: moe.shared_d_ff.or(width),
                shared_gate: true,
                ..moe
            });
        Ok(ModelConfig {
            family: self.is_next.then(|| NEXT.into()),
            n_layer,
            qk_norm: true,
            attention_gate: true,
            mixer: mixes.then_some(MixerConfig::GatedDeltaNet(net)),
            attention_every,
            attention_blocks,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let Some(MixerConfig::GatedDeltaNet(net)) = &config.mixer else {
            return None;
        };
        let rope = config.position.rope()?;
        let is_recurrent = |layer| config.mixer(layer).is_some();
        let has_offsets = matches!(&config.norm, NormConfig::RmsNorm(norm) if norm.unit_offset);
        let fits = has_offsets
            && rope.local_theta.is_none()
            && !common::has_factors(config)
            && matches!(config.mlp, MlpConfig::SwiGlu(_))
            && config.norm_placement == NormPlacement::Pre
            && !config.parallel_residual
            && common::is_unscaled(config)
            && config.qk_norm
            && config.qk_norm_over == QkNormOver::Head
            && config.attention_gate
            && match &config.moe {
                None => !self.has_experts,
                Some(moe) => {
                    self.has_experts
                        && common::has_plain_experts(config)
                        && moe.norm_topk
                        && moe.shared_d_ff.is_some()
                        && moe.shared_gate
                }
            }
            && (!self.is_next || config.family.as_deref() == Some(NEXT))
            && config.attention_biases() == AttentionBias::None
            // One size of both in llama.cpp.
            && net.key_dim == net.value_dim
            && net.conv_len > 1
            && (0..shape.n_layer).any(|layer| !is_recurrent(layer));
        let mut keys = fits.then(|| common::write(config, shape))??;
        let sections = rope.sections(shape.head_dim);
        let sections = sections.map(|n| i32::try_from(n).unwrap_or(i32::MAX));
        let sections = sections.into_iter().chain([0]).collect();
        let recurrent: Vec<bool> = (0..shape.n_layer).map(is_recurrent).collect();
        let has_attention: Vec<bool> = recurrent.iter().map(|is| !is).collect();
        let (every, _) = attention_keys(&has_attention);
        if !self.is_next {
            let sections = Value::Array(Array::I32(sections));
            keys.push(("rope.dimension_sections", sections));
        }
        keys.extend([
            (CONV_LEN, count(net.conv_len)),
            (KEY_DIM, count(net.key_dim)),
            (KEY_HEADS, count(net.n_key_head)),
            (VALUE_HEADS, count(net.n_value_head)),
            (VALUES, count(net.values())),
            (RECURRENT, Value::Array(Array::Bool(recurrent))),
        ]);
        // For programs that do not read the list.
        keys.extend(every.map(|every| (INTERVAL, count(every))));
        Some(keys)
    }

    fn is_hybrid(&self) -> bool {
        true
    }

    fn is_grouped(&self) -> bool {
        self.is_next
    }

    fn own_name(&self, part: &str) -> Option<&'static str> {
        match part {
            "post_attention_layernorm" => Some("post_attention_norm"),
            "linear_attn.in_proj_b" | "linear_attn.in_proj_a" if self.is_next => Some("ssm_ba"),
            _ => None,
        }
    }

    fn leaves_out(&self, tensor: &str, n_layer: usize) -> bool {
        common::is_behind(tensor, n_layer)
    }
}
