//! Memory that keeps growing.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::text::one_line;
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
    let (own, started) = fifths(view, from, last)?;
    let sum = |at: usize| own[at] + started.as_ref().map_or(0.0, |started| started[at]);
    let parts: Vec<f64> = (0..PARTS).map(sum).collect();
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
                "at least {} more in each fifth of the run",
                human::percent(growth - 1.0, 0)
            ),
        ),
    ];
    let more = |parts: &[f64]| parts[PARTS - 1] - parts[0];
    let is_own = started.is_none_or(|started| more(&own) >= more(&started));
    let whose = if is_own { None } else { started_program(view) };
    Some(match whose {
        None => Finding::warn(
            signals,
            "a memory leak; eventually the kernel kills the run",
            "stop after a checkpoint and resume (bit-identical); report it with the log",
        ),
        Some(program) => Finding::warn(
            signals,
            format!("{program} holds more and more memory; eventually the kernel kills the run"),
            "a resume from a checkpoint restarts it; fix the leak there: state kept between calls",
        ),
    })
}

/// What the run has started by its spec, whose memory is not the engine's: ranks, or programs that score.
fn started_program(view: &View<'_>) -> Option<String> {
    let spec = &view.state.head.as_ref()?.spec;
    let rewards = spec["rewards"].as_array().into_iter().flatten();
    let programs: Vec<String> = rewards
        .filter_map(|reward| reward["command"]["run"].as_str())
        .map(|command| format!("`{}`", one_line(command)))
        .collect();
    let ranks = spec["engine"]["torch"].is_object();
    match (programs.as_slice(), ranks) {
        ([], false) => None,
        ([], true) => Some("a rank of PyTorch".into()),
        ([one], false) => Some(format!("the reward program {one}")),
        (all, false) => Some(format!("one of the reward programs {}", all.join(", "))),
        (all, true) => Some(format!(
            "a rank of PyTorch or the reward program {}",
            all.join(", ")
        )),
    }
}

/// Mean main memory in each fifth of the steps: of the training process, and of those that it started (ranks, reward programs).
fn fifths(view: &View<'_>, from: u64, last: u64) -> Option<(Vec<f64>, Option<Vec<f64>>)> {
    let means = |id: &str| {
        let series = view.state.series.get(id)?;
        let buckets = series.columns(from as f64, last as f64 + 1.0, PARTS);
        Some(buckets.into_iter().map(|bucket| bucket?.mean()).collect())
    };
    let own: Option<Vec<f64>> = means(metric::machine::RSS)?;
    // A run that starts no processes has no such series; a gap in it is a gap in the sum.
    let started: Option<Option<Vec<f64>>> = means(metric::machine::STARTED);
    match started {
        Some(started) => Some((own?, Some(started?))),
        None => Some((own?, None)),
    }
}
