//! The share of a step spent waiting for batches.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "data_wait",
        title: "data loading",
        summary: "A typical step waits less than 20 % of its time for its batches.",
        source: "rule of thumb",
    },
    needs: &[metric::DATA_WAIT],
    judge,
};

/// Share of a step.
const SHARE: f64 = 0.2;

fn judge(view: &View<'_>) -> Option<Finding> {
    let share = view.typical(metric::DATA_WAIT).filter(|x| *x > SHARE)?;
    let text = format!("{:.0} % of the time", share * 100.0);
    Some(Finding::warn(
        Signal::of(metric::DATA_WAIT, share, text),
        "the data loader is slower than training",
        "keep data on a local disk; tokenize ahead« (data.cache)|», or use a larger model per step",
    ))
}
