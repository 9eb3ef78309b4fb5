//! Memory that keeps growing.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "memory_growth",
        title: "memory",
        summary: "The memory of the run, with the processes that it started, does not grow by 3 % or more in each fifth of it, nor by 40 % in total.",
        source: "a leak grows steadily, a working set does not; the margins are rules of thumb",
    },
    needs: &[metric::machine::RSS],
    judge,
};

const PARTS: usize = 5;
const EACH: f64 = 1.03;
const ALL: f64 = 1.4;
/// Fewer steps are not judged: buffers fill at the beginning.
const YOUNG: u64 = 160;

fn judge(view: &View<'_>) -> Option<Finding> {
    let (first, last) = view.state.series.get(metric::machine::RSS)?.steps()?;
    if last.saturating_sub(first) < YOUNG {
        return None;
    }
    // The first fifth fills buffers.
    let from = first + (last - first) / 6;
    let parts = fifths(view, from, last)?;
    let grows = parts.windows(2).all(|pair| pair[1] > EACH * pair[0]);
    if !grows || parts[PARTS - 1] < ALL * parts[0] {
        return None;
    }
    let (begin, now) = (
        human::bytes(parts[0] as u64),
        human::bytes(parts[PARTS - 1] as u64),
    );
    let growth = parts
        .windows(2)
        .map(|pair| pair[1] / pair[0])
        .fold(f64::INFINITY, f64::min);
    let signals = vec![
        Signal::of(
            metric::machine::RSS,
            parts[PARTS - 1],
            format!("{now} in use, {begin} at step {}", human::grouped(from)),
        )
        .at(last),
        Signal::of(
            metric::machine::RSS,
            growth,
            format!(
                "at least {:.0} % more in each fifth of the run",
                100.0 * (growth - 1.0)
            ),
        ),
    ];
    let cause = "a memory leak; eventually the kernel kills the run";
    Some(Finding::warn(
        signals,
        cause,
        "stop after a checkpoint and resume (bit-identical); report it with the log",
    ))
}

/// Mean main memory in each fifth of the steps: the training process and its descendants (ranks, reward programs).
fn fifths(view: &View<'_>, from: u64, last: u64) -> Option<Vec<f64>> {
    let means = |id: &str| {
        let series = view.state.series.get(id)?;
        let buckets = series.columns(from as f64, last as f64 + 1.0, PARTS);
        Some(buckets.into_iter().map(|bucket| bucket?.mean()))
    };
    let own: Vec<f64> = means(metric::machine::RSS)?.collect::<Option<_>>()?;
    // A run without child processes has no such series; a gap in it is a gap in the sum.
    match means(metric::machine::STARTED) {
        Some(started) => own
            .into_iter()
            .zip(started)
            .map(|(own, started)| Some(own + started?))
            .collect(),
        None => Some(own),
    }
}
