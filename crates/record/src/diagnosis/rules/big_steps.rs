//! Policy updates that move too far from the sampling policy: many tokens are clipped, and the others have moved far.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human::percent;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "big_steps",
        title: "update size",
        summary: "Less than 30 % of tokens are clipped, or the policy stays within 0.05 nats of the sampling policy.",
        source: "Schulman et al. 2017, arXiv 1707.06347; Huang et al. 2022, the 37 implementation details of PPO: approx_kl; the bounds are rules of thumb",
    },
    needs: &[metric::CLIP_FRACTION, metric::APPROX_KL],
    judge,
};

const MANY: f64 = 0.3;
const FAR: f64 = 0.05;

fn judge(view: &View<'_>) -> Option<Finding> {
    let (clipped, moved) = (
        view.typical(metric::CLIP_FRACTION)?,
        view.typical(metric::APPROX_KL)?,
    );
    let text = format!("{} of tokens are clipped", percent(clipped, 0));
    let signals = vec![
        Signal::of(metric::CLIP_FRACTION, clipped, text).at(view.state.step),
        Signal::of(
            metric::APPROX_KL,
            moved,
            format!("{moved:.3} nats from the sampling policy"),
        ),
    ];
    if clipped < MANY || moved < FAR {
        return Some(Finding::pass(signals));
    }
    Some(Finding::warn(
        signals,
        "updates from one rollout go beyond the clip range: most of their gradient is clipped",
        "a smaller learning rate, fewer epochs over each rollout (<num_iterations>), larger batches",
    ))
}
