//! One form for all configs of the same model, so that two can be compared.

use super::super::keys::near;
use crate::nn::mixer::attention_keys;
use crate::nn::norm::NormConfig;
use crate::nn::position::{PositionConfig, ScalingConfig};
use crate::nn::{Balancing, HeadKind, ModelConfig, ModelShape, MoeConfig};

/// The same model in canonical form: defaults filled in, equivalent settings unified, keys without effect on logits dropped.
pub fn canonical(config: &ModelConfig, shape: &ModelShape) -> ModelConfig {
    let standard = ModelConfig::default();
    let mut c = config.clone();
    c.attention_bias = config.attention_biases();
    c.attention_type = None;
    c.family = None;
    // Stated by `architectures`, in any family.
    c.head = HeadKind::Vocabulary;
    // Not in model files: only training needs it.
    c.value_head = false;
    c.n_kv_head = Some(shape.n_kv_head);
    c.head_dim = Some(shape.head_dim);
    c.d_ff = Some(shape.d_ff);
    c.vocab_size = Some(shape.vocab_size);
    c.dropout = 0.0;
    c.init_std = standard.init_std;
    let plain_scale = match config.score_scale() {
        // Of latent attention it follows from more than the width of a head.
        Some(_) if config.mla.is_some() => {
            let usual = ModelConfig {
                attention_scale: None,
                ..config.clone()
            };
            usual.score_scale().unwrap_or(1.0)
        }
        _ => (shape.head_dim as f64).powf(-0.5),
    };
    c.attention_scale = c.attention_scale.filter(|s| !near(*s, plain_scale));
    for scale in [
        &mut c.embedding_scale,
        &mut c.residual_scale,
        &mut c.logit_scale,
    ] {
        *scale = scale.filter(|s| *s != 1.0);
    }
    if let NormConfig::LayerNorm(norm) = &mut c.norm {
        norm.bias = norm.bias.filter(|bias| *bias != config.bias);
    }
    if (0..c.n_layer).all(|layer| config.window(layer).is_none()) {
        c.sliding_window = None;
    }
    if c.sliding_window.is_none() || (0..c.n_layer).all(|layer| config.window(layer).is_some()) {
        c.global_every = None;
    }
    c.global_first &= c.global_every.is_some();
    if c.mixer.is_some() {
        let has_attention: Vec<bool> = (0..c.n_layer)
            .map(|layer| config.mixer(layer).is_none())
            .collect();
        (c.attention_every, c.attention_blocks) = attention_keys(&has_attention);
        if !has_attention.contains(&false) {
            c.mixer = None;
        }
    }
    if let Some(moe) = &mut c.moe {
        let of_loss = MoeConfig::default();
        (moe.aux_loss_coef, moe.z_loss_coef) = (of_loss.aux_loss_coef, of_loss.z_loss_coef);
        moe.d_ff = Some(moe.d_ff.unwrap_or(shape.d_ff));
        moe.gate_scale = moe.gate_scale.filter(|scale| *scale != 1.0);
        if moe.n_group <= moe.top_group {
            // A token reaches all groups.
            (moe.n_group, moe.top_group) = (None, None);
        }
        if let Balancing::Bias { rate } = &mut moe.balancing {
            // How fast training moves them.
            *rate = 0.0;
        }
        let has_experts = |layer: usize| config.experts(layer).is_some();
        (moe.every, moe.dense_blocks) = MoeConfig::blocks_of(config.n_layer, has_experts);
        if config.expert_blocks() == config.n_layer {
            // No block has a dense feed-forward block of the model's own width.
            c.d_ff = moe.d_ff;
        }
    }
    let windows = c.sliding_window.is_some();
    if let PositionConfig::Rope(rope) = &mut c.position {
        let head_dim = config.rope_head_dim();
        let half = rope.width(head_dim) / 2;
        *rope = rope.in_files(head_dim, shape.seq_len);
        match &mut rope.scaling {
            Some(ScalingConfig::Yarn(yarn)) => {
                yarn.attention_factor = Some(yarn.attention_factor());
                if config.mla.is_none() {
                    // They are in that factor, and nothing else reads them.
                    (yarn.mscale, yarn.mscale_all_dim) = (None, None);
                }
            }
            Some(ScalingConfig::Longrope(long)) => {
                long.attention_factor = Some(long.attention_factor(shape.seq_len));
                for list in [&mut long.short_factor, &mut long.long_factor] {
                    if list.is_empty() {
                        list.resize(half, 1.0);
                    }
                }
            }
            _ => {}
        }
        let same_everywhere = rope.scaling.is_none() && rope.local_theta == Some(rope.theta);
        if !windows || same_everywhere {
            rope.local_theta = None;
        }
        rope.nope_every = rope.nope_every.filter(|n| *n <= c.n_layer);
    }
    c
}
