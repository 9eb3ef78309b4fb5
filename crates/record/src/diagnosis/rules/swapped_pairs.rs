//! Held-out pairs that are ranked the wrong way: chosen and rejected are probably swapped.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "swapped_pairs",
        title: "swapped pairs",
        summary: "Accuracy on held-out pairs is at least chance while training pairs are learned.",
        source: "swapped sides or mixed-up splits; the margins are rules of thumb",
    },
    needs: &[metric::ACCURACIES, metric::VAL_ACCURACIES],
    judge,
};

const CHANCE: f64 = 0.4;
const LEARNT: f64 = 0.6;
const EVALUATIONS: usize = 2;
/// Steps used for the typical training accuracy.
const LAST: usize = 20;

fn judge(view: &View<'_>) -> Option<Finding> {
    // Recent, like the evaluations; over the whole run it would be dominated by the beginning.
    let train = view.typical_of_last(metric::ACCURACIES, LAST)?;
    let found: Vec<f64> = view
        .recent(metric::VAL_ACCURACIES)
        .iter()
        .map(|p| p.value)
        .collect();
    let newest = &found[found.len().checked_sub(EVALUATIONS)?..];
    if train < LEARNT || newest.iter().any(|x| *x >= CHANCE) {
        return None;
    }
    let val = newest[EVALUATIONS - 1];
    let signals = vec![
        Signal::of(
            metric::VAL_ACCURACIES,
            val,
            format!(
                "accuracy {} on held-out pairs, chance is 0.5",
                human::number(val)
            ),
        )
        .at(view.state.step),
        Signal::of(
            metric::ACCURACIES,
            train,
            format!("{} on training pairs", human::number(train)),
        ),
    ];
    let cause =
        "chosen and rejected are swapped in one of the two sets, or the sets contradict each other";
    Some(Finding::warn(
        signals,
        cause,
        "read pairs of both« in the Data pane|»; check «the columns (`--map`)|which column holds the chosen answers»",
    ))
}
