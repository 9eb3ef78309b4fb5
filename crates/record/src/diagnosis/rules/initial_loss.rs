//! A model that is confident, and wrong, before training.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::scales;
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

/// Minimum entropy of random weights, relative to ln V.
const SPREAD: f64 = 0.95;

fn judge(view: &View<'_>) -> Option<Finding> {
    let (guessing, loss) = (view.guessing()?, view.opening(metric::TRAIN_LOSS)?);
    let entropy = view.opening(metric::ENTROPY)?;
    if loss <= view.useless()? || entropy > SPREAD * guessing {
        return None;
    }
    let number = human::number;
    let mut signals = vec![
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
    let (said, cause, fix) = too_large(view);
    signals.extend(said);
    Some(Finding::warn(signals, cause, fix))
}

/// Why the first logits were too large: the setting that says so, if one does, the cause, and what to set instead.
pub(super) fn too_large(view: &View<'_>) -> (Option<Signal>, &'static str, String) {
    match scales::of_logits(view.model()) {
        Some(found) => (
            Some(Signal {
                text: found.said,
                ..Signal::default()
            }),
            "a setting of the model makes the first logits too large",
            found.change,
        ),
        None => (
            None,
            "initial weights are too large, or logits are scaled twice",
            FIX.into(),
        ),
    }
}

const FIX: &str = "initialize with standard deviation 0.02 (0.02 / √(2 · layers) where a block writes into the residual stream), and scale logits once";
