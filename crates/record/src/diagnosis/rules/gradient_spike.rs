//! Gradient norms far above those of the steps before them.

use super::{SPIKE_SIGMAS, diverged, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::stats::median;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::series::Point;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "gradient_spike",
        title: "gradient norm",
        summary: "After the warm-up and 100 steps no norm exceeds 10 times the median of the 50 before it that are not 0, nor 5 times together with a spike of the loss, and no more than five exceed 5 times as clipped or with such a spike; of solved tasks and of methods on pairs or rewards only those with a spike of the loss count.",
        source: "norm against its baseline: SPAM, arXiv 2501.06842; clusters pollute Adam's moments: PaLM, arXiv 2204.02311",
    },
    needs: &[metric::GRAD_NORM],
    judge,
};

/// A norm this many times its baseline is a spike; the second factor needs no second signal.
const SPIKE: f64 = 5.0;
const ALONE: f64 = 10.0;
/// Preceding norms that form the baseline; a median, which is robust to a spike among them.
const BASELINE: usize = 50;
/// Minimum number of them.
const LEAST: usize = 20;
/// More spikes than this among 200 steps are a cluster.
const CLUSTER: usize = 5;
/// Early norms fall from large to small, with or without warm-up.
const SILENCE: u64 = 100;
/// Steps within which the loss reacts.
const ANSWER: u64 = 5;

/// A norm above its baseline.
struct Spike {
    at: Point,
    /// Its ratio to the baseline, and that of what clipping leaves of it for the optimizer.
    times: f64,
    clipped: f64,
    /// The loss that reacts to it.
    answer: Option<Signal>,
    /// The loss was near 0 before it: what is left of the gradient is that of single examples.
    solved: bool,
}

fn judge(view: &View<'_>) -> Option<Finding> {
    let typical = view.typical(metric::GRAD_NORM)?;
    let norms = view.recent(metric::GRAD_NORM);
    let spikes = spikes(view, &norms);
    let Some(worst) = spikes.iter().max_by(|a, b| a.times.total_cmp(&b.times)) else {
        // Norms of a diverged run may well be steady.
        if diverged::RULE.evaluate(view).is_some() {
            return None;
        }
        // Charts show the newest step's norm; this number is a median, and is labelled so.
        let n = norms.iter().filter(|p| p.value.is_finite()).count();
        let of = view.unit();
        let text = format!("{}  steady, median of {n} {of}", human::number(typical));
        return Some(Finding::pass(Signal::of(metric::GRAD_NORM, typical, text)));
    };
    let mut signals = vec![signal(worst)];
    if spikes.len() > 1 {
        let text = format!("{} spikes in {} {}", spikes.len(), norms.len(), view.unit());
        signals.push(Signal::of(metric::GRAD_NORM, spikes.len() as f64, text));
    }
    // Once most pairs, prompts or answers are solved, a batch with an unsolved one has a large norm: without an answer of the loss
    // that is no fault.
    let rewarded = learns_from_rewards(view);
    let says = |spike: &Spike| !rewarded && !spike.solved;
    let counts = |spike: &&Spike| spike.answer.is_some() || says(spike) && spike.clipped > SPIKE;
    if spikes.iter().filter(counts).count() > CLUSTER {
        let cause = "spikes in clusters pollute the optimizer's moments";
        let fix = format!(
            "{}, or restart from a checkpoint before them",
            diverged::lower_lr(view)
        );
        return Some(Finding::warn(signals, cause, fix));
    }
    let answer = spikes.iter().find_map(|spike| spike.answer.clone());
    let is_alone = |spike: &Spike| spike.times >= ALONE && says(spike) || spike.times.is_infinite();
    let alone = spikes.iter().any(is_alone);
    if !alone && answer.is_none() {
        return Some(Finding::pass(signals));
    }
    signals.extend(answer);
    let cause = match spikes.len() {
        1 => "a single one is usually a bad batch",
        _ => "a few are usually bad batches",
    };
    let fix = "harmless if the loss recovers; otherwise inspect that step's data, or lower the clipping norm";
    Some(Finding::warn(signals, cause, fix))
}

/// Whether the loss is one over pairs or rewards, which vanishes where they are solved.
fn learns_from_rewards(view: &View<'_>) -> bool {
    let ids = [metric::REWARD, metric::CHOSEN, metric::ACCURACIES];
    ids.iter().any(|id| view.state.series.contains_key(*id))
}

fn signal(worst: &Spike) -> Signal {
    let at = human::grouped(worst.at.step);
    let text = match worst.times.is_finite() {
        true => format!(
            "{} times its baseline at step {at}",
            human::short(worst.times.round())
        ),
        false => format!("{} at step {at}", human::number(worst.at.value)),
    };
    Signal::of(metric::GRAD_NORM, worst.at.value, text).at(worst.at.step)
}

/// Norms above their baseline, after the warm-up and the first steps. Those of a cold start belong to another objective: rollouts
/// have their own baseline.
fn spikes(view: &View<'_>, norms: &[Point]) -> Vec<Spike> {
    let (settled, cold_start) = (view.warmup().max(SILENCE), view.cold_start());
    let clip_norm = view.state.settings.get("clip_norm").copied();
    let most = clip_norm
        .filter(|norm| *norm > 0.0)
        .unwrap_or(f64::INFINITY);
    let mut found = Vec::new();
    for (at, point) in norms.iter().enumerate().filter(|(_, p)| p.step > settled) {
        let before: Vec<f64> = norms[at.saturating_sub(BASELINE)..at]
            .iter()
            .filter(|p| p.step > cold_start || point.step <= cold_start)
            .map(|p| p.value)
            // A norm without a gradient, as when all rewards of a step are equal, carries no scale.
            .filter(|norm| *norm != 0.0)
            .collect();
        let Some(baseline) = median(&before).filter(|_| before.len() >= LEAST) else {
            continue;
        };
        let times = if point.value.is_nan() {
            f64::INFINITY
        } else {
            point.value / baseline
        };
        if times > SPIKE {
            let (solved, answer) = loss_spike(view, point.step).unwrap_or_default();
            found.push(Spike {
                at: *point,
                times,
                clipped: times.min(most / baseline),
                answer,
                solved,
            });
        }
    }
    found
}

/// Whether the task was solved before a step, and the loss spike at it or just after it; `None` without losses.
fn loss_spike(view: &View<'_>, step: u64) -> Option<(bool, Option<Signal>)> {
    let loss = view.loss()?;
    let losses = view.recent(metric::TRAIN_LOSS);
    let at = losses.iter().position(|p| p.step >= step)?;
    let before: Vec<f64> = losses[at.saturating_sub(LEAST)..at]
        .iter()
        .map(|p| p.value)
        .collect();
    let baseline = median(&before)?;
    let answer = losses[at..].iter().take_while(|p| p.step <= step + ANSWER);
    let worst = answer.max_by(|a, b| a.value.total_cmp(&b.value))?;
    let least = SPIKE_SIGMAS * loss.sigma.max(1e-3 * baseline);
    let jumps = worst.value > baseline + least.max(loss.least_jump(baseline));
    let answer = jumps.then(|| {
        let (from, to) = (human::number(baseline), human::number(worst.value));
        let text = format!(
            "train loss jumps from {from} to {to} at step {}",
            human::grouped(worst.step)
        );
        Signal::of(metric::TRAIN_LOSS, worst.value, text).at(worst.step)
    });
    Some((loss.is_solved(baseline), answer))
}
