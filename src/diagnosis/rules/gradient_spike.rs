//! Gradient norms far above their median.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "gradient_spike",
        title: "gradient norm",
        summary: "After the warm-up, none of the newest 200 norms exceeds 5 times their median.",
        source: "norm against its baseline: SPAM, arXiv 2501.06842; clusters pollute Adam's moments: PaLM, arXiv 2204.02311",
    },
    needs: &[metric::GRAD_NORM],
    judge,
};

/// A norm this many times the median is a spike.
const SPIKE: f64 = 5.0;
/// More spikes than this among 200 steps are a cluster.
const CLUSTER: usize = 5;

fn judge(view: &View<'_>) -> Option<Finding> {
    let median = view.typical(metric::GRAD_NORM)?;
    let settled = view.warmup().max(ENOUGH as u64);
    let norms = view.recent(metric::GRAD_NORM);
    let spikes: Vec<_> = norms
        .iter()
        .filter(|p| p.step > settled && (p.value > SPIKE * median || p.value.is_nan()))
        .collect();
    let Some(worst) = spikes.iter().max_by(|a, b| a.value.total_cmp(&b.value)) else {
        let text = format!("{}  steady", human::number(median));
        return Some(Finding::pass(Signal::of(metric::GRAD_NORM, median, text)));
    };
    let (times, at) = (worst.value / median, human::grouped(worst.step));
    let text = format!(
        "{} times its median at step {at}",
        human::short(times.round())
    );
    let mut signals = vec![Signal::of(metric::GRAD_NORM, worst.value, text).at(worst.step)];
    let (cause, fix) = if spikes.len() > CLUSTER {
        let text = format!("{} spikes in {} steps", spikes.len(), norms.len());
        signals.push(Signal::of(metric::GRAD_NORM, spikes.len() as f64, text));
        let cause = "spikes in clusters pollute the optimizer's moments";
        (
            cause,
            format!(
                "go back to an earlier checkpoint; {}",
                super::diverged::lower_lr(view)
            ),
        )
    } else {
        let cause = "an unusual batch; alone it is harmless where the gradient is clipped";
        (
            cause,
            "go on; look at the rows of that step if it comes again".into(),
        )
    };
    Some(Finding::warn(signals, cause, fix).at(format!("step {at}")))
}
