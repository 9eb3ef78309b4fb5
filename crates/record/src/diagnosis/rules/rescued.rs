//! Interventions of the loop's guard.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "rescued",
        title: "rescues",
        summary: "The run was not rescued from a spike, and fewer than 1 % of its updates were skipped as outliers.",
        source: "roll back and skip batches: PaLM, arXiv 2204.02311; updates skipped beyond 6 standard deviations: OLMo's SkipStep",
    },
    needs: &[metric::TRAIN_LOSS],
    judge,
};

/// Share of the steps.
const MANY: f64 = 0.01;

fn judge(view: &View<'_>) -> Option<Finding> {
    let state = view.state;
    let share = state.skipped as f64 / state.step.max(1) as f64;
    let many = state.skipped >= 5 && share > MANY;
    // A rescue that was undone does not concern the continued run.
    let rescued = state.rescued.as_ref().filter(|rescue| !rescue.undone);
    let (at, evidence) = match rescued {
        Some(rescue) => (rescue.from, rescue.words()),
        None if many => {
            let text = format!(
                "{} updates skipped, {} of the steps",
                human::grouped(state.skipped),
                human::percent(share, 1)
            );
            (state.step, text)
        }
        None => return None,
    };
    let signals = vec![Signal::of(metric::TRAIN_LOSS, state.skipped as f64, evidence).at(at)];
    let cause = "outlier batches, or a learning rate at the edge of stability";
    let fix = "inspect the batches (`llmtui data batches`); start the next run with the lower rate, clipping and a longer warm-up";
    Some(Finding::warn(signals, cause, fix).at(format!("step {}", human::grouped(at))))
}
