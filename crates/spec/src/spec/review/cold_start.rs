//! A cold start as long as the run: no step is left for the method itself.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::grouped;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let spec = subject.spec;
    let (cold, steps) = (spec.rollout.cold_start_steps, spec.train.max_steps);
    // With epochs the number of steps is not known before the data are.
    let ends = spec.train.epochs.is_none() && cold >= steps;
    if spec.method.on_policy().is_none() || cold == 0 || !ends {
        return Vec::new();
    }
    vec![poor(
        "rollout.cold_start_steps",
        format!(
            "the cold start takes {} steps and the run has {}: none trains on the model's own completions",
            grouped(cold),
            grouped(steps)
        ),
        format!(
            "-s max_steps={} or more, or -s rollout.cold_start_steps={} for a short trial",
            cold.saturating_mul(2),
            steps / 2
        ),
        "rollout.cold_start_steps in docs/parameters.md",
    )]
}
