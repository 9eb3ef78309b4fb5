//! A reward that never varies: always or never earned.

use super::{empty_answers, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human::percent;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "constant_reward",
        title: "reward spread",
        summary: "Rewards differ between completions in some of the last steps.",
        source: "a constant reward has advantage 0 and gradient 0",
    },
    needs: &[metric::REWARD, metric::REWARD_STD],
    judge,
};

/// A spread below this share of the mean reward is what f32 leaves of equal values.
const ROUNDING: f64 = 1e-6;

/// Whether rewards of this standard deviation and mean differ.
pub(super) fn varies(std: f64, reward: f64) -> bool {
    std > ROUNDING * reward.abs()
}

fn judge(view: &View<'_>) -> Option<Finding> {
    let spread = view.recent(metric::REWARD_STD);
    if spread.len() < ENOUGH || empty_answers::explains(view) {
        return None;
    }
    let reward = view.typical(metric::REWARD)?;
    let varied = spread
        .iter()
        .filter(|point| varies(point.value, reward))
        .count();
    let share = varied as f64 / spread.len() as f64;
    let text = format!("rewards vary in {} of the last steps", percent(share, 0));
    let signal = Signal::of(metric::REWARD_STD, share, text).at(view.state.step);
    if varied > 0 {
        return Some(Finding::pass(vec![signal]));
    }
    let solved = view
        .state
        .latest(metric::PASS_AT_1)
        .is_some_and(|pass| pass >= 0.99);
    let words = format!("every completion has reward {reward:.2}");
    let signals = vec![signal, Signal::of(metric::REWARD, reward, words)];
    if solved {
        return Some(Finding::pass(signals));
    }
    Some(Finding::fail(
        signals,
        "no completion is better than another, so there is no learning signal: the reward's rule never or always applies",
        "test it on your own completions« with `llmtui reward test`|»; «a cold start (rollout.cold_start_steps)|supervised fine-tuning first» teaches the form of an answer",
    ))
}
