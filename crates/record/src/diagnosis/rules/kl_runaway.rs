//! The KL from the reference grows without bound while the reward rises or completions grow: over-optimization of a reward
//! model.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "kl_runaway",
        title: "KL divergence",
        summary: "The KL divergence from the reference stays below 0.5 nats per token, or no longer grows.",
        source: "Gao et al. 2022, arXiv 2210.10760: overoptimization grows with the KL; the bound is a rule of thumb",
    },
    needs: &[metric::KL, metric::REWARD, metric::ANSWER_LENGTH],
    judge,
};

/// Nats per token.
const FAR: f64 = 0.5;
/// Growth from the middle third of the run to the last that is not settling: a KL that grows in a straight line gains 5/3, with the
/// square root of the steps 1.3.
const GROWS: f64 = 1.35;
const LONGER: f64 = 1.2;

fn judge(view: &View<'_>) -> Option<Finding> {
    if view.recent(metric::KL).len() < ENOUGH {
        return None;
    }
    let thirds = view.thirds(metric::KL)?;
    let (middle, now) = (thirds[1], thirds[2]);
    let text = format!("KL {now:.2} nats per token, {middle:.2} before");
    let signal = Signal::of(metric::KL, now, text).at(view.state.step);
    let (before, after) = view.first_and_last_third(metric::REWARD)?;
    let (short, long) = view.first_and_last_third(metric::ANSWER_LENGTH)?;
    let agrees = after > before || long > LONGER * short;
    if now < FAR || now < GROWS * middle || !agrees {
        return Some(Finding::pass(vec![signal]));
    }
    let reward = format!("mean reward {before:.2} → {after:.2}");
    let length = format!("mean length {short:.1} → {long:.1} tokens");
    Some(Finding::warn(
        vec![
            signal,
            Signal::of(metric::REWARD, after, reward),
            Signal::of(metric::ANSWER_LENGTH, long, length),
        ],
        "the policy leaves its reference fast while the reward rises or answers grow: rewards are exploited, or steps are too large",
        format!(
            "<beta:{}>, a smaller learning rate; hold answers against a verifier that the reward does not know",
            view.suggested_kl_coef()
        ),
    ))
}
