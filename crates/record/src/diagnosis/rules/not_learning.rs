//! The loss is where it started, or above it, although the warm-up is over; or a loss over pairs is that of a coin.

use super::overfitting::{largest, risen};
use super::{diverged, initial_loss, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::scales;
use crate::diagnosis::view::{Loss, PREFERENCES, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "not_learning",
        title: "learning",
        summary: "100 steps after the warm-up, or at the end of a shorter run, the loss is at least 2 % below its start; weights that are trained already are not above it, random ones at half of their steps not clearly above ln V, and pairs not at ln 2 with an accuracy of a half; it does not rise for good together with the validation loss.",
        source: "rule of thumb; the update ratio's bands: Karpathy, CS231n",
    },
    needs: &[metric::TRAIN_LOSS],
    judge,
};

/// A gain below this share of the start, or this many standard errors, does not count.
const GAIN: f64 = 0.02;
const SIGMAS: f64 = 3.0;
/// Updates below this share of the weights have no effect: a hundredth of the least that full fine-tuning needs.
const IDLE: f64 = 1e-7;
/// And below this they are too small for randomly initialized weights.
const SMALL: f64 = 1e-5;
/// A gradient norm below this, with a loss far from 0, does not reach the weights.
const VANISHED: f64 = 1e-5;
/// Losses that start below this, in nats, may be of any kind: a policy's surrogate begins at 0 and rises.
const NEAR_ZERO: f64 = 0.02;
/// Losses per token that start above this, in nats, are of weights that know no text: single tokens' frequencies leave less, and
/// ln V of common vocabularies is 10 to 12.
const UNTRAINED: f64 = 6.0;
/// A window of a run is far above its start where each reading is by this share, and their mean by so many standard deviations.
const FAR: f64 = 0.1;
const FAR_SIGMAS: f64 = 4.0;
/// An accuracy on held-out pairs within so many standard errors of a half is that of a coin, in as many evaluations in a row.
const ERRORS: f64 = 2.0;
const EVALUATIONS: usize = 2;

fn judge(view: &View<'_>) -> Option<Finding> {
    if diverged::RULE.evaluate(view).is_some() {
        return None;
    }
    let loss = view.loss()?;
    if !view.past_patience() {
        return useless(view, loss).filter(|_| is_over(view));
    }
    flat(view, loss)
        .or_else(|| useless(view, loss).filter(|_| is_late(view)))
        .or_else(|| at_chance(view, loss))
        .or_else(|| worse(view, loss))
        .or_else(|| undone(view, loss))
}

/// A loss at its start.
fn flat(view: &View<'_>, loss: &Loss) -> Option<Finding> {
    // Above it, the noise of the start counts as well: it is the least of the first readings.
    let above = (GAIN * loss.start).max(SIGMAS * loss.sigma);
    if !is_flat(loss) || loss.now > loss.start + above {
        return None;
    }
    let updates = view.typical(metric::UPDATE_RATIO);
    // Pretrained weights may be as good as they get: the updates must confirm it. A missing gradient always does.
    let cut_off = view.typical(metric::GRAD_NORM) == Some(0.0);
    if view.lr_is_zero() {
        return Some(stands_still(view, loss));
    }
    if !cut_off && !view.from_scratch() && updates.is_none_or(|x| x > IDLE) {
        return unknown_start(view, loss);
    }
    Some(found(view, loss, updates))
}

/// Whether a loss has not fallen since its start.
pub(super) fn is_flat(loss: &Loss) -> bool {
    // Standard error of a mean of 20.
    let noise = SIGMAS * loss.sigma / 20f64.sqrt();
    loss.start - loss.best.mean.min(loss.now) <= (GAIN * loss.start).max(noise)
}

/// Where no step changes a weight, whatever the loss is.
fn stands_still(view: &View<'_>, loss: &Loss) -> Finding {
    let signals = vec![
        of_loss(view, loss, ""),
        Signal::of(metric::LR, 0.0, "the learning rate is 0 at every step"),
    ];
    let cause = "a learning rate of 0 changes no weight";
    let fix = "check the schedule and its warm-up: steps that it counts in another unit than the trainer never leave 0";
    Finding::fail(signals, cause, fix)
}

/// A flat loss in a log that does not say what the weights began as: by the loss no text is known to them yet.
fn unknown_start(view: &View<'_>, loss: &Loss) -> Option<Finding> {
    if !view.is_unexplained(loss) || loss.start < UNTRAINED {
        return None;
    }
    let most = "a model that has learned anything of its text is below 6 nats per token";
    let signal = of_loss(view, loss, &format!(": {most}"));
    let cause = "the loss has not fallen since its first reading: the learning rate is far off, no gradient reaches the weights, or inputs do not predict the targets";
    let fix = "check that the optimizer has the model's parameters and steps, then inputs and targets (mask, shift, labels); then vary the learning rate by factors of 10";
    Some(Finding::fail(signal, cause, fix))
}

/// Weights that began at random and are still worse than a uniform guess. Where they began so the loss may fall for long, in nats and
/// in shares, and the run has learned nothing yet.
fn useless(view: &View<'_>, loss: &Loss) -> Option<Finding> {
    let (line, guessing) = (view.useless()?, view.guessing()?);
    if loss.now <= line {
        return None;
    }
    let guess = format!(", guessing gives {}", human::number(guessing));
    let mut signals = vec![of_loss(view, loss, &guess)];
    let (cause, fix) = if loss.opening > line {
        let (said, _, fix) = initial_loss::too_large(view);
        signals.extend(said);
        (
            "it began far above a uniform guess, and steps were spent on coming down: the first logits were too large",
            format!("train from the start: {fix}"),
        )
    } else {
        (
            "training made the model worse than a uniform guess: the learning rate is too high for this model",
            diverged::restart_with_lower_lr(view),
        )
    };
    Some(Finding::fail(signals, cause, fix))
}

/// Whether the run has reached its last step.
fn is_over(view: &View<'_>) -> bool {
    let head = view.state.head.as_ref();
    head.is_some_and(|head| (1..=view.state.step).contains(&head.max_steps))
}

/// Whether half of its steps are over.
fn is_late(view: &View<'_>) -> bool {
    let head = view.state.head.as_ref();
    head.is_some_and(|head| (1..=2 * view.state.step).contains(&head.max_steps))
}

/// Whether weights that were trained already have got worse: the loss is above its start, beyond the noise of both. Where every
/// reading of a part of the run was far above it, the start was no outlier, and the noise of the newest ones is what counts.
pub(in crate::diagnosis) fn is_worse(view: &View<'_>, loss: &Loss) -> bool {
    let start = loss.start;
    if start < NEAR_ZERO || view.from_scratch() || view.has_rollouts() {
        return false;
    }
    let margin = |variance: f64| (GAIN * start).max(SIGMAS * loss.sigma * variance.sqrt());
    let of_now = 1.0 / loss.n_now as f64;
    let was_far =
        loss.worst.min > start * (1.0 + FAR) && loss.worst.mean > start + FAR_SIGMAS * loss.sigma;
    let rise = loss.now - start;
    rise > margin(1.0 + of_now) || was_far && rise > margin(of_now)
}

/// A loss above its start. While it falls the run may still come back, as after warming up a rate that had decayed.
fn worse(view: &View<'_>, loss: &Loss) -> Option<Finding> {
    let goes_on = view.state.running() && !is_over(view);
    let recovers = super::direction(loss) == "falling" && goes_on;
    if recovers || !is_worse(view, loss) {
        return None;
    }
    let cause = "training has made the model worse than it was: the learning rate is too high for weights that are trained already";
    Some(Finding::warn(
        vec![of_loss(view, loss, "")],
        cause,
        diverged::lower_lr(view),
    ))
}

/// A loss that rises, and a validation loss that rises with it: the data have not become harder, the model has become worse. Where
/// nothing is held out the training loss is all there is.
fn undone(view: &View<'_>, loss: &Loss) -> Option<Finding> {
    let of_any_kind = loss.start < NEAR_ZERO || view.has_rollouts();
    if super::direction(loss) != "rising" || loss.since.is_some() || of_any_kind {
        return None;
    }
    let evaluations = view.state.evaluations.iter();
    let all: Vec<_> = evaluations.filter(|e| e.val_loss().is_finite()).collect();
    let alike = largest(&all);
    let held_out = match (risen(&alike, EVALUATIONS), all.is_empty()) {
        (Some(found), _) => {
            let [best, last] = [found.best, found.last].map(|e| human::number(e.val_loss()));
            let at = human::grouped(found.best.step);
            let text = format!("val loss {last}, its best was {best} at step {at}");
            Some(Signal::of(metric::VAL_LOSS, found.last.val_loss(), text).at(found.last.step))
        }
        (None, true) => None,
        (None, false) => return None,
    };
    let text = format!(
        "train loss {} at step {} and rising, its best was {} at step {}",
        human::number(loss.now),
        human::grouped(view.state.step),
        human::number(loss.best.mean),
        human::grouped(loss.best.last)
    );
    let signal = Signal::of(metric::TRAIN_LOSS, loss.now, text).at(view.state.step);
    let signals: Vec<Signal> = [Some(signal), held_out].into_iter().flatten().collect();
    Some(Finding::warn(
        signals,
        "training undoes what the model has learned: the learning rate is too high for it by now",
        diverged::restart_with_lower_lr(view),
    ))
}

/// A loss over pairs that is that of a coin, −log σ(0), with an accuracy on held-out pairs to match. A reference that moves brings
/// both back to a coin's.
fn at_chance(view: &View<'_>, loss: &Loss) -> Option<Finding> {
    let coin = std::f64::consts::LN_2;
    if loss.since.is_some() || !view.compares_pairs() || (loss.now - coin).abs() > GAIN * coin {
        return None;
    }
    let measured: Vec<(f64, f64)> = view.evaluated_shares(metric::VAL_ACCURACIES);
    let newest = &measured[measured.len().checked_sub(EVALUATIONS)?..];
    let by_chance = |(share, n): &(f64, f64)| (share - 0.5).abs() <= ERRORS * (0.25 / n).sqrt();
    if !newest.iter().all(by_chance) {
        return None;
    }
    let share = newest[EVALUATIONS - 1].0;
    let text = format!(
        "accuracy {} on held-out pairs, chance is 0.5",
        human::number(share)
    );
    Some(Finding::warn(
        vec![
            of_loss(view, loss, ", a coin has ln 2 = 0.6931"),
            Signal::of(metric::VAL_ACCURACIES, share, text),
        ],
        "which of the answers is chosen does not follow from them (mixed-up sides, labels by chance), or the learning rate is too low",
        "read some pairs« in the Data pane|» and check «the columns (`--map`)|which column holds the chosen answers»; if they are right, raise the learning rate«: -s lr=…|» by factors of 10",
    ))
}

/// The loss now and at the start, and what it is compared with.
fn of_loss(view: &View<'_>, loss: &Loss, against: &str) -> Signal {
    let step = view.state.step;
    let text = format!(
        "train loss {} at step {}, {}{against}",
        human::number(loss.now),
        human::grouped(step),
        loss.began()
    );
    Signal::of(metric::TRAIN_LOSS, loss.now, text).at(step)
}

fn found(view: &View<'_>, loss: &Loss, updates: Option<f64>) -> Finding {
    let guessing = match view.guessing().filter(|_| view.from_scratch()) {
        Some(x) => format!(", guessing gives {}", human::number(x)),
        None => String::new(),
    };
    let mut signals = vec![of_loss(view, loss, &guessing)];
    let gradient = view.typical(metric::GRAD_NORM);
    let vanished = gradient.is_some_and(|x| x < VANISHED);
    if let Some(x) = updates.filter(|x| *x < SMALL && !vanished) {
        let usual = usual_updates(view);
        let text = format!("updates are {x:.1e} of the weights, {usual} is typical");
        signals.push(Signal::of(metric::UPDATE_RATIO, x, text));
        return Finding::fail(signals, "the learning rate is too low", raise_lr(view));
    }
    if view.weights_are_zero() {
        let text = "all weights of the blocks are 0";
        signals.push(Signal::of(metric::WEIGHT_STD, 0.0, text));
        let cause =
            "what is multiplied by weights of 0 is 0, and so is its gradient: they stay there";
        let fix = format!(
            "give the initial weights a spread: {}",
            scales::USUAL_SPREAD
        );
        return Finding::fail(signals, cause, fix);
    }
    if let Some(x) = gradient.filter(|x| *x < VANISHED) {
        let text = format!("gradient norm {x:.1e}");
        signals.push(Signal::of(metric::GRAD_NORM, x, text));
        let cause = "no gradient reaches the weights: they are frozen, or every target is masked";
        let fix = "check «supervised tokens in the Data pane; `llmtui preflight` checks them|which tokens are supervised»";
        return Finding::fail(signals, cause, fix);
    }
    if let Some(found) = useless(view, loss) {
        return found;
    }
    let cause = "inputs do not predict the targets (mask, shift, shuffled labels), or the learning rate is far off";
    let fix = "«run `llmtui preflight`|check inputs and targets (mask, shift, labels)», then vary the learning rate«: -s lr=…|» by factors of 10";
    Finding::fail(signals, cause, fix)
}

/// The method of a run of this program whose weights were trained already, and whether it trains adapters.
fn fine_tuning<'a>(view: &View<'a>) -> Option<(&'a str, bool)> {
    let head = view.state.head.as_ref()?;
    let adapter = !head.spec["adapter"].is_null();
    let ours = !view.state.is_foreign() && !view.from_scratch();
    ours.then_some((&head.method, adapter))
}

/// How far a step moves weights, as a share of them: of preferences the least.
fn usual_updates(view: &View<'_>) -> &'static str {
    match fine_tuning(view) {
        _ if view.from_scratch() => "1e-3",
        Some((method, false)) if PREFERENCES.contains(&method) => "1e-6 to 3e-5",
        _ => "1e-5 to 1e-4",
    }
}

/// Ten times the current rate, and at least what is usual: 1e-3 for small models from random weights, of fine-tuning what the review
/// of a spec calls typical. No value where the kind of training is not known.
pub(super) fn raise_lr(view: &View<'_>) -> String {
    let usual = match fine_tuning(view) {
        _ if view.from_scratch() => 1e-3,
        Some(("reward", true)) => 1e-4,
        Some(("reward", false)) => 1e-5,
        Some((method, true)) if PREFERENCES.contains(&method) => 1e-5,
        Some((method, false)) if PREFERENCES.contains(&method) => 1e-6,
        Some((_, true)) => 2e-4,
        Some((_, false)) => 1e-5,
        None => return "raise the learning rate by factors of 10".into(),
    };
    let lr = view.lr().map_or(usual, |lr| (10.0 * lr).max(usual));
    let live = if view.state.running() {
        "« (t tunes it while it runs)|»"
    } else {
        ""
    };
    format!("raise the learning rate: <learning_rate={lr:.0e}>{live}")
}
