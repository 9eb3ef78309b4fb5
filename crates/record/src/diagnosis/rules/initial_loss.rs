//! A model that is confident, and wrong, before training.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "initial_loss",
        title: "initial loss",
        summary: "Random initial weights give a first loss within 10 % and 0.5 nats of ln V, with nearly maximal entropy.",
        source: "a uniform guess has loss and entropy ln V; the margins are rules of thumb",
    },
    needs: &[metric::TRAIN_LOSS, metric::ENTROPY],
    judge,
};

/// Margin above a uniform prediction: share and nats.
const SHARE: f64 = 0.1;
const NATS: f64 = 0.5;
/// Minimum entropy of random weights, relative to ln V.
const SPREAD: f64 = 0.95;

fn judge(view: &View<'_>) -> Option<Finding> {
    let (guessing, loss) = (view.guessing()?, view.opening(metric::TRAIN_LOSS)?);
    let entropy = view.opening(metric::ENTROPY)?;
    let above = loss > guessing + (SHARE * guessing).max(NATS);
    if !view.from_scratch() || !above || entropy > SPREAD * guessing {
        return None;
    }
    let number = human::number;
    let signals = vec![
        Signal::of(
            metric::TRAIN_LOSS,
            loss,
            format!(
                "first loss {}, a uniform guess gives {}",
                number(loss),
                number(guessing)
            ),
        )
        .at(1),
        Signal::of(
            metric::ENTROPY,
            entropy,
            format!(
                "entropy {} of {}: overconfident",
                number(entropy),
                number(guessing)
            ),
        )
        .at(1),
    ];
    let cause = "initial weights are too large, or logits are scaled twice";
    let fix = "initialize with standard deviation 0.02 (0.02 / √(2 · layers) where a block writes into the residual stream)";
    Some(Finding::warn(signals, cause, fix))
}
