//! `olmo2`: OLMo 2, and as the same with a sliding window OLMo 3. Norms of what attention and the feed-forward block add, QK-norm
//! over all heads of a token. Implied by the architecture and absent from files: every fourth block is without the window, and
//! RoPE scaling leaves out those with it (llama.cpp, src/models/olmo2.cpp).

use super::common::{self, count};
use super::gemma::pattern;
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::gguf::{Array, Value};
use crate::nn::mlp::MlpConfig;
use crate::nn::norm::NormConfig;
use crate::nn::position::{PositionConfig, ScalingConfig};
use crate::nn::{AttentionBias, ModelConfig, ModelShape, NormPlacement, QkNormOver};

pub struct Olmo2;

/// Every n-th block is without a window: llama.cpp's own, which an older one takes whatever the file says.
const EVERY: usize = 4;

impl Architecture for Olmo2 {
    fn name(&self) -> &'static str {
        "olmo2"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut config = common::read(keys, seen)?;
        let window = keys.count_if("attention.sliding_window")?;
        let window = window.filter(|n| *n > 0);
        let local = keys.number_if("rope.freq_base_swa")?;
        if let (Some(_), PositionConfig::Rope(rope)) = (window, &mut config.position) {
            let local = local.map_or(rope.theta, common::seven_digits);
            let is_other = rope.scaling.is_some() || local != rope.theta;
            rope.local_theta = Some(local).filter(|_| is_other);
        }
        Ok(ModelConfig {
            norm_placement: NormPlacement::Reordered,
            qk_norm: true,
            qk_norm_over: QkNormOver::AllHeads,
            sliding_window: window,
            global_every: match window {
                Some(_) => Some(pattern(keys, EVERY)?),
                None => None,
            },
            ..config
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        if unsupported(config, shape).is_some() {
            return None;
        }
        let mut keys = common::write(config, shape)?;
        if let Some(window) = window(config, shape) {
            let windows = (0..shape.n_layer).map(|layer| config.window(layer).is_some());
            let windows = Value::Array(Array::Bool(windows.collect()));
            keys.push(("attention.sliding_window", count(window)));
            keys.push(("attention.sliding_window_pattern", windows));
        }
        Some(keys)
    }
}

/// The window, if any block has it.
fn window(config: &ModelConfig, shape: &ModelShape) -> Option<usize> {
    (0..shape.n_layer).find_map(|layer| config.window(layer))
}

/// What llama.cpp lacks for a model with a norm of OLMo 2, named by its setting; `None` for other models.
pub(in crate::llama_cpp) fn reason(config: &ModelConfig, shape: &ModelShape) -> Option<String> {
    let is_near = config.norm_placement == NormPlacement::Reordered
        || config.qk_norm_over == QkNormOver::AllHeads;
    let mut config = config.clone();
    if let PositionConfig::Rope(rope) = &mut config.position {
        *rope = rope.in_files(shape.head_dim, shape.seq_len);
    }
    let what = unsupported(&config, shape).filter(|_| is_near)?;
    Some(format!(
        "norm_placement: reordered and qk_norm_over: all_heads are olmo2's in llama.cpp, {what}"
    ))
}

/// The first setting that the architecture does not have, for [`reason`].
fn unsupported(config: &ModelConfig, shape: &ModelShape) -> Option<&'static str> {
    let Some(rope) = config.position.rope() else {
        return Some("which has rotary positions only (position: rope)");
    };
    let scaling_fits = match &rope.scaling {
        None | Some(ScalingConfig::Linear(_)) => true,
        Some(ScalingConfig::Yarn(yarn)) => (yarn.beta_fast, yarn.beta_slow) == (32.0, 1.0),
        Some(_) => false,
    };
    let has_window = window(config, shape).is_some();
    let windows_fit =
        |layer: usize| config.window(layer).is_none() == (layer + 1).is_multiple_of(EVERY);
    let local_fits = match rope.local_theta {
        Some(theta) => theta == rope.theta,
        None => rope.scaling.is_none(),
    };
    let norms = config.norm_placement == NormPlacement::Reordered
        && config.qk_norm
        && config.qk_norm_over == QkNormOver::AllHeads;
    let is_rms = matches!(&config.norm, NormConfig::RmsNorm(norm) if !norm.unit_offset);
    let conditions = [
        (norms, "which has both"),
        (is_rms, "which has norm: rmsnorm without unit_offset"),
        (
            matches!(config.mlp, MlpConfig::SwiGlu(_)),
            "which has mlp: swiglu",
        ),
        (config.moe.is_none(), "which has no experts (moe)"),
        (
            config.attention_biases() == AttentionBias::None,
            "which has no biases (bias, attention_bias)",
        ),
        (
            !config.tie_embeddings,
            "which has a head of its own (tie_embeddings: false)",
        ),
        (
            shape.n_head * shape.head_dim == shape.d_model,
            "whose heads are d_model / n_head wide (head_dim)",
        ),
        (
            config.attention_softcap.is_none() && config.logit_softcap.is_none(),
            "which has no soft caps (attention_softcap, logit_softcap)",
        ),
        (
            config.embedding_scale.is_none(),
            "which has no embedding_scale",
        ),
        (
            rope.width(shape.head_dim) == shape.head_dim,
            "which rotates whole heads (position.rope.fraction)",
        ),
        (
            scaling_fits,
            "which has position.rope.scaling: linear, or yarn with beta_fast 32 and beta_slow 1",
        ),
        (
            !has_window || (0..shape.n_layer).all(windows_fit),
            "which has a sliding_window with global_every: 4 or none",
        ),
        (
            !has_window || local_fits,
            "which rotates with theta and without scaling where there is a sliding_window (position.rope.local_theta)",
        ),
    ];
    let missing = conditions.into_iter().find(|(fits, _)| !fits);
    missing.map(|(_, what)| what)
}
