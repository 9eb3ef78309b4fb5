//! The loss has reached that of a unigram model and stays there: the context is not used.

use super::{lr_too_low, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "token_frequencies",
        title: "unigram loss",
        summary: "100 steps after the warm-up the loss does not lie, since the middle third of the steps, between 5 % above and 3 % below the entropy of the training tokens' frequencies.",
        source: "the entropy of a unigram model: Shannon 1951, Prediction and Entropy of Printed English",
    },
    needs: &[metric::TRAIN_LOSS],
    judge,
};

/// How far above that entropy and how far below it the loss counts as equal, as shares.
const ABOVE: f64 = 0.05;
const BELOW: f64 = 0.03;
/// Further below than this some context is used. In text whose tokens hardly depend on each other there is no more of it: a fault only
/// if the updates are too large as well.
const SOME: f64 = 0.01;
/// Updates above this share of the weights, with a rate above this one, prevent weights from settling.
const LARGE: f64 = 1e-2;

fn judge(view: &View<'_>) -> Option<Finding> {
    let entropy = view.state.head.as_ref()?.unigram_entropy?;
    let loss = view.loss()?;
    // Slow runs reach that entropy late; their own rule reports how much too slow they are.
    let slow = lr_too_low::RULE.evaluate(view).is_some();
    if slow || super::lost(view) || !view.from_scratch() || view.state.step < view.patience() {
        return None;
    }
    let [_, middle, last] = view.thirds(metric::TRAIN_LOSS)?;
    let (high, low) = (entropy * (1.0 + ABOVE), entropy * (1.0 - BELOW));
    let lowest = last.min(loss.now);
    if middle > high || lowest < low || loss.now > high {
        return None;
    }
    let text = format!(
        "train loss {} at step {}; the unigram entropy of the training tokens is {}",
        human::number(loss.now),
        human::grouped(view.state.step),
        human::number(entropy)
    );
    let mut signals = vec![Signal::of(metric::TRAIN_LOSS, loss.now, text).at(view.state.step)];
    let updates = view.typical(metric::UPDATE_RATIO).filter(|x| *x > LARGE);
    if let Some(x) = updates {
        let text = format!("updates are {x:.1e} of the weights, 1e-3 is typical");
        signals.push(Signal::of(metric::UPDATE_RATIO, x, text));
    }
    let fast = updates.is_some() || view.lr().is_some_and(|lr| lr > LARGE);
    if !fast && lowest < entropy * (1.0 - SOME) {
        return Some(Finding::warn(
            signals,
            "it has learned token frequencies and little context, or the tokens of this text hardly depend on each other",
            "vary the learning rate«: -s lr=…|» by factors of 10; if the loss stays the same, there is no more to learn from this text",
        ));
    }
    let cause = "it has learned token frequencies but no context";
    let fix = match fast {
        true => super::diverged::lower_lr(view),
        false => "vary the learning rate«: -s lr=…|» by factors of 10; «run `llmtui preflight`|check positions and the attention mask»".into(),
    };
    Some(Finding::fail(signals, cause, fix))
}
