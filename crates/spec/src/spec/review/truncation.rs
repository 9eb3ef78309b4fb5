//! Completions sampled from a part of the distribution whose whole the loss is over.

use super::{Subject, poor};
use crate::base::finding::Finding;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, rollout) = (subject.spec, &subject.spec.rollout);
    if spec.method.on_policy().is_none() {
        return Vec::new();
    }
    let mut list = Vec::new();
    let mut say = |key: &str, what: String, all: &str| {
        list.push(poor(
            key,
            format!(
                "{what} are never sampled, but log-probabilities, ratios, KL and entropies are of the whole vocabulary: the gradient is not that of the policy that is sampled"
            ),
            format!("-s {key}={all}; rollout.temperature below 1 sharpens without this error"),
            "no truncation is the default in TRL, verl and OpenRLHF; the bias: huggingface/trl issue 6789; DeepSeek-V3.2, arXiv 2512.02556, 3.1",
        ));
    };
    if rollout.top_k > 0 {
        let what = format!("tokens below the {} most likely", rollout.top_k);
        say("rollout.top_k", what, "0");
    }
    if rollout.top_p < 1.0 {
        let what = format!("tokens outside of top_p {}", rollout.top_p);
        say("rollout.top_p", what, "1");
    }
    list
}
