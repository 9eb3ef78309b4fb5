//! Entropy falls to nearly 0 while held-out prompts are still answered incorrectly: the policy repeats itself and does not
//! explore.

use super::{constant_reward, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "entropy_collapse",
        title: "entropy",
        summary: "The entropy of answers stays above a twentieth of its start until pass@1 is 0.9.",
        source: "DAPO, arXiv 2503.14476, section 3.1; Cui et al. 2025, arXiv 2505.22617",
    },
    needs: &[metric::ENTROPY, metric::REWARD],
    judge,
};

/// Relative to the entropy of the first answers.
const COLLAPSED: f64 = 0.05;
/// Share of held-out prompts answered correctly from which on certainty is not a fault.
const SOLVED: f64 = 0.9;

fn judge(view: &View<'_>) -> Option<Finding> {
    let answers = view.state.series.get(metric::REWARD)?.steps()?.0;
    let entropy = view.state.series.get(metric::ENTROPY)?;
    let begun = entropy.columns(answers as f64, (answers + 20) as f64, 1);
    let start = begun.into_iter().next()??.mean()?;
    if view.recent(metric::REWARD).len() < ENOUGH {
        return None;
    }
    let now = view.typical(metric::ENTROPY)?;
    let step = view.state.step;
    let text = format!("entropy {start:.3} → {now:.3} nats");
    let signal = Signal::of(metric::ENTROPY, now, text).at(step);
    if now > COLLAPSED * start || constant_reward::solved(view, SOLVED).is_some() {
        return Some(Finding::pass(vec![signal]));
    }
    let pass = view.state.latest(metric::PASS_AT_1);
    let pass = pass.map(|pass| Signal::of(metric::PASS_AT_1, pass, format!("pass@1 {pass:.2}")));
    let signals: Vec<Signal> = std::iter::once(signal).chain(pass).collect();
    Some(Finding::warn(
        signals,
        "the model has settled on one answer to each prompt before most are right",
        "a smaller learning rate‹, <epsilon_high:0.28>›, or a higher <temperature>",
    ))
}
