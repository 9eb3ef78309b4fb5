//! Weights that began at random and hardly move while the loss is still near guessing.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{FREQUENCIES, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "lr_too_low",
        title: "small steps",
        summary: "100 steps after the warm-up, weights that began at random change by 1e-4 and more a step, or the loss is below 0.75 ln V.",
        source: "Karpathy, CS231n: about 1e-3, low below 1e-4; frequencies of single tokens leave about 0.7 ln V",
    },
    needs: &[metric::LOSS, metric::UPDATE_RATIO],
    judge,
};

const SMALL: f64 = 1e-4;

fn judge(view: &View<'_>) -> Option<Finding> {
    if super::lost(view) || !view.from_scratch() || view.state.step < view.patience() {
        return None;
    }
    let (loss, ratio) = (view.loss()?.now, view.typical(metric::UPDATE_RATIO)?);
    let guessing = view.guessing()?;
    (ratio < SMALL && loss > FREQUENCIES * guessing).then(|| {
        let step = view.state.step;
        let signals = vec![
            Signal::of(
                metric::UPDATE_RATIO,
                ratio,
                format!("an update is {ratio:.1e} of the weights, 1e-3 is usual"),
            )
            .at(step),
            Signal::of(
                metric::LOSS,
                loss,
                format!(
                    "train loss {}, guessing gives {}",
                    human::number(loss),
                    human::number(guessing)
                ),
            )
            .at(step),
        ];
        Finding::warn(
            signals,
            "the learning rate is too low",
            super::not_learning::raise_lr(view),
        )
    })
}
