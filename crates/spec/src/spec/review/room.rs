//! Prompts that leave a completion less room than it may have.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::grouped;

/// Share of the prompts from which on it is said: a few long ones are no mistake.
const MANY: f64 = 0.01;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, prompts) = (subject.spec, subject.sizes.long_prompts);
    let Some((long, all)) = prompts.filter(|_| spec.method.on_policy().is_some()) else {
        return Vec::new();
    };
    if long as f64 <= MANY * all as f64 {
        return Vec::new();
    }
    vec![poor(
        "rollout.max_new_tokens",
        format!(
            "{} of {} prompts leave fewer than rollout.max_new_tokens={} in model.seq_len={}: completions of theirs are cut sooner",
            grouped(long),
            grouped(all),
            grouped(spec.rollout.max_new_tokens as u64),
            grouped(spec.model.seq_len as u64)
        ),
        "raise model.seq_len, lower rollout.max_new_tokens, or leave out the longest prompts".into(),
        "a completion ends where its row does; completions/clipped_ratio counts it as truncated",
    )]
}
