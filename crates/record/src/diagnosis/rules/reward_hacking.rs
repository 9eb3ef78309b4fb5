//! The training reward rises while held-out results get worse: the reward is earned by something other than correct answers.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::gains::{FALL, Pass, evaluations};
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "reward_hacking",
        title: "reward hacking",
        summary: "Held-out pass@1 does not fall from its best by 0.1 and two standard errors, in two evaluations in a row, while the reward rises.",
        source: "Gao et al. 2022, arXiv 2210.10760: proxy and gold reward diverge; the margins are rules of thumb",
    },
    needs: &[metric::REWARD, metric::PASS_AT_1],
    judge,
};

/// Consecutive evaluations that must be below the best.
const PATIENCE: usize = 2;

fn judge(view: &View<'_>) -> Option<Finding> {
    // Other prompts may be easier or harder.
    let all = evaluations(view, metric::PASS_AT_1);
    let rows = all.first()?.n_windows;
    let alike = all.into_iter().filter(|e| e.n_windows == rows);
    let pass: Vec<(u64, Pass)> = alike.filter_map(|e| Some((e.step, Pass::of(e)?))).collect();
    let best = pass
        .iter()
        .copied()
        .reduce(|a, b| if b.1.share > a.1.share { b } else { a })?;
    let below = |now: Pass| now.share <= best.1.share - FALL && best.1.exceeds(now);
    let mut last = pass.iter().rev().take(PATIENCE);
    let fallen = pass.len() > PATIENCE && last.all(|(_, now)| below(*now));
    let now = pass.last()?;
    let mut text = format!("pass@1 {:.2} at step {}", best.1.share, best.0);
    if now.0 != best.0 {
        text.push_str(&format!(", {:.2} at step {}", now.1.share, now.0));
    }
    let signal = Signal::of(metric::PASS_AT_1, now.1.share, text).at(now.0);
    if !fallen {
        return Some(Finding::pass(vec![signal]));
    }
    let reward = view.state.series.get(metric::REWARD)?;
    let (first, end) = reward.steps()?;
    let halves = reward.columns(best.0.max(first) as f64, end as f64 + 1.0, 2);
    let (before, after) = ((*halves.first()?)?.mean()?, (*halves.get(1)?)?.mean()?);
    let text = format!("mean reward {before:.2} → {after:.2}");
    let signals = vec![signal, Signal::of(metric::REWARD, after, text)];
    Some(match after > before {
        true => Finding::fail(
            signals,
            "reward hacking: completions are rewarded for something other than being correct",
            "check completions and rewards by part« in the Examples pane|»; weight the verifier more, or limit what is exploited (length, repetition, tags)",
        ),
        false => Finding::warn(
            signals,
            "training makes completions worse",
            "a smaller learning rate« (rollout.lr_scale)|», or continue from the best checkpoint",
        ),
    })
}
