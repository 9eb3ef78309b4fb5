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
/// A tuned learning rate this many times the spec's is the cause, rather than the data.
const RAISED: f64 = 1.2;

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
    // The rate that the newest rescue lowered is the one that the run diverged at.
    let lr = rescued.map(|rescue| rescue.lr.0).or_else(|| view.lr());
    let (cause, fix) = match raised(view, lr) {
        Some((own, lr)) => (
            format!("the learning rate was raised while it trained, from {own} to {lr}"),
            format!("keep it near {own}, where the run was before; raise it in small steps"),
        ),
        None => (
            "outlier batches, or a learning rate at the edge of stability".into(),
            "inspect the batches (`llmtui data batches`); start the next run with the lower rate, clipping and a longer warm-up".into(),
        ),
    };
    Some(Finding::warn(signals, cause, fix).at(format!("step {}", human::grouped(at))))
}

/// The spec's peak learning rate and a higher one that it was tuned to, for display.
fn raised(view: &View<'_>, lr: Option<f64>) -> Option<(String, String)> {
    let settings = view.state.head.as_ref()?.settings();
    let (_, own) = settings.into_iter().find(|(key, _)| *key == "lr")?;
    let lr = lr.filter(|lr| *lr > own * RAISED)?;
    Some((human::number(own), human::number(lr)))
}
