//! A loss near zero before anything could have been learned: the targets are in the inputs.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "leak",
        title: "target leakage",
        summary: "Within the first 1,000 steps of weights that began at random, loss and entropy do not both fall below 2 % of ln V, except in SFT on answers alone; and while no text was read twice, the validation loss is not above ln V where the training loss is below 0.6 ln V.",
        source: "labels not shifted, or a non-causal mask; the margin is a rule of thumb",
    },
    needs: &[metric::TRAIN_LOSS, metric::ENTROPY],
    judge,
};

const EARLY: u64 = 1000;
const NOTHING: f64 = 0.02;
/// A training loss below this share of a uniform guess has learned something of its targets.
const LEARNED: f64 = 0.6;
/// A validation loss above this many uniform guesses is of a model that is sure of the wrong tokens.
const WRONG: f64 = 1.1;

fn judge(view: &View<'_>) -> Option<Finding> {
    let (loss, guessing) = (view.loss()?.now, view.guessing()?);
    let entropy = view.recent(metric::ENTROPY).last()?.value;
    let nothing = NOTHING * guessing;
    // Rollouts have no training loss: the newest is one of the cold start.
    if view.has_rollouts() {
        return None;
    }
    // Answers with one right form are learned to the end; a text is not.
    let head = view.state.head.as_ref()?;
    let of_answers = head.method == "sft" && head.unigram_entropy.is_none();
    let random = view.from_scratch() && !of_answers;
    if !random || view.state.step > EARLY {
        return None;
    }
    if loss > nothing || entropy > nothing {
        return other_targets(view, loss, guessing);
    }
    let step = view.state.series.get(metric::TRAIN_LOSS)?.last()?.step;
    let signals = vec![
        Signal::of(
            metric::TRAIN_LOSS,
            loss,
            format!(
                "train loss {} at step {}",
                human::number(loss),
                human::grouped(step)
            ),
        )
        .at(step),
        Signal::of(
            metric::ENTROPY,
            entropy,
            format!("token entropy {}", human::number(entropy)),
        ),
    ];
    let cause = "targets leak into the inputs (not shifted, or a non-causal mask), or the data are one short text";
    Some(Finding::warn(
        signals,
        cause,
        "«run `llmtui preflight` (token_shift, causal_mask); check the Data pane for repeated rows|check that targets are shifted by one token and that the mask is causal; look for repeated rows in the data»",
    ))
}

/// What is learned is wrong of held-out text, although no text was read twice: the targets are not those of the evaluation.
fn other_targets(view: &View<'_>, loss: f64, guessing: f64) -> Option<Finding> {
    let last = view.state.evaluations.iter().next_back()?;
    let val = last.val_loss();
    let is_apart = loss < LEARNED * guessing && val.is_finite() && val > WRONG * guessing;
    // A run that was better before has diverged, which has rules of its own.
    let was_better = view
        .state
        .evaluations
        .iter()
        .any(|e| e.val_loss() < guessing);
    let is_first_pass = view.state.epochs().is_some_and(|epochs| epochs < 1.0);
    if !is_apart || was_better || !is_first_pass {
        return None;
    }
    let number = human::number;
    let signals = vec![
        Signal::of(
            metric::TRAIN_LOSS,
            loss,
            format!("train loss {}", number(loss)),
        )
        .at(view.state.step),
        Signal::of(
            metric::VAL_LOSS,
            val,
            format!(
                "val loss {}, a uniform guess gives {}",
                number(val),
                number(guessing)
            ),
        )
        .at(last.step),
    ];
    Some(Finding::warn(
        signals,
        "before any text was read twice the model is sure of the wrong tokens of held-out text: training targets are not the next tokens, or the validation text is of another kind",
        "«run `llmtui preflight` (token_shift, causal_mask); compare both texts in the Data pane|check that targets are shifted by one token and that the mask is causal; compare training and validation text»",
    ))
}
