//! Randomly initialized weights that hardly change while the loss is still near that of a uniform prediction.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{FREQUENCIES, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "lr_too_low",
        title: "update ratio",
        summary: "100 steps after the warm-up, weights that began at random have an update ratio of at least 1e-4 a step, or the loss is below 0.75 ln V; 200 steps after it, they change by 1e-3 and more, or the loss is 10 % below ln V, or does not fall in a steady line.",
        source: "Karpathy, CS231n: about 1e-3, low below 1e-4; frequencies of single tokens leave about 0.7 ln V",
    },
    needs: &[metric::TRAIN_LOSS, metric::UPDATE_RATIO],
    judge,
};

const SMALL: f64 = 1e-4;
/// Below this, steps are small for a loss that falls in a straight line.
const SMALLISH: f64 = 1e-3;
/// By then, this many steps after the warm-up, a model knows at least the token frequencies.
const KNOWN: u64 = 200;
/// And is at least this share below a uniform prediction.
const SHARE: f64 = 0.1;

fn judge(view: &View<'_>) -> Option<Finding> {
    if super::lost(view) || !view.from_scratch() || view.state.step < view.patience() {
        return None;
    }
    let (loss, ratio) = (view.loss()?.now, view.typical(metric::UPDATE_RATIO)?);
    let guessing = view.guessing()?;
    // What begins far above a uniform guess comes down at any rate: `initial_loss` and `not_learning` say why it is there.
    if loss > view.useless()? {
        return None;
    }
    let slow = slope(view, loss, guessing).filter(|_| ratio < SMALLISH);
    (ratio < SMALL && loss > FREQUENCIES * guessing || slow.is_some()).then(|| {
        let step = view.state.step;
        let mut signals = vec![
            Signal::of(
                metric::UPDATE_RATIO,
                ratio,
                format!("updates are {ratio:.1e} of the weights, 1e-3 is typical"),
            )
            .at(step),
            Signal::of(
                metric::TRAIN_LOSS,
                loss,
                format!(
                    "train loss {}, a uniform guess gives {}",
                    human::number(loss),
                    human::number(guessing)
                ),
            )
            .at(step),
        ];
        signals.extend(slow);
        Finding::warn(
            signals,
            "the learning rate is too low",
            super::not_learning::raise_lr(view),
        )
    })
}

/// The pace if the loss falls steadily but too slowly: token frequencies, learned within a few hundred steps, are far away.
fn slope(view: &View<'_>, now: f64, guessing: f64) -> Option<Signal> {
    let loss = view.loss()?;
    if view.state.step < view.warmup() + KNOWN
        || now < guessing * (1.0 - SHARE)
        || loss.trend.z() > -2.0
    {
        return None;
    }
    let gained = loss.start - now;
    let per_100 = 100.0 * gained / view.state.step as f64;
    let rest = (now - FREQUENCIES * guessing) / (gained / view.state.step as f64).max(1e-12);
    let text = format!(
        "it falls by {} in 100 steps: at that pace {} more to reach unigram entropy",
        human::number(per_100),
        human::short(rest)
    );
    Some(Signal::of(metric::TRAIN_LOSS, per_100, text))
}
