//! A reference that is to move, in a run that ends before it does, or in one that early stopping may end for its moves.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::grouped;

const SOURCE: &str = "TR-DPO, arXiv 2404.09656";

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let spec = subject.spec;
    let (every, steps) = (spec.train.ref_model_sync_steps.max(1), spec.train.max_steps);
    if !spec.train.sync_ref_model {
        return Vec::new();
    }
    // The first multiple behind a cold start, in which nothing is compared.
    let first = (spec.cold_start_steps() / every + 1).saturating_mul(every);
    // With epochs the number of steps is not known before the data are.
    if spec.train.epochs.is_none() && first >= steps {
        return vec![too_late(subject, first)];
    }
    stops_for_it(subject).into_iter().collect()
}

fn too_late(subject: &Subject<'_>, first: u64) -> Finding {
    let (steps, cold) = (
        subject.spec.train.max_steps,
        subject.spec.cold_start_steps(),
    );
    let what = format!(
        "the reference model moves for the first time after step {}, and the run has {}: no step learns by it",
        grouped(first),
        grouped(steps)
    );
    // The steps after which a move still has one behind it.
    match steps.saturating_sub(cold.saturating_add(1)) {
        0 if cold > 0 => poor(
            "rollout.cold_start_steps",
            what,
            "fewer rollout.cold_start_steps, or more train.max_steps: the cold start leaves no step for it".into(),
            SOURCE,
        ),
        room => poor(
            "train.ref_model_sync_steps",
            what,
            format!(
                "-s train.ref_model_sync_steps={}",
                (steps / 8).min(room).max(1)
            ),
            SOURCE,
        ),
    }
}

/// What is measured of held-out pairs or answers is relative to the reference, but for tasks.
fn stops_for_it(subject: &Subject<'_>) -> Option<Finding> {
    let spec = subject.spec;
    let patience = spec.eval.patience?;
    if spec.method.on_policy().is_some() || spec.is_decided_by_task() {
        return None;
    }
    Some(poor(
        "eval.patience",
        format!(
            "validation readings against different references do not compare, and neither eval.patience={} nor the choice of the best \
             checkpoint knows of the reference's moves: a move may count as a loss of what was learned",
            grouped(patience)
        ),
        "remove eval.patience, or decide by a task: eval.tasks with eval.best_by".into(),
        SOURCE,
    ))
}
