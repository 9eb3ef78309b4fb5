//! Completions that were sampled from another distribution than the one that is trained.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "sampler_mismatch",
        title: "sampler",
        summary: "On fresh completions the sampler's log-probabilities typically differ from the trainer's by at most 0.02 nats.",
        source: "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training; the bound is a rule of thumb",
    },
    needs: &[metric::LOGP_DIFFERENCE],
    judge,
};

/// Nats per token. bf16 leaves a few thousandths.
const FAR: f64 = 0.02;

fn judge(view: &View<'_>) -> Option<Finding> {
    let apart = view.typical(metric::LOGP_DIFFERENCE).filter(|x| *x > FAR)?;
    let text = format!("log-probabilities {apart:.3} nats apart");
    Some(Finding::warn(
        Signal::of(metric::LOGP_DIFFERENCE, apart, text).at(view.state.step),
        "completions are sampled with other kernels, another dtype or another temperature than they are trained with, or dropout is on: training is off-policy from the first update",
        "sample and train in one dtype«: -s precision=f32|», turn dropout off, or take fewer steps per rollout",
    ))
}
