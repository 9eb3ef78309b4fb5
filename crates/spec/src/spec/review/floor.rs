//! The final learning rate of a schedule, against its peak.

use super::{Subject, poor};
use crate::base::finding::Finding;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let spec = subject.spec;
    let lr = spec.optimizer.lr();
    // A floor above the peak is refused.
    let flat = spec
        .schedule
        .min_lr()
        .is_some_and(|floor| lr > 0.0 && floor >= lr);
    if !flat {
        return Vec::new();
    }
    let schedule = spec.schedule.entry().id;
    let lr = crate::spec::shown(&lr.into());
    let tenth = super::one_digit(spec.optimizer.lr() / 10.0);
    vec![poor(
        "schedule",
        format!("min_lr is the peak lr, {lr}: behind the warm-up the {schedule} schedule never falls"),
        format!("-s schedule.{schedule}.min_lr={tenth}"),
        "a tenth of the peak: Hoffmann et al. 2022, arXiv 2203.15556, appendix B; schedule: constant is meant to stay",
    )]
}
