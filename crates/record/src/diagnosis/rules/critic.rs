//! A critic that explains none of the variance of returns and does not improve.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "critic",
        title: "critic",
        summary: "After 200 readings the explained variance of returns is above 0, or the value loss still falls.",
        source: "Schulman et al. 2017, arXiv 1707.06347: advantages need a baseline; the count is a rule of thumb",
    },
    needs: &[metric::EXPLAINED, metric::VALUE_LOSS],
    judge,
};

/// Readings before a critic is judged.
const PATIENCE: usize = 10 * ENOUGH;
/// Explained variance at or below which the critic is useless.
const NOTHING: f64 = 0.0;
/// A loss that falls by this share from the middle third to the last is still improving.
const FALLS: f64 = 0.1;

fn judge(view: &View<'_>) -> Option<Finding> {
    if view.state.series.get(metric::EXPLAINED)?.len() < PATIENCE as u64 {
        return None;
    }
    let now = view.typical(metric::EXPLAINED)?;
    let thirds = view.thirds(metric::VALUE_LOSS)?;
    let (middle, last) = (thirds[1], thirds[2]);
    let minus = if now <= -0.005 { "−" } else { "" };
    let text = format!("explained variance {minus}{:.2}", now.abs());
    let signal = Signal::of(metric::EXPLAINED, now, text).at(view.state.step);
    let loss = Signal::of(
        metric::VALUE_LOSS,
        last,
        format!("value loss {middle:.3} → {last:.3}"),
    );
    if now > NOTHING || last < (1.0 - FALLS) * middle {
        return Some(Finding::pass(vec![signal, loss]));
    }
    Some(Finding::warn(
        vec![signal, loss],
        "the critic has not learned the returns: advantages are as noisy as without one",
        "«a higher method.ppo.critic_lr_scale, method.ppo.critic_warmup_steps, method.ppo.critic_from a reward model|a higher learning rate of the critic, critic warm-up, or a critic initialized from a reward model»; or GRPO and RLOO, which need no critic",
    ))
}
