//! A reward model that ranks pairs no better than their lengths do.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "length_bias",
        title: "length bias",
        summary: "Where the longer answer is the better one in 90 % of held-out pairs or more, the accuracy is above that of a judge by length.",
        source: "Singhal et al. 2023, A Long Way to Go, arXiv 2310.03716: rewards that follow length; the bound is a rule of thumb",
    },
    needs: &[metric::VAL_ACCURACIES, metric::VAL_LENGTH_ACCURACIES],
    judge,
};

/// Share of pairs that the longer answer wins from which on little else can be learned.
const MOST: f64 = 0.9;
/// Standard errors within which two accuracies are equal.
const ERRORS: f64 = 2.0;
/// Fewer pairs say nothing.
const PAIRS: f64 = 20.0;

fn judge(view: &View<'_>) -> Option<Finding> {
    let (accuracy, pairs) = *view.evaluated_shares(metric::VAL_ACCURACIES).last()?;
    let (by_length, _) = *view
        .evaluated_shares(metric::VAL_LENGTH_ACCURACIES)
        .last()?;
    let error = (by_length * (1.0 - by_length) / pairs.max(1.0)).sqrt();
    if by_length < MOST || pairs < PAIRS || accuracy > by_length + ERRORS * error {
        return None;
    }
    let number = human::number;
    Some(Finding::warn(
        vec![
            Signal::of(
                metric::VAL_ACCURACIES,
                accuracy,
                format!("accuracy {} on held-out pairs", number(accuracy)),
            )
            .at(view.state.step),
            Signal::of(
                metric::VAL_LENGTH_ACCURACIES,
                by_length,
                format!("{} by preferring the longer answer", number(by_length)),
            ),
        ],
        "length alone explains the accuracy: nothing else may have been learned, and a policy trained on it writes longer answers",
        "add pairs whose better answer is the shorter one, or drop pairs that differ mostly in length",
    ))
}
