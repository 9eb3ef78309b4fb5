//! A reference that is to move, in a run that ends before it does.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::grouped;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let train = &subject.spec.train;
    let (every, steps) = (train.ref_model_sync_steps.max(1), train.max_steps);
    // The first multiple behind a cold start, in which nothing is compared.
    let first = (subject.spec.cold_start_steps() / every + 1).saturating_mul(every);
    // With epochs the number of steps is not known before the data are.
    if !train.sync_ref_model || train.epochs.is_some() || first < steps {
        return Vec::new();
    }
    vec![poor(
        "train.ref_model_sync_steps",
        format!(
            "the reference model moves for the first time after step {}, and the run has {}: no step learns by it",
            grouped(first),
            grouped(steps)
        ),
        format!("-s train.ref_model_sync_steps={}", (steps / 8).max(1)),
        "TR-DPO, arXiv 2404.09656",
    )]
}
