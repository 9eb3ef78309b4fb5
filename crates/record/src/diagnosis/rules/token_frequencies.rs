//! The loss has reached that of a unigram model and stays there: the context is not used.

use super::{lr_too_low, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::series::Bucket;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "token_frequencies",
        title: "unigram loss",
        summary: "100 steps after the warm-up, or after the start of a branch, the loss does not lie, since the middle third of the steps, between 5 % above and 3 % below the entropy of the training tokens' frequencies; with a rate above 0.01, 8 % below it at half of the steps.",
        source: "the entropy of a unigram model: Shannon 1951, Prediction and Entropy of Printed English",
    },
    needs: &[metric::TRAIN_LOSS],
    judge,
};

/// How far above that entropy and how far below it the loss counts as equal, as shares.
const ABOVE: f64 = 0.05;
const BELOW: f64 = 0.03;
/// The same of weights whose updates are too large, at half of their steps: bigrams alone are further below.
const BELOW_LATE: f64 = 0.08;
/// Further below than this some context is used. In text whose tokens hardly depend on each other there is no more of it: a fault only
/// if the updates are too large as well.
const SOME: f64 = 0.01;
/// Updates above this share of the weights, with a rate above this one, prevent weights from settling.
const LARGE: f64 = 1e-2;

const NO_CONTEXT: &str = "it has learned token frequencies but no context";

fn judge(view: &View<'_>) -> Option<Finding> {
    let entropy = view.state.head.as_ref()?.unigram_entropy?;
    let loss = view.loss()?;
    // Slow runs reach that entropy late; their own rule reports how much too slow they are.
    let slow = lr_too_low::RULE.evaluate(view).is_some();
    let early = view.state.step < view.own_patience();
    if slow || super::lost(view) || !view.knows_only_its_text() || early {
        return None;
    }
    let updates = view.typical(metric::UPDATE_RATIO).filter(|x| *x > LARGE);
    let fast = updates.is_some() || view.lr().is_some_and(|lr| lr > LARGE);
    let head = view.state.head.as_ref()?;
    let is_late = (1..=2 * view.state.step).contains(&head.max_steps);
    let below = if fast && is_late { BELOW_LATE } else { BELOW };
    let [_, middle, last] = view.thirds(metric::TRAIN_LOSS)?;
    let (high, low) = (entropy * (1.0 + ABOVE), entropy * (1.0 - below));
    let lowest = last.min(loss.now);
    if middle > high || middle < low || lowest < low || loss.now > high {
        return None;
    }
    let text = format!(
        "train loss {} at step {}; the unigram entropy of the training tokens is {}",
        human::number(loss.now),
        human::grouped(view.state.step),
        human::number(entropy)
    );
    let mut signals = vec![Signal::of(metric::TRAIN_LOSS, loss.now, text).at(view.state.step)];
    // Means of few readings vary around that range by themselves.
    let arrived = |part: &Bucket| {
        let noise = 3.0 * loss.sigma / f64::from(part.n.max(1)).sqrt();
        let near = low - noise..=high + noise;
        part.mean().is_some_and(|mean| near.contains(&mean))
    };
    let first = view.onset(metric::TRAIN_LOSS, arrived);
    let first = first.unwrap_or(view.state.step);
    // A step's loss is that of the weights before its update: those of the step before it.
    let since = first.saturating_sub(1);
    let text = format!("it stays there since step {}", human::grouped(since));
    signals.push(Signal::of(metric::TRAIN_LOSS, loss.now, text).at(since));
    if let Some(x) = updates {
        let text = format!("updates are {x:.1e} of the weights, 1e-3 is typical");
        signals.push(Signal::of(metric::UPDATE_RATIO, x, text));
    }
    if !fast && lowest < entropy * (1.0 - SOME) {
        return Some(Finding::warn(
            signals,
            "it has learned token frequencies and little context, or the tokens of this text hardly depend on each other",
            "vary the learning rate«: -s lr=…|» by factors of 10; if the loss stays the same, there is no more to learn from this text",
        ));
    }
    // A branch that began so: its own rate is not what brought it there, and brings nothing back.
    let inherited = view.is_branch() && since <= view.state.base_step;
    let (cause, fix) = match (inherited, fast) {
        (true, _) => (
            "the branch began with weights that had learned token frequencies but no context, and continues with them",
            match view.lr() {
                Some(lr) => format!("train from the start: <learning_rate={lr:.0e}>"),
                None => "train from the start".into(),
            },
        ),
        (false, true) => (NO_CONTEXT, super::diverged::restart_with_lower_lr(view)),
        (false, false) => (
            NO_CONTEXT,
            "vary the learning rate«: -s lr=…|» by factors of 10; «run `llmtui preflight`|check positions and the attention mask»".into(),
        ),
    };
    Some(Finding::fail(signals, cause, fix))
}
