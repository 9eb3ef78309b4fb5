//! A reference model that is not what the policy began from.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "preference_start",
        title: "reference",
        summary: "DPO begins with margins of 0: policy and reference are the same model.",
        source: "fault R1; −log σ(0) = ln 2: Rafailov et al. 2023, arXiv 2305.18290",
    },
    needs: &[metric::LOSS, metric::MARGINS, metric::CHOSEN],
    judge,
};

const APART: f64 = 0.1;

fn judge(view: &View<'_>) -> Option<Finding> {
    let head = view
        .state
        .head
        .as_ref()
        .filter(|head| head.method == "dpo")?;
    // A resumed log may lack the first steps.
    let (first, _) = view.state.series.get(metric::MARGINS)?.steps()?;
    let (margin, loss) = (view.opening(metric::MARGINS)?, view.opening(metric::LOSS)?);
    let chosen = view.opening(metric::CHOSEN)?;
    if first > 1 || head.resumed_from.is_some() || margin.abs() < APART || chosen.abs() < APART {
        return None;
    }
    let number = human::number;
    let signals = vec![
        Signal::of(
            metric::MARGINS,
            margin,
            format!("margin {} before the first update", number(margin)),
        )
        .at(1),
        Signal::of(
            metric::LOSS,
            loss,
            format!("loss {}, ln 2 = 0.6931 is due", number(loss)),
        )
        .at(1),
    ];
    let cause = "the reference is another model than the policy began from, or sees other text (template, truncation), or dropout is on";
    Some(Finding::fail(
        signals,
        cause,
        "take the policy's own start as reference (method.dpo.reference: auto) and dropout 0",
    ))
}
