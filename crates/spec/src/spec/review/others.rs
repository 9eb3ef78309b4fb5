//! Independent settings.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::nn::{ActivationCheckpointing, ModelConfig};

/// Warn below this head_dim.
const NARROW: usize = 16;
/// The advised head_dim, about.
const USUAL: usize = 32;

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
    // The heads of a trained model are what they are.
    if head_dim < NARROW && subject.begins_at_random() {
        list.push(poor(
            "model.n_head",
            format!("heads of {head_dim} features are too narrow to attend well"),
            wider_heads(&spec.model),
            "32 to 128 features a head in all published models",
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

/// Fewer heads that the model takes, with groups of queries as they are, or else the same ones wider.
fn wider_heads(model: &ModelConfig) -> String {
    if model.head_dim.is_some() {
        return format!("-s model.head_dim={USUAL}");
    }
    let group = (model.n_head / model.kv_heads().max(1)).max(1);
    let fewer = (1..=model.d_model / USUAL).rev().chain([1]);
    for n in fewer.filter(|n| *n < model.n_head) {
        let shared = [model.n_kv_head, Some((n / group).max(1))];
        for n_kv_head in shared {
            let fewer = ModelConfig {
                n_head: n,
                n_kv_head: n_kv_head.filter(|_| model.n_kv_head.is_some()),
                ..model.clone()
            };
            if fewer.faults().is_empty() && fewer.head_width() >= NARROW {
                let shared = match fewer.n_kv_head {
                    same if same == model.n_kv_head => String::new(),
                    other => format!(" -s model.n_kv_head={}", other.unwrap_or(n)),
                };
                return format!("-s model.n_head={n}{shared}");
            }
        }
    }
    format!("-s model.head_dim={USUAL}, or a larger model.d_model")
}
