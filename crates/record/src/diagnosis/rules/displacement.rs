//! Both answers of the pairs become less likely: the margin grows by forgetting.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "displacement",
        title: "chosen answers",
        summary: "While margins rise, the reward of chosen answers does not drop below −3 and below half its value of 100 steps earlier.",
        source: "likelihood displacement: Razin et al. 2024, arXiv 2410.08847; the margin is a rule of thumb",
    },
    needs: &[metric::CHOSEN, metric::MARGINS],
    judge,
};

const LOW: f64 = -3.0;

fn judge(view: &View<'_>) -> Option<Finding> {
    view.state
        .head
        .as_ref()
        .filter(|head| head.method == "dpo")?;
    let (chosen, margin) = (
        view.typical_of_last(metric::CHOSEN, 20)?,
        view.typical_of_last(metric::MARGINS, 20)?,
    );
    let begun = view.opening(metric::MARGINS)?;
    if chosen > LOW || margin <= begun || margin <= 0.0 {
        return None;
    }
    let number = human::number;
    let signals = vec![
        Signal::of(
            metric::CHOSEN,
            chosen,
            format!("reward of chosen answers {}", number(chosen)),
        )
        .at(view.state.step),
        Signal::of(
            metric::MARGINS,
            margin,
            format!("margin {}: rejected ones drop faster", number(margin)),
        ),
    ];
    let cause = "likelihood displacement: chosen answers become less likely as well";
    Some(Finding::warn(
        signals,
        cause,
        "a lower learning rate, a higher beta, or <rpo_alpha=1>, which keeps chosen answers likely",
    ))
}
