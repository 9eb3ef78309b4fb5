//! Settings that stand alone.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::nn::ActivationCheckpointing;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, mut list) = (subject.spec, Vec::new());
    // A GGUF file states none.
    let theirs = spec.train.from.as_deref().map(crate::hf::dropouts);
    let theirs = theirs.and_then(Result::ok).unwrap_or_default();
    if spec.model.dropout == 0.0 && !theirs.is_empty() {
        let rates: Vec<String> = theirs.iter().map(|(key, p)| format!("{key} {p}")).collect();
        list.push(poor(
            "model.dropout",
            format!(
                "the base model's config.json sets {}, which transformers' Trainer would apply; this run uses no dropout",
                rates.join(", ")
            ),
            "set model.dropout for embeddings and residuals; attention dropout is not supported here".into(),
            "transformers applies the rates of config.json in training",
        ));
    }
    if spec.train.clip_norm == 0.0 {
        list.push(poor(
            "train.clip_norm",
            "gradients are not clipped: one bad batch can ruin hours of training".into(),
            "-s train.clip_norm=1.0".into(),
            "Pascanu et al. 2013, arXiv 1211.5063; 1.0 in GPT-3, arXiv 2005.14165",
        ));
    }
    if let ActivationCheckpointing::EveryN { n } = spec.train.activation_checkpointing
        && n >= spec.model.n_layer
    {
        list.push(poor(
            "train.activation_checkpointing",
            format!(
                "one segment of {n} blocks covers all {}: no memory is saved",
                spec.model.n_layer
            ),
            "segments of about the root of the number of blocks".into(),
            "Chen et al. 2016, arXiv 1604.06174",
        ));
    }
    let head_dim = spec.model.head_width();
    if head_dim < 16 {
        list.push(poor(
            "model.n_head",
            format!("head_dim {head_dim} is too small to attend well"),
            format!("-s model.n_head={}", (spec.model.d_model / 32).max(1)),
            "published models use head_dim 32 to 128",
        ));
    }
    if spec.checkpoint.every.is_never() && spec.train.max_steps > 1000 {
        list.push(poor(
            "checkpoint.every",
            "only the last step is saved: a crash before it loses everything".into(),
            format!("-s checkpoint.every={}", spec.train.max_steps / 10),
            "docs/reliability.md",
        ));
    }
    list
}
