//! A loss curve that departs from that of the reference run.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::series::Bucket;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "loss_curve",
        title: "loss curve",
        summary: "The normalized loss stays within 0.005 of the reference run's, or within three times the residual's noise.",
        source: "Bergsma et al. 2025, arXiv 2509.25087; the limits are rules of thumb",
    },
    needs: &[metric::COLLAPSE_RESIDUAL, metric::COLLAPSE_NOISE],
    judge,
};

/// Of the final loss.
const LIMIT: f64 = 0.005;
const SEVERE: f64 = 0.01;
/// Of the residual where it is fitted.
const SIGMAS: f64 = 3.0;
/// Readings in a row.
const LAST: usize = 3;
/// Of the residual's whole course, for where it departed.
const PARTS: usize = 200;

fn judge(view: &View<'_>) -> Option<Finding> {
    let points = view.recent(metric::COLLAPSE_RESIDUAL);
    let noise = view.recent(metric::COLLAPSE_NOISE).last()?.value;
    let limit = LIMIT.max(SIGMAS * noise);
    let last = points.get(points.len().checked_sub(LAST)?..)?;
    let (first, now) = (last.first()?.value, last.last()?.value);
    let outside = |value: f64| value.abs() > limit && value.signum() == now.signum();
    if !last.iter().all(|point| outside(point.value)) {
        return None;
    }
    let series = view.state.series.get(metric::COLLAPSE_RESIDUAL)?;
    let (start, end) = series.steps()?;
    let parts = series.columns(start as f64, end as f64 + 1.0, PARTS);
    let departed = |part: &&Bucket| part.mean().is_some_and(outside);
    let since = parts.iter().rev().flatten().take_while(departed).last();
    let since = since.map_or(last[0].step, |part| part.first);
    let from_the_start = since == start;
    let said = format!(
        "the loss is {now:+.3} of the final loss off the reference's curve, limit {limit:.3}"
    );
    let signals = vec![
        Signal::of(metric::COLLAPSE_RESIDUAL, now, said).at(view.state.step),
        Signal::of(
            metric::COLLAPSE_NOISE,
            noise,
            format!("noise {noise:.4}; outside since step {}", since),
        ),
    ];
    let (cause, fix) = match (from_the_start, now > 0.0) {
        (true, _) => (
            "the curve has another shape: schedule, tokens per parameter or lr · weight_decay · steps differ from the reference's",
            "compare with a run that has the same ones",
        ),
        (false, true) => (
            "a numerical fault, bad data, or another batch or learning rate since a restart",
            "look at validation loss, gradient norm and data where it began« (x and b on the loss chart)|»; roll back to a checkpoint before it",
        ),
        (false, false) => (
            "the data became easier or repeat, or the reference trained worse than it could",
            "see whether the validation loss falls as well; if it does not, the run memorizes",
        ),
    };
    let severe = now > SEVERE && now >= first && !from_the_start;
    Some(match severe {
        true => Finding::fail(signals, cause, fix),
        false => Finding::warn(signals, cause, fix),
    })
}
