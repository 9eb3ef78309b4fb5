//! Which architecture computes a model, and what has to be done to the model so that it does: a scale of scores that no
//! key can say goes into the queries, and a window that is not computed bounds the context.

use super::{ALL, Architecture, OwnKeys};
use crate::nn::position::{PositionConfig, ScalingConfig};
use crate::nn::{ModelConfig, ModelShape};

/// An architecture, and how a model is written in it.
pub(in crate::llama_cpp) struct Chosen {
    pub architecture: &'static dyn Architecture,
    /// Keys without the architecture's name in front.
    pub keys: OwnKeys,
    /// Queries are multiplied by it (their gains, where they are normalised).
    pub query_factor: f64,
    /// What is said otherwise than the model says it.
    pub notes: Vec<String>,
}

/// The architecture that computes a model, if there is one.
pub(in crate::llama_cpp) fn of(config: &ModelConfig, shape: &ModelShape) -> Option<Chosen> {
    as_it_is(config, shape).or_else(|| within_the_window(config, shape))
}

fn as_it_is(config: &ModelConfig, shape: &ModelShape) -> Option<Chosen> {
    ALL.iter().find_map(|architecture| {
        let keys = architecture.write(config, shape)?;
        let usual = architecture.attention_scale(config, shape);
        let plain = (shape.head_dim as f64).powf(-0.5);
        let query_factor = config.attention_scale.unwrap_or(plain) / usual;
        let is_usual = (query_factor - 1.0).abs() < 1e-6;
        let note = || {
            format!(
                "scores are scaled by {:.4} instead of {usual:.4}: the queries' weights are multiplied by {query_factor:.4}",
                usual * query_factor
            )
        };
        Some(Chosen {
            architecture: *architecture,
            keys,
            query_factor: if is_usual { 1.0 } else { query_factor },
            notes: (!is_usual)
                .then(note)
                .into_iter()
                .chain(architecture.notes(config))
                .collect(),
        })
    })
}

/// Where no token is further back than the window, the window does nothing.
fn within_the_window(config: &ModelConfig, shape: &ModelShape) -> Option<Chosen> {
    let window = config.sliding_window?;
    let mut whole = ModelConfig {
        sliding_window: None,
        global_every: None,
        seq_len: window.min(shape.seq_len),
        ..config.clone()
    };
    let PositionConfig::Rope(rope) = &mut whole.position else {
        return None;
    };
    if let Some(ScalingConfig::Yarn(yarn)) = &mut rope.scaling {
        let length = (shape.seq_len as f64 / yarn.factor) as usize;
        yarn.original_len = yarn.original_len.or(Some(length));
    }
    let mut chosen = as_it_is(&whole, &whole.shape(shape.vocab_size))?;
    if window < shape.seq_len {
        let name = chosen.architecture.name();
        chosen.notes.push(format!(
            "llama.cpp's {name} has no sliding window: the context is cut from {} to {window} tokens, within which the model is the same",
            shape.seq_len
        ));
    }
    Some(chosen)
}
