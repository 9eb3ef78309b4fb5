//! Which architecture matches a model, and the conversions needed: an attention scale without a key is folded
//! into the queries, and an unsupported window limits the context.

use super::{ALL, Architecture, OwnKeys};
use crate::nn::position::{PositionConfig, ScalingConfig};
use crate::nn::{AttentionBias, ModelConfig, ModelShape};

/// An architecture, and how a model is written for it.
pub(in crate::llama_cpp) struct Chosen {
    pub architecture: &'static dyn Architecture,
    /// Keys without the architecture's prefix.
    pub keys: OwnKeys,
    /// Factor for the query weights (for their gains, with QK-norm).
    pub query_factor: f64,
    /// Features that were converted.
    pub notes: Vec<String>,
}

/// The architecture for a model, if there is one.
pub(in crate::llama_cpp) fn of(config: &ModelConfig, shape: &ModelShape) -> Option<Chosen> {
    let mut config = config.clone();
    let rope_head_dim = config.rope_head_dim();
    if let PositionConfig::Rope(rope) = &mut config.position {
        *rope = rope.in_files(rope_head_dim, shape.seq_len);
    }
    for scale in [
        &mut config.embedding_scale,
        &mut config.residual_scale,
        &mut config.logit_scale,
    ] {
        *scale = scale.filter(|scale| *scale != 1.0);
    }
    if (0..config.n_layer).all(|layer| config.mixer(layer).is_none()) {
        config.mixer = None;
    }
    as_it_is(&config, shape).or_else(|| within_the_window(&config, shape))
}

/// Takes a setting out of a config.
type Removal = fn(&mut ModelConfig);

/// Settings that few architectures have, and what is without each.
const RARE: [(&str, Removal); 20] = [
    ("model.mla", |c| c.mla = None),
    ("model.moe.n_group", |c| {
        if let Some(moe) = &mut c.moe {
            (moe.n_group, moe.top_group) = (None, None);
        }
    }),
    ("model.attention_sinks", |c| c.attention_sinks = false),
    ("model.moe.bias", |c| {
        if let Some(moe) = &mut c.moe {
            moe.bias = false;
        }
    }),
    ("model.position.rope.scaling.yarn.truncate: false", |c| {
        if let PositionConfig::Rope(rope) = &mut c.position
            && let Some(ScalingConfig::Yarn(yarn)) = &mut rope.scaling
        {
            yarn.truncate = true;
        }
    }),
    ("model.mixer", |c| c.mixer = None),
    ("model.attention_gate", |c| c.attention_gate = false),
    ("model.parallel_residual", |c| c.parallel_residual = false),
    ("model.attention_bias: output", |c| {
        if c.attention_bias == AttentionBias::Output {
            c.attention_bias = AttentionBias::None;
        }
    }),
    ("model.global_first", |c| {
        if c.global_first {
            (c.global_first, c.sliding_window, c.global_every) = (false, None, None);
        }
    }),
    ("model.residual_scale", |c| c.residual_scale = None),
    ("model.logit_scale", |c| c.logit_scale = None),
    ("model.embedding_scale", |c| c.embedding_scale = None),
    ("model.attention_softcap", |c| c.attention_softcap = None),
    ("model.logit_softcap", |c| c.logit_softcap = None),
    ("model.tie_embeddings: false", |c| c.tie_embeddings = true),
    ("model.qk_norm", |c| c.qk_norm = false),
    ("model.attention_bias", |c| {
        c.attention_bias = AttentionBias::None;
    }),
    ("model.moe", |c| c.moe = None),
    (
        "model.embedding_scale, residual_scale and logit_scale",
        |c| {
            (c.embedding_scale, c.residual_scale, c.logit_scale) = (None, None, None);
        },
    ),
];

/// The setting without which there would be an architecture for a model, if it is one of the rare ones.
pub(in crate::llama_cpp) fn obstacle(
    config: &ModelConfig,
    shape: &ModelShape,
) -> Option<&'static str> {
    let fits = |change: &Removal| {
        let mut config = config.clone();
        change(&mut config);
        of(&config, shape).is_some()
    };
    let found = RARE.iter().find(|(_, change)| fits(change));
    found.map(|(name, _)| *name)
}

fn as_it_is(config: &ModelConfig, shape: &ModelShape) -> Option<Chosen> {
    let is_hybrid = config.mixer.is_some() || config.attention_gate;
    let is_latent = config.mla.is_some();
    let has_groups = (config.moe.as_ref()).is_some_and(|moe| moe.n_group > moe.top_group);
    let has_biases = config.moe.as_ref().is_some_and(|moe| moe.bias);
    let fitting = ALL.iter().filter(|a| {
        a.is_hybrid() == is_hybrid
            && a.is_latent() == is_latent
            && (a.is_latent() || !has_groups)
            && a.has_sinks() == config.attention_sinks
            && (a.has_sinks() || !has_biases)
    });
    fitting.into_iter().find_map(|architecture| {
        let keys = architecture.write(config, shape)?;
        let usual = architecture.attention_scale(config, shape);
        let plain = (shape.head_dim as f64).powf(-0.5);
        let query_factor = config.attention_scale.unwrap_or(plain) / usual;
        let is_usual = (query_factor - 1.0).abs() < 1e-6;
        let note = || {
            format!(
                "attention scale {:.4} instead of {usual:.4}: query weights are multiplied by {query_factor:.4}",
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

/// If no token is further back than the window, the window has no effect.
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
    // Blocks with the window rotate as the others do, or would rotate differently without it.
    let local = rope.local_theta.take();
    if local.is_some_and(|theta| theta != rope.theta || rope.scaling.is_some()) {
        return None;
    }
    let mut chosen = as_it_is(&whole, &whole.shape(shape.vocab_size))?;
    if window < shape.seq_len {
        let name = chosen.architecture.name();
        chosen.notes.push(format!(
            "llama.cpp's {name} has no such sliding window: the context is limited from {} to {window} tokens, within which the model is unchanged",
            shape.seq_len
        ));
    }
    Some(chosen)
}
