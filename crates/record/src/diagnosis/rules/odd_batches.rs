//! Single batches that differ from the rest.

use super::{SPIKE_SIGMAS, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::stats::median;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{UNSOLVED_ONE, View};
use std::collections::BTreeMap;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "odd_batches",
        title: "odd batches",
        summary: "Fewer than three of the last 200 steps have a one-step loss spike of 7 standard deviations above their neighbours with twice the usual gradient.",
        source: "spikes of 7 standard deviations: OLMo 2, arXiv 2501.00656; the count is a rule of thumb",
    },
    needs: &[metric::TRAIN_LOSS, metric::GRAD_NORM],
    judge,
};

const TIMES: f64 = 2.0;
const COUNT: usize = 3;
const BEFORE: usize = 10;
/// Minimum noise of a run, as a share of its loss.
const QUIET: f64 = 5e-3;

fn judge(view: &View<'_>) -> Option<Finding> {
    if super::lost(view) || view.state.step < view.patience() {
        return None;
    }
    let sigma = view.loss()?.sigma;
    let (losses, norms) = (
        view.recent(metric::TRAIN_LOSS),
        view.recent(metric::GRAD_NORM),
    );
    let usual = view.typical(metric::GRAD_NORM)?;
    // Matched by step: after a cold start the norms continue and the losses do not.
    let norms: BTreeMap<u64, f64> = norms.iter().map(|p| (p.step, p.value)).collect();
    let odd: Vec<u64> = (BEFORE..losses.len().saturating_sub(1))
        .filter(|at| {
            let before: Vec<f64> = losses[at - BEFORE..*at].iter().map(|p| p.value).collect();
            let Some(middle) = median(&before) else {
                return false;
            };
            let line = (SPIKE_SIGMAS * sigma.max(QUIET * middle)).max(UNSOLVED_ONE);
            let (here, next) = (losses[*at], losses[at + 1]);
            here.step > view.warmup() + 100
                && here.value > middle + line
                && next.value < middle + line / 2.0
                && norms
                    .get(&here.step)
                    .is_some_and(|norm| *norm > TIMES * usual)
        })
        .map(|at| losses[at].step)
        .collect();
    if odd.len() < COUNT {
        return None;
    }
    let steps: Vec<String> = odd
        .iter()
        .rev()
        .take(3)
        .rev()
        .map(|step| human::grouped(*step))
        .collect();
    let signals = vec![
        Signal::of(
            metric::TRAIN_LOSS,
            odd.len() as f64,
            format!(
                "{} single spikes of the loss in {} {}",
                odd.len(),
                losses.len(),
                view.unit()
            ),
        )
        .at(view.state.step),
        Signal::of(
            metric::GRAD_NORM,
            usual,
            format!(
                "with more than twice the usual gradient, at steps {}",
                steps.join(", ")
            ),
        ),
    ];
    let cause = "outlier batches: corrupt spans, another language, binary data";
    let fix = "inspect «them (`llmtui data batches SPEC --step N`) and filter; -s rescue.skip_outliers=true skips such updates|the data of these steps and filter»";
    Some(Finding::warn(signals, cause, fix))
}
