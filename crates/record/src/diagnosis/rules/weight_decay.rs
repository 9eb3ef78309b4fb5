//! Weight decay that outweighs the updates.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::stats::median;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::layers::LayerRow;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "weight_decay",
        title: "weight decay",
        summary: "lr · weight_decay is below 0.5 % a step, or weights grow under large updates, or the prediction entropy is no more than 15 % above the loss; and it is below 1 % a step, or weights do not shrink.",
        source: "AdamW shrinks a weight by lr · weight_decay a step: Loshchilov & Hutter, arXiv 1711.05101; the margin is a rule of thumb",
    },
    needs: &[
        metric::TRAIN_LOSS,
        metric::ENTROPY,
        metric::UPDATE_RATIO,
        metric::WEIGHT_STD,
    ],
    judge,
};

/// The typical value.
const USUAL: f64 = 0.1;
/// Share of a weight removed in one step.
const TAKEN: f64 = 5e-3;
/// Above this share a weight has forgotten within 100 steps what they wrote: then weights that shrink are evidence enough.
const MOST: f64 = 1e-2;
/// Weights that are this small a share of their first spread have shrunk.
const SHRUNK: f64 = 0.8;
/// Updates of this share should make weights grow.
const LARGE: f64 = 1e-2;
const GROWN: f64 = 1.5;
/// Entropy above the loss by this share: less certain than correct.
const UNSURE: f64 = 0.15;

fn judge(view: &View<'_>) -> Option<Finding> {
    if view.state.step < view.patience() {
        return None;
    }
    let head = view.state.head.as_ref()?;
    let optimizer = head.spec["optimizer"].as_object()?.values().next()?;
    let decay = optimizer["weight_decay"].as_f64()?;
    let taken = view.lr()? * decay;
    if taken < TAKEN {
        return None;
    }
    let (loss, entropy) = (view.loss()?.now, view.typical_of_last(metric::ENTROPY, 20)?);
    let update = view.typical(metric::UPDATE_RATIO)?;
    let rows = view.state.layers.get(metric::WEIGHT_STD)?.rows();
    let spread =
        |row: &LayerRow| median(&row.values.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    let (first, now) = (spread(rows.first()?)?, spread(rows.last()?)?);
    let stands = update > LARGE && now < GROWN * first;
    let unsure = entropy >= (1.0 + UNSURE) * loss;
    let shrinks = taken >= MOST && now < SHRUNK * first;
    if !(stands && unsure || shrinks) {
        return None;
    }
    let number = human::number;
    let mut signals = vec![
        Signal::of(
            metric::WEIGHT_STD,
            now,
            format!(
                "the weights' standard deviation went from {} to {} under updates of {update:.1e}",
                number(first),
                number(now)
            ),
        )
        .at(view.state.step),
        Signal::of(
            metric::LR,
            taken,
            format!(
                "lr · weight_decay removes {} of each weight per step",
                human::percent(taken, 1)
            ),
        ),
    ];
    if unsure {
        let text = format!(
            "entropy {} above train loss {}: underconfident",
            number(entropy),
            number(loss)
        );
        signals.push(Signal::of(metric::ENTROPY, entropy, text));
    }
    Some(Finding::warn(
        signals,
        "weight decay removes what is learned",
        match decay > USUAL {
            true => "<weight_decay=0.1>, the typical value".into(),
            // A usual decay takes so much by its rate.
            false => super::diverged::restart_with_lower_lr(view),
        },
    ))
}
