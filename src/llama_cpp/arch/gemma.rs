//! `gemma2` and `gemma3`: norms around each sub-layer, windows in most blocks, embeddings times √d_model. What follows from
//! the architecture alone does not stand in the file: gains have 1 added, and the largest model scales scores by its own
//! rule.

use super::common::{self, count, float};
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::nn::mlp::{Approximate, MlpConfig};
use crate::nn::norm::NormConfig;
use crate::nn::position::PositionConfig;
use crate::nn::{AttentionBias, ModelConfig, ModelShape, NormPlacement};

/// Base of the angles in blocks with a window (Gemma 3).
const LOCAL_THETA: f64 = 10_000.0;

fn base(keys: Keys, seen: &Seen, layers_of_27b: usize) -> Result<ModelConfig, String> {
    let config = common::read(keys, seen)?;
    let mut mlp = MlpConfig::GeGlu(Default::default());
    if let MlpConfig::GeGlu(gate) = &mut mlp {
        gate.approximate = Approximate::Tanh;
    }
    let of_model = (config.d_model as f64 / config.n_head.max(1) as f64).powf(-0.5);
    Ok(ModelConfig {
        norm: common::rms(config.norm.eps(), true),
        norm_placement: NormPlacement::Both,
        mlp,
        embedding_scale: Some((config.d_model as f64).sqrt()),
        attention_scale: (config.n_layer == layers_of_27b).then_some(of_model),
        sliding_window: Some(keys.count("attention.sliding_window")?),
        ..config
    })
}

/// Whether a model is of Gemma's kind; what the two differ in is the caller's to check.
fn is_gemma(config: &ModelConfig, shape: &ModelShape, layers_of_27b: usize) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b.abs();
    let unit_offset = matches!(&config.norm, NormConfig::RmsNorm(norm) if norm.unit_offset);
    let geglu = matches!(&config.mlp, MlpConfig::GeGlu(g) if g.approximate == Approximate::Tanh);
    let of_keys = (shape.head_dim as f64).powf(-0.5);
    let scale = match config.n_layer == layers_of_27b {
        true => (shape.d_model as f64 / shape.n_head as f64).powf(-0.5),
        false => of_keys,
    };
    unit_offset
        && geglu
        && config.norm_placement == NormPlacement::Both
        && config.attention_biases() == AttentionBias::None
        && config.moe.is_none()
        && config.sliding_window.is_some()
        && config
            .embedding_scale
            .is_some_and(|s| close(s, (shape.d_model as f64).sqrt()))
        && close(config.attention_scale.unwrap_or(of_keys), scale)
}

pub struct Gemma2;

impl Architecture for Gemma2 {
    fn name(&self) -> &'static str {
        "gemma2"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        Ok(ModelConfig {
            global_every: Some(2),
            attention_softcap: keys.number_if("attn_logit_softcapping")?,
            logit_softcap: keys.number_if("final_logit_softcapping")?,
            ..base(keys, seen, 46)?
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let own = config.global_every == Some(2)
            && !config.qk_norm
            && config
                .position
                .rope()
                .is_some_and(|r| r.local_theta.is_none() && r.scaling.is_none());
        let (scores, logits) = (config.attention_softcap?, config.logit_softcap?);
        if !own || !is_gemma(config, shape, 46) {
            return None;
        }
        let mut keys = common::write(config, shape)?;
        keys.push(("attn_logit_softcapping", float(scores)));
        keys.push(("final_logit_softcapping", float(logits)));
        keys.push(("attention.sliding_window", count(config.sliding_window?)));
        Some(keys)
    }
}

pub struct Gemma3;

impl Architecture for Gemma3 {
    fn name(&self) -> &'static str {
        "gemma3"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut config = base(keys, seen, 62)?;
        if let PositionConfig::Rope(rope) = &mut config.position {
            rope.local_theta = Some(LOCAL_THETA);
        }
        Ok(ModelConfig {
            global_every: Some(6),
            qk_norm: true,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let rope = config.position.rope()?;
        let own = config.global_every == Some(6)
            && config.qk_norm
            && config.attention_softcap.is_none()
            && config.logit_softcap.is_none()
            && rope.local_theta == Some(LOCAL_THETA);
        if !own || !is_gemma(config, shape, 62) {
            return None;
        }
        let mut keys = common::write(config, shape)?;
        keys.push(("attention.sliding_window", count(config.sliding_window?)));
        Some(keys)
    }
}
