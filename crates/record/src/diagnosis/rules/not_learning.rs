//! The loss is where it started although the warm-up is over.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{Loss, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "not_learning",
        title: "learning",
        summary: "100 steps after the warm-up, or at the end of a shorter run, the loss is at least 2 % below its start.",
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

fn judge(view: &View<'_>) -> Option<Finding> {
    if super::diverged::RULE.evaluate(view).is_some() {
        return None;
    }
    let loss = view.loss()?;
    if !view.past_patience() {
        return None;
    }
    // Standard error of a mean of 20.
    let noise = SIGMAS * loss.sigma / 20f64.sqrt();
    let flat = loss.start - loss.best.mean.min(loss.now) <= (GAIN * loss.start).max(noise);
    if !flat || loss.now > loss.start + (GAIN * loss.start).max(noise) {
        return None;
    }
    let updates = view.typical(metric::UPDATE_RATIO);
    // Pretrained weights may be as good as they get: the updates must confirm it. A missing gradient always does.
    let cut_off = view.typical(metric::GRAD_NORM) == Some(0.0);
    if !cut_off && !view.from_scratch() && updates.is_none_or(|x| x > IDLE) {
        return None;
    }
    Some(found(view, loss, updates))
}

fn found(view: &View<'_>, loss: &Loss, updates: Option<f64>) -> Finding {
    let step = view.state.step;
    let guessing = match view.guessing().filter(|_| view.from_scratch()) {
        Some(x) => format!(", guessing gives {}", human::number(x)),
        None => String::new(),
    };
    let text = format!(
        "train loss {} at step {}, {}{guessing}",
        human::number(loss.now),
        human::grouped(step),
        loss.began()
    );
    let mut signals = vec![Signal::of(metric::TRAIN_LOSS, loss.now, text).at(step)];
    let gradient = view.typical(metric::GRAD_NORM);
    let vanished = gradient.is_some_and(|x| x < VANISHED);
    if let Some(x) = updates.filter(|x| *x < SMALL && !vanished) {
        let text = format!("updates are {x:.1e} of the weights, 1e-3 is typical");
        signals.push(Signal::of(metric::UPDATE_RATIO, x, text));
        return Finding::fail(signals, "the learning rate is too low", raise_lr(view));
    }
    if let Some(x) = gradient.filter(|x| *x < VANISHED) {
        let text = format!("gradient norm {x:.1e}");
        signals.push(Signal::of(metric::GRAD_NORM, x, text));
        let cause = "no gradient reaches the weights: they are frozen, or every target is masked";
        let fix = "check «supervised tokens in the Data pane; `llmtui preflight` checks them|which tokens are supervised»";
        return Finding::fail(signals, cause, fix);
    }
    let cause = "inputs do not predict the targets (mask, shift, shuffled labels), or the learning rate is far off";
    let fix = "«run `llmtui preflight`|check inputs and targets (mask, shift, labels)», then vary the learning rate«: -s lr=…|» by factors of 10";
    Finding::fail(signals, cause, fix)
}

/// 1e-3 suits small models; above it, ten times the current rate.
pub(super) fn raise_lr(view: &View<'_>) -> String {
    let lr = view.lr().map_or(1e-3, |lr| (10.0 * lr).max(1e-3));
    let live = if view.state.running() {
        "« (t tunes it while it runs)|»"
    } else {
        ""
    };
    format!("raise the learning rate: <learning_rate={lr:.0e}>{live}")
}
