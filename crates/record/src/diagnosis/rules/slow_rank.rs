//! A rank that the others wait for.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::rank_times;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "slow_rank",
        title: "ranks",
        summary: "No rank's forward passes typically take 1.25 times the median of the others.",
        source: "ranks wait for each other at every gradient: Jiang et al. 2024, MegaScale, arXiv 2402.15627; the bound is a rule of thumb",
    },
    needs: &[metric::STEP_MS],
    judge,
};

fn judge(view: &View<'_>) -> Option<Finding> {
    let millis = rank_times::newest(|id| view.typical(id));
    let (rank, times) = rank_times::slow(&millis)?;
    let text = format!("rank {rank} takes {times:.2} times as long as the others");
    Some(Finding::warn(
        Signal::of(metric::STEP_MS, millis[rank], text).at(view.state.step),
        "its GPU is throttled, shared, or of another kind: all ranks wait for the slowest",
        "run «`llmtui doctor`|nvidia-smi» on its machine: temperature, clocks, other processes; leave the machine out if it stays slow",
    ))
}
