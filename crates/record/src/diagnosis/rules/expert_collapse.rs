//! A router that sends most tokens to few experts.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "expert_collapse",
        title: "expert load",
        summary: "100 steps after the warm-up, the entropy of the tokens' distribution over experts is typically at least half of that of a uniform one.",
        source: "Shazeer et al. 2017, arXiv 1701.06538: routers favor the experts that train fastest; the bound is a rule of thumb",
    },
    needs: &[metric::EXPERT_ENTROPY],
    judge,
};

/// Share of the entropy of a uniform distribution: of 8 experts 0.5 are as many as 2.8, of 64 as many as 8.
const LOW: f64 = 0.5;

fn judge(view: &View<'_>) -> Option<Finding> {
    if !view.past_patience() {
        return None;
    }
    let entropy = view.typical(metric::EXPERT_ENTROPY).filter(|x| *x < LOW)?;
    let text = format!("expert entropy {entropy:.2} of a uniform one's");
    let mut signals = vec![Signal::of(metric::EXPERT_ENTROPY, entropy, text).at(view.state.step)];
    signals.extend(view.typical(metric::EXPERT_LOAD).map(|load| {
        let text = format!("the busiest expert has {load:.1} times the mean");
        Signal::of(metric::EXPERT_LOAD, load, text)
    }));
    Some(Finding::warn(
        signals,
        "the router has collapsed onto few experts: the others are not trained",
        "«a larger weight of the balancing loss (-s model.moe.aux_loss_coef=0.05), or balancing by biases (-s model.moe.balancing=bias)|a larger weight of the balancing loss, or balancing by biases»; a lower learning rate early on",
    ))
}
