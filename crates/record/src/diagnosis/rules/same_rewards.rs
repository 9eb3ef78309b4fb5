//! Groups whose completions all have the same reward: they give no gradient, and their generation is wasted.

use super::{constant_reward, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human::percent;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "same_rewards",
        title: "equal rewards",
        summary: "In less than 80 % of the groups all completions have the same reward.",
        source: "DAPO's dynamic sampling, arXiv 2503.14476, addresses the same",
    },
    needs: &[metric::SAME_REWARDS, metric::REWARD],
    judge,
};

const MANY: f64 = 0.8;
/// Where nearly every group is equal but rewards are not, they differ between prompts alone.
const ALL: f64 = 0.999;
/// Where nearly all answers get what the best got, there is nothing left to learn.
const SOLVED: f64 = 0.9;
/// Mean rewards that show whether prompts are too easy or too hard, if a right answer gets 1 and a wrong one 0.
const HIGH: f64 = 0.7;
const LOW: f64 = 0.3;

const BY_PROMPT: &str = "rewards differ between prompts, never between completions of one prompt: the reward does not depend on the completion, or \
                         prompts are far too hard or far too easy for this model";
const FIX_BY_PROMPT: &str = "test the reward on several completions of one prompt« (`llmtui reward test`)|»; else use prompts that the model sometimes \
                             solves, or a larger <num_generations>";

fn judge(view: &View<'_>) -> Option<Finding> {
    let share = view.typical(metric::SAME_REWARDS)?;
    let step = view.state.step;
    let text = format!("{} of groups", percent(share, 0));
    let signal = Signal::of(metric::SAME_REWARDS, share, text).at(step);
    if share < MANY {
        return Some(Finding::pass(vec![signal]));
    }
    if let Some(solved) = constant_reward::solved(view, SOLVED) {
        return Some(Finding::pass(vec![signal, solved]));
    }
    let reward = view.typical(metric::REWARD)?;
    let pass = view.state.latest(metric::PASS_AT_1);
    let pass = pass.map_or(String::new(), |pass| format!(", pass@1 {}", share_of(pass)));
    let words = format!("mean reward {reward:.2}{pass}");
    let mut signals = vec![signal, Signal::of(metric::REWARD, reward, words)];
    let std = view.typical(metric::REWARD_STD);
    if let Some(std) = std.filter(|std| share > ALL && constant_reward::varies(*std, reward)) {
        let words = format!("reward std {std:.2} over all completions");
        signals.push(Signal::of(metric::REWARD_STD, std, words));
        return Some(Finding::warn(signals, BY_PROMPT, FIX_BY_PROMPT));
    }
    let (cause, fix) = match reward {
        r if r > HIGH => (
            "most prompts are too easy for this model: every completion in a group is correct",
            "use harder prompts,« replacements for such groups (rollout.refill),|» a higher <temperature>, or a larger <num_generations>",
        ),
        r if r < LOW => (
            "most prompts are too hard for this model: every completion in a group is wrong",
            "start with supervised fine-tuning« (rollout.cold_start_steps, train.from)|», use prompts that it sometimes solves, or a larger <num_generations>",
        ),
        _ => (
            "prompts are far too hard or far too easy for this model: completions in a group are all correct or all wrong",
            "use prompts that it sometimes solves, or a larger <num_generations>",
        ),
    };
    Some(Finding::warn(signals, cause, fix))
}

/// A share, with more digits where two would look like the limit.
fn share_of(pass: f64) -> String {
    match pass < SOLVED && pass > SOLVED - 0.005 {
        true => format!("{pass:.4}"),
        false => format!("{pass:.2}"),
    }
}
