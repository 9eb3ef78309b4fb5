//! Two signals of a learning rate that is too high: the loss rises or spikes, and updates or gradients grow with it. One of
//! them alone is not enough: healthy runs may be clipped at every step.

use super::{SPIKE_SIGMAS, lost, metric, train_loss};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::stats::median;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, Loss, View};
use crate::run::layers::LayerRow;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "lr_too_high",
        title: "learning rate",
        summary: "The loss does not rise or spike while updates exceed 1 % of the weights, gradients grow or every step is clipped; weights and activations do not grow beyond 6 and 100 times their initial size under such updates (more in long runs, with the square root of the steps).",
        source: "update ratio: Karpathy, CS231n (1e-3; alarm at 1e-2); spikes of 7 standard deviations: OLMo 2, arXiv 2501.00656",
    },
    needs: &[metric::TRAIN_LOSS],
    judge,
};

/// An update above this share of the weights.
const LARGE: f64 = 1e-2;
/// The gradient norm's newer half relative to its older one.
const GROWTH: f64 = 1.5;
/// Share of steps whose gradient was clipped.
const CLIPPED: f64 = 0.9;
/// More spikes of the loss than this are a cluster.
const SPIKES: usize = 5;
/// Preceding losses that a spike is measured against.
const BEFORE: usize = 10;
/// Growth of the weights' spread and of the activations since the first probe, which together mean that steps are far too
/// large: healthy runs show about 5 and 20 by then.
const WEIGHTS: f64 = 6.0;
const ACTIVATIONS: f64 = 100.0;
/// Consecutive probes.
const LOOKS: usize = 3;
/// Minimum noise of a run, as a share of its loss.
const QUIET: f64 = 1e-3;

fn judge(view: &View<'_>) -> Option<Finding> {
    if lost(view) || view.state.step <= view.warmup() {
        return None;
    }
    let mut signals: Vec<Signal> = instability(view, view.loss()?).into_iter().collect();
    if signals.is_empty() {
        signals = oversized_updates(view)?;
    } else {
        signals.extend(
            updates(view)
                .or_else(|| gradients(view))
                .or_else(|| clipping(view)),
        );
    }
    (signals.len() > 1).then(|| {
        Finding::warn(
            signals,
            "the learning rate is too high: steps overshoot",
            super::diverged::lower_lr(view),
        )
    })
}

/// First signal: the loss rises, or spikes in clusters.
fn instability(view: &View<'_>, loss: &Loss) -> Option<Signal> {
    if train_loss::direction(loss) == "rising" {
        let (before, now) = (
            human::number(loss.trend.before),
            human::number(loss.trend.now),
        );
        let text = format!("train loss rises from {before} to {now}");
        return Some(Signal::of(metric::TRAIN_LOSS, loss.trend.now, text).at(view.state.step));
    }
    let points = view.recent(metric::TRAIN_LOSS);
    let losses: Vec<f64> = points.iter().map(|p| p.value).collect();
    // Relative to the median of those just before it, so that a steep fall has none.
    let spikes = losses
        .windows(BEFORE + 1)
        .filter(|part| {
            let (value, before) = (part[BEFORE], median(&part[..BEFORE]));
            let least = |x: f64| (SPIKE_SIGMAS * loss.sigma.max(QUIET * x)).max(loss.least_jump(x));
            before.is_some_and(|x| value > x + least(x))
        })
        .count();
    (spikes > SPIKES).then(|| {
        let text = format!(
            "{spikes} spikes of the loss in {} {}",
            losses.len(),
            view.unit()
        );
        Signal::of(metric::TRAIN_LOSS, spikes as f64, text).at(view.state.step)
    })
}

/// Without instability: large updates have blown up weights and activations, and learning is slower than it could be.
fn oversized_updates(view: &View<'_>) -> Option<Vec<Signal>> {
    let growth = |id: &str| {
        let rows = view.state.layers.get(id)?.rows();
        let middle =
            |row: &LayerRow| median(&row.values.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
        let first = middle(rows.first()?).filter(|x| *x > 0.0)?;
        // The least of three probes.
        let newest = rows
            .get(rows.len().checked_sub(LOOKS)?..)?
            .iter()
            .filter_map(middle);
        Some(newest.reduce(f64::min)? / first)
    };
    let young = view.state.step < view.patience();
    if young || !view.from_scratch() {
        return None;
    }
    // Steps of one size move weights away from their start as the square root of their number, in healthy runs too.
    let age = view.state.step as f64 / (2 * view.patience()).max(1) as f64;
    let allowed = age.sqrt().max(1.0);
    let update = updates(view)?;
    let weights = growth(metric::WEIGHT_STD).filter(|times| *times > allowed * WEIGHTS)?;
    let activations = growth(metric::ACT_RMS).filter(|times| *times > allowed * ACTIVATIONS)?;
    Some(vec![
        update.at(view.state.step),
        Signal::of(
            metric::ACT_RMS,
            activations,
            format!(
                "activations are {} times their initial size",
                human::short(activations)
            ),
        ),
        Signal::of(
            metric::WEIGHT_STD,
            weights,
            format!(
                "the weights' standard deviation {} times",
                human::short(weights)
            ),
        ),
    ])
}

fn updates(view: &View<'_>) -> Option<Signal> {
    let ratio = view.typical(metric::UPDATE_RATIO)?;
    (ratio > LARGE).then(|| {
        let text = format!("updates are {ratio:.1e} of the weights, 1e-3 is typical");
        Signal::of(metric::UPDATE_RATIO, ratio, text)
    })
}

fn gradients(view: &View<'_>) -> Option<Signal> {
    let norms: Vec<f64> = view
        .recent(metric::GRAD_NORM)
        .iter()
        .map(|p| p.value)
        .collect();
    let (older, newer) = norms.split_at(norms.len() / 2);
    let (before, now) = (median(older)?, median(newer)?);
    (older.len() >= ENOUGH && now > GROWTH * before).then(|| {
        let (before, at) = (human::number(before), human::number(now));
        let text = format!("gradient norm grows from {before} to {at}");
        Signal::of(metric::GRAD_NORM, now, text)
    })
}

fn clipping(view: &View<'_>) -> Option<Signal> {
    let flags = view.recent(metric::CLIPPED);
    let share = flags.iter().map(|p| p.value).sum::<f64>() / flags.len().max(1) as f64;
    (flags.len() >= ENOUGH && share > CLIPPED).then(|| {
        let text = format!("{} of the steps are clipped", human::percent(share, 0));
        Signal::of(metric::CLIPPED, share, text)
    })
}
