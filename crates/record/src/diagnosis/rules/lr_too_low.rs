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
        summary: "100 steps after the warm-up, weights that began at random have an update ratio of at least 1e-4 a step, or the loss is below 0.75 ln V; 200 steps after it, they change by 1e-3 and more (2e-3, if four times the steps so far would not reach 0.75 ln V), or the loss is 10 % below ln V, or does not fall in a steady line.",
        source: "Karpathy, CS231n: about 1e-3, low below 1e-4; frequencies of single tokens leave about 0.7 ln V",
    },
    needs: &[metric::TRAIN_LOSS, metric::UPDATE_RATIO],
    judge,
};

const SMALL: f64 = 1e-4;
/// Below this, steps are small for a loss that falls in a straight line.
const SMALLISH: f64 = 1e-3;
/// Up to this, where the pace is hopeless: young weights are small, and their updates large beside them.
const OF_YOUNG: f64 = 2e-3;
/// It is where it takes this many times the steps so far to reach the token frequencies.
const HOPELESS: f64 = 4.0;
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
    let hopeless = |slow: &Slow| slow.rest > HOPELESS * view.state.step as f64;
    let slow = slope(view, loss, guessing)
        .filter(|slow| ratio < SMALLISH || ratio < OF_YOUNG && hopeless(slow));
    (ratio < SMALL && loss > FREQUENCIES * guessing || slow.is_some()).then(|| {
        let step = view.state.step;
        let small = (ratio < SMALLISH).then(|| {
            let text = format!("updates are {ratio:.1e} of the weights, 1e-3 is typical");
            Signal::of(metric::UPDATE_RATIO, ratio, text).at(step)
        });
        let mut signals = vec![
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
        signals.extend(slow.map(|slow| slow.signal));
        let signals: Vec<Signal> = small.into_iter().chain(signals).collect();
        Finding::warn(
            signals,
            "the learning rate is too low",
            super::not_learning::raise_lr(view),
        )
    })
}

/// A loss that falls steadily and too slowly.
struct Slow {
    signal: Signal,
    /// Steps to the token frequencies at its pace.
    rest: f64,
}

/// The pace if the loss falls steadily but too slowly: token frequencies, learned within a few hundred steps, are far away.
fn slope(view: &View<'_>, now: f64, guessing: f64) -> Option<Slow> {
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
    Some(Slow {
        signal: Signal::of(metric::TRAIN_LOSS, per_100, text),
        rest,
    })
}
