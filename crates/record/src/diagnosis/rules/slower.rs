//! A drop of throughput.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::stats::median;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "slower",
        title: "speed",
        summary: "The typical speed of the last 50 steps is at least half of that of the 100 before them.",
        source: "faults of the machine: throttling, another process, swapping; the margin is a rule of thumb",
    },
    needs: &[metric::TOK_PER_SEC, metric::STEP_MS],
    judge,
};

const NOW: usize = 50;
const BEFORE: usize = 100;
const HALF: f64 = 0.5;

fn judge(view: &View<'_>) -> Option<Finding> {
    // Answer lengths vary.
    if view.state.series.contains_key(metric::REWARD) {
        return None;
    }
    let (before, now) = parts(view, metric::TOK_PER_SEC)?;
    let (quick, slow) = parts(view, metric::STEP_MS)?;
    if now >= HALF * before || slow * HALF <= quick {
        return None;
    }
    let signals = vec![
        Signal::of(
            metric::TOK_PER_SEC,
            now,
            format!(
                "{} tokens/s, {} before",
                human::short(now),
                human::short(before)
            ),
        )
        .at(view.state.step),
        Signal::of(
            metric::STEP_MS,
            slow,
            format!(
                "a step takes {} ms, {} before",
                human::number(slow),
                human::number(quick)
            ),
        ),
    ];
    let waits = view
        .typical_of_last(metric::DATA_WAIT, NOW)
        .is_some_and(|share| share > 0.2);
    let cause = match waits {
        true => "batches arrive late: the disk or the network is slow",
        false => "the CPU or GPU is throttled, shared with another process, or memory is swapped",
    };
    Some(Finding::warn(
        signals,
        cause,
        "«`llmtui doctor`, and the Hardware pane|check the hardware»: temperature, clocks, other processes",
    ))
}

fn parts(view: &View<'_>, id: &str) -> Option<(f64, f64)> {
    let values: Vec<f64> = view.recent(id).iter().map(|p| p.value).collect();
    let (older, newer) = values.split_at(values.len().checked_sub(NOW)?);
    let older = older.get(older.len().checked_sub(BEFORE)?..)?;
    Some((median(older)?, median(newer)?))
}
