//! The trend of the training loss.

use super::{lost, metric, not_learning, token_frequencies};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{Loss, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "train_loss",
        title: "train loss",
        summary: "Train loss does not rise beyond its noise in the last quarter of the run; in logs of other programs it has fallen since its first reading.",
        source: "4 standard errors and 5 % of what was gained: rules of thumb",
    },
    needs: &[metric::TRAIN_LOSS],
    judge,
};

/// A decrease must exceed its noise by this factor.
const FALLING: f64 = 2.0;
/// A rise is an alarm and tested repeatedly, so it needs more, and must undo a share of the gain.
const RISING: f64 = 4.0;
const GAINED: f64 = 0.05;

/// `falling`, `flat` or `rising`.
pub(in crate::diagnosis) fn direction(loss: &Loss) -> &'static str {
    let gained = (loss.start - loss.best.mean).max(0.0);
    let costly = loss.trend.now - loss.best.mean > GAINED * gained;
    match loss.trend.z() {
        z if z < -FALLING => "falling",
        z if z > RISING && costly => "rising",
        _ => "flat",
    }
}

fn judge(view: &View<'_>) -> Option<Finding> {
    if lost(view) || token_frequencies::RULE.evaluate(view).is_some() {
        return None;
    }
    let loss = view.loss()?;
    let word = direction(loss);
    // Other screens show the newest step's loss; this number is a mean, and is labelled so.
    let text = format!(
        "{}  {word}, mean of {} {}",
        human::number(loss.now),
        loss.n_now,
        view.unit()
    );
    let mut signals = vec![Signal::of(metric::TRAIN_LOSS, loss.now, text).at(view.state.step)];
    let series = view.state.series.get(metric::TRAIN_LOSS)?;
    let non_finite = series.non_finite();
    if non_finite > 0 {
        let text = format!("{} not finite", human::grouped(non_finite));
        signals.push(Signal::of(metric::TRAIN_LOSS, f64::NAN, text));
    }
    if word == "rising" {
        let text = format!("its best was {}", human::number(loss.best.mean));
        signals.push(Signal::of(metric::TRAIN_LOSS, loss.best.mean, text).at(loss.best.last));
        let fix = super::diverged::lower_lr(view);
        return Some(Finding::warn(
            signals,
            "steps overshoot, or the data changed",
            fix,
        ));
    }
    // Of another program's log: it does not say what the weights began as.
    if word == "flat"
        && view.is_unexplained(loss)
        && not_learning::is_flat(loss)
        && view.past_patience()
    {
        signals.push(Signal::of(metric::TRAIN_LOSS, loss.opening, loss.began()));
        return Some(Finding::warn(
            signals,
            "the loss has not fallen since its first reading: weights that are at their best stay there, and so do weights that no update reaches",
            "check the learning rate, the parameters that the optimizer has, and the mask of the targets",
        ));
    }
    if non_finite > 0 {
        let cause = "some steps had a non-finite loss";
        return Some(Finding::warn(
            signals,
            cause,
            "a lower learning rate, or «train.precision: f32|float32»",
        ));
    }
    Some(Finding::pass(signals))
}
