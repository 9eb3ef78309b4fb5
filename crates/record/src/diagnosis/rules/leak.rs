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
        summary: "Within the first 1,000 steps of weights that began at random, loss and entropy do not both fall below 2 % of ln V, except in SFT on answers alone.",
        source: "labels not shifted, or a non-causal mask; the margin is a rule of thumb",
    },
    needs: &[metric::TRAIN_LOSS, metric::ENTROPY],
    judge,
};

const EARLY: u64 = 1000;
const NOTHING: f64 = 0.02;

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
    if !random || view.state.step > EARLY || loss > nothing || entropy > nothing {
        return None;
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
