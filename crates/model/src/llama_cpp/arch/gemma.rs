//! `gemma`, and `gemma2` and `gemma3`: norms around each sub-layer, windows in most blocks; embeddings times √d_model in all.
//! Implied by the architecture and absent from files: gains have 1 added, and the largest model has its own
//! attention scale.

use super::common::{self, count, float, seven_digits};
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::nn::mlp::{Approximate, MlpConfig};
use crate::nn::norm::NormConfig;
use crate::nn::position::PositionConfig;
use crate::nn::{AttentionBias, ModelConfig, ModelShape, NormPlacement, QkNormOver};

/// RoPE base in windowed blocks (Gemma 3).
const LOCAL_THETA: f64 = 10_000.0;

/// The attention scale: the largest model has its own.
fn scale(config: &ModelConfig, shape: &ModelShape, layers_of_27b: usize) -> f64 {
    let of = match config.n_layer == layers_of_27b {
        true => shape.d_model / shape.n_head,
        false => shape.head_dim,
    };
    (of as f64).powf(-0.5)
}

/// Which blocks are global: every n-th, as a number or as a per-block list of booleans.
pub(super) fn pattern(keys: Keys, usual: usize) -> Result<usize, String> {
    let key = "attention.sliding_window_pattern";
    let Some(windows) = keys.flags_if(key) else {
        return Ok(keys.count_if(key)?.unwrap_or(usual));
    };
    let every = windows.iter().position(|window| !window);
    let every = every.map_or(windows.len() + 1, |at| at + 1);
    let regular = |(at, window): (usize, &bool)| *window != (at + 1).is_multiple_of(every);
    match windows.iter().enumerate().all(regular) {
        true => Ok(every),
        false => Err(format!(
            "{}.{key} is not every n-th block, the only supported pattern",
            keys.architecture
        )),
    }
}

/// What all versions have.
fn parts(keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
    let config = common::read(keys, seen)?;
    let mut mlp = MlpConfig::GeGlu(Default::default());
    if let MlpConfig::GeGlu(gate) = &mut mlp {
        gate.approximate = Approximate::Tanh;
    }
    Ok(ModelConfig {
        norm: common::rms(config.norm.eps(), true),
        mlp,
        embedding_scale: Some((config.d_model as f64).sqrt()),
        ..config
    })
}

fn base(keys: Keys, seen: &Seen, layers_of_27b: usize) -> Result<ModelConfig, String> {
    let config = parts(keys, seen)?;
    let of_model = (config.d_model as f64 / config.n_head.max(1) as f64).powf(-0.5);
    Ok(ModelConfig {
        norm_placement: NormPlacement::Both,
        attention_scale: (config.n_layer == layers_of_27b).then_some(of_model),
        ..config
    })
}

/// Whether a model has what all versions have; the differences are the caller's to check.
fn has_parts(config: &ModelConfig, shape: &ModelShape) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b.abs();
    let unit_offset = matches!(&config.norm, NormConfig::RmsNorm(norm) if norm.unit_offset);
    let geglu = matches!(&config.mlp, MlpConfig::GeGlu(g) if g.approximate == Approximate::Tanh);
    unit_offset
        && geglu
        && !config.global_first
        && !config.parallel_residual
        && config.qk_norm_over == QkNormOver::Head
        && config.attention_biases() == AttentionBias::None
        && config.moe.is_none()
        && config.residual_scale.is_none()
        && config.logit_scale.is_none()
        && config
            .embedding_scale
            .is_some_and(|s| close(s, (shape.d_model as f64).sqrt()))
}

/// Whether a model is like Gemma 2 and 3.
fn is_gemma(config: &ModelConfig, shape: &ModelShape) -> bool {
    has_parts(config, shape)
        && config.norm_placement == NormPlacement::Both
        && config.sliding_window.is_some()
}

/// Number of blocks of the 27B models of Gemma 2 and 3.
const LAYERS_OF_27B: [usize; 2] = [46, 62];

pub struct Gemma;

impl Architecture for Gemma {
    fn name(&self) -> &'static str {
        "gemma"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        parts(keys, seen)
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let unscaled = ModelConfig {
            embedding_scale: None,
            ..config.clone()
        };
        let own = has_parts(config, shape)
            && config.norm_placement == NormPlacement::Pre
            // There is no tensor for another head.
            && config.tie_embeddings
            && !config.qk_norm
            && common::rotates_alike(config, shape)
            && common::is_unscaled(&unscaled);
        own.then(|| common::write(config, shape))?
    }
}

pub struct Gemma2;

impl Architecture for Gemma2 {
    fn name(&self) -> &'static str {
        "gemma2"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        // Absent keys have the values of the published models.
        let or = |key, usual| keys.number_if(key).map(|x| x.or(Some(usual)));
        let window = keys.count_if("attention.sliding_window")?.unwrap_or(4096);
        let window = Some(window).filter(|n| *n > 0);
        Ok(ModelConfig {
            sliding_window: window,
            global_every: match window {
                Some(_) => Some(pattern(keys, 2)?),
                None => None,
            },
            attention_softcap: or("attn_logit_softcapping", 50.0)?,
            logit_softcap: or("final_logit_softcapping", 30.0)?,
            ..base(keys, seen, LAYERS_OF_27B[0])?
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
        if !own || !is_gemma(config, shape) {
            return None;
        }
        let mut keys = common::write(config, shape)?;
        keys.push(("attn_logit_softcapping", float(scores)));
        keys.push(("final_logit_softcapping", float(logits)));
        keys.push(("attention.sliding_window", count(config.sliding_window?)));
        Some(keys)
    }

    fn attention_scale(&self, config: &ModelConfig, shape: &ModelShape) -> f64 {
        scale(config, shape, LAYERS_OF_27B[0])
    }
}

pub struct Gemma3;

impl Architecture for Gemma3 {
    fn name(&self) -> &'static str {
        "gemma3"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        let mut config = base(keys, seen, LAYERS_OF_27B[1])?;
        // Without a window all blocks are global, with the same RoPE base.
        let window = keys.count_if("attention.sliding_window")?;
        let window = window.filter(|n| *n > 0);
        let local = keys.number_if("rope.freq_base_swa")?.map(seven_digits);
        if let (Some(_), PositionConfig::Rope(rope)) = (window, &mut config.position) {
            rope.local_theta = Some(local.unwrap_or(LOCAL_THETA));
        }
        Ok(ModelConfig {
            sliding_window: window,
            global_every: match window {
                Some(_) => Some(pattern(keys, 6)?),
                None => None,
            },
            logit_softcap: keys.number_if("final_logit_softcapping")?,
            qk_norm: true,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let rope = config.position.rope()?;
        let own = config.global_every == Some(6)
            && config.qk_norm
            && config.attention_softcap.is_none()
            && !common::has_factors(config)
            && rope.local_theta == Some(LOCAL_THETA);
        if !own || !is_gemma(config, shape) {
            return None;
        }
        let mut keys = common::write(config, shape)?;
        keys.push(("attention.sliding_window", count(config.sliding_window?)));
        keys.push(("rope.freq_base_swa", float(LOCAL_THETA)));
        if let Some(cap) = config.logit_softcap {
            keys.push(("final_logit_softcapping", float(cap)));
        }
        Some(keys)
    }

    fn attention_scale(&self, config: &ModelConfig, shape: &ModelShape) -> f64 {
        scale(config, shape, LAYERS_OF_27B[1])
    }
}
