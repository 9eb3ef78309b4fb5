//! Early stopping that cannot act: too few evaluations come before the last step.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::{counted, grouped};

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, steps) = (subject.spec, subject.spec.train.max_steps);
    let Some(patience) = spec.eval.patience else {
        return Vec::new();
    };
    // With epochs the number of steps is not known before the data are.
    let known = spec.train.epochs.is_none() || subject.sizes.pass_tokens.is_some();
    let decisions = spec.decisions();
    // The first is a new best whatever it measures.
    if !known || decisions > patience {
        return Vec::new();
    }
    let by_task = spec.is_decided_by_task();
    let key = if by_task { "eval.task_every" } else { "eval.every" };
    vec![poor(
        "eval.patience",
        format!(
            "early stopping cannot act: eval.patience={} needs {} before the last step, and of {} there {}",
            grouped(patience),
            counted(patience.saturating_add(1), "evaluation"),
            counted(steps, "step"),
            match decisions {
                0 => "is none".to_string(),
                1 => "is 1".to_string(),
                n => format!("are {}", grouped(n)),
            }
        ),
        match often_enough(subject, patience) {
            0 if decisions > 1 => format!("-s eval.patience={}", decisions - 1),
            0 => "remove eval.patience, or train for more steps".into(),
            every => format!("-s {key}={every}, or a smaller eval.patience"),
        },
        "early stopping: Prechelt 1998",
    )]
}

/// The longest interval at which enough evaluations come before the last step; 0 where none does.
fn often_enough(subject: &Subject<'_>, patience: u64) -> u64 {
    let spec = subject.spec;
    let wanted = patience.saturating_add(1) - u64::from(spec.decides_at_start());
    spec.train.max_steps.saturating_sub(1) / wanted.max(1)
}
