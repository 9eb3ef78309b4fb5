//! A reward that never varies: always or never earned. And when a run has solved its prompts, so that nothing is left to learn.

use super::{empty_answers, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human::{counted, percent};
use crate::base::registry::Entry;
use crate::base::stats;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, View};
use crate::run::series::Point;

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

/// Steps that say it of a run that goes on; of one that has ended all there are.
const FEW: usize = 5;
/// Share of held-out prompts answered correctly from which on a constant reward is what was wanted.
const SOLVED: f64 = 0.99;
/// A spread below this share of the mean reward is what f32 leaves of equal values.
const ROUNDING: f64 = 1e-6;

/// Whether rewards of this standard deviation and mean differ.
pub(super) fn varies(std: f64, reward: f64) -> bool {
    std > ROUNDING * reward.abs()
}

/// Of the spread that rewards had in the first third: a rise of the mean by this share of it is a gain, and a spread below this share
/// of it is none any more.
const RISE: f64 = 0.5;
const GONE: f64 = 0.1;

/// Evidence that the prompts are solved: a pass@1 of at least `least`. Where none is measured, a mean reward well above its first third
/// whose spread is gone.
pub(super) fn solved(view: &View<'_>, least: f64) -> Option<Signal> {
    if let Some(pass) = view.state.latest(metric::PASS_AT_1) {
        let words = format!("pass@1 {pass:.2}: most prompts are always solved");
        return (pass >= least).then(|| Signal::of(metric::PASS_AT_1, pass, words));
    }
    let (begun, _) = view.first_and_last_third(metric::REWARD)?;
    let (apart, _) = view.first_and_last_third(metric::REWARD_STD)?;
    let (now, spread) = (
        view.typical(metric::REWARD)?,
        view.typical(metric::REWARD_STD)?,
    );
    let risen = varies(apart, begun) && now - begun > RISE * apart && spread <= GONE * apart;
    let words = format!("mean reward {begun:.2} → {now:.2}, the same for nearly all completions");
    risen.then(|| Signal::of(metric::REWARD, now, words))
}

fn judge(view: &View<'_>) -> Option<Finding> {
    let spread = view.recent(metric::REWARD_STD);
    if empty_answers::explains(view) {
        return None;
    }
    if spread.len() < ENOUGH {
        return judge_few(view, &spread);
    }
    let reward = view.typical(metric::REWARD)?;
    let varied = spread
        .iter()
        .filter(|point| varies(point.value, reward))
        .count();
    let share = varied as f64 / spread.len() as f64;
    if varied > 0 {
        let text = format!("rewards vary in {} of the last steps", percent(share, 0));
        let signal = Signal::of(metric::REWARD_STD, share, text).at(view.state.step);
        return Some(Finding::pass(vec![signal]));
    }
    // In these words: who reads that rewards vary in 0 % of the steps must know what follows from it.
    let words = format!("no learning signal: every completion has reward {reward:.2}");
    let none = "all advantages are 0, and so is the gradient";
    let mut signals = vec![
        Signal::of(metric::REWARD, reward, words),
        Signal::of(metric::REWARD_STD, share, none).at(view.state.step),
    ];
    if let Some(solved) = solved(view, SOLVED) {
        signals.push(solved);
        return Some(Finding::pass(signals));
    }
    Some(Finding::fail(
        signals,
        "no completion is better than another, so there is no learning signal: the reward's rule never or always applies",
        "test it on your own completions« with `llmtui reward test`|»; «a cold start (rollout.cold_start_steps)|supervised fine-tuning first» teaches the form of an answer",
    ))
}

/// Of a young or short run: nothing is said unless no step so far has taught it anything.
fn judge_few(view: &View<'_>, spread: &[Point]) -> Option<Finding> {
    let least = match view.state.finished {
        Some(_) => 1,
        None => FEW,
    };
    let rewards: Vec<f64> = view
        .recent(metric::REWARD)
        .iter()
        .map(|p| p.value)
        .collect();
    let reward = stats::median(&rewards)?;
    let solves = |pass: f64| pass >= SOLVED;
    if spread.len() < least
        || spread.iter().any(|point| varies(point.value, reward))
        || view.state.latest(metric::PASS_AT_1).is_some_and(solves)
    {
        return None;
    }
    let steps = counted(spread.len() as u64, "step");
    let words = format!(
        "no learning signal in {steps}: all completions of a prompt have equal rewards, {reward:.2} in the mean"
    );
    Some(Finding::warn(
        vec![Signal::of(metric::REWARD_STD, 0.0, words).at(view.state.step)],
        "no completion is better than another: they are cut off, or all right or all wrong",
        "more completions per prompt, longer ones, easier prompts; test the reward on completions of your own« with `llmtui reward test`|»",
    ))
}
