//! Repetitive completions, and what goes with them: a reward that favours repetition, or a model that falls into loops.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human::percent;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, View};

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "repeated_answers",
        title: "repetition",
        summary: "Less than 30 % of the 3-grams in completions are repeats within the same completion, or no more than at the start.",
        source: "Yeo et al. 2025, arXiv 2502.03373: repetition under length rewards; the share is a rule of thumb",
    },
    needs: &[metric::REPETITION, metric::REWARD, metric::ANSWER_LENGTH],
    judge,
};

const MANY: f64 = 0.3;
/// How far above the start it must be: some texts are naturally repetitive.
const MORE: f64 = 0.15;
/// Growth of the answers' length.
const LONGER: f64 = 1.2;

fn judge(view: &View<'_>) -> Option<Finding> {
    if view.recent(metric::REPETITION).len() < ENOUGH {
        return None;
    }
    let (begun, now) = view.first_and_last_third(metric::REPETITION)?;
    let text = format!(
        "{} of 3-grams repeat, {} at the start",
        percent(now, 0),
        percent(begun, 0)
    );
    let signal = Signal::of(metric::REPETITION, now, text).at(view.state.step);
    if now < MANY || now < begun + MORE {
        return Some(Finding::pass(vec![signal]));
    }
    let (before, after) = view.first_and_last_third(metric::REWARD)?;
    let (short, long) = view.first_and_last_third(metric::ANSWER_LENGTH)?;
    let reward = Signal::of(
        metric::REWARD,
        after,
        format!("mean reward {before:.2} → {after:.2}"),
    );
    let length = Signal::of(
        metric::ANSWER_LENGTH,
        long,
        format!("mean length {short:.1} → {long:.1} tokens"),
    );
    Some(if after > before {
        Finding::fail(
            vec![signal, reward],
            "repetition is rewarded, or costs nothing: the reward rises with it",
            "«rewards: a penalty {repetition: {words: 3}, weight: 0.5}; read completions in the Examples pane|a penalty on repetition in the reward; read the completions»",
        )
    } else if long > LONGER * short {
        Finding::warn(
            vec![signal, length],
            "the model falls into loops: answers grow by saying the same again",
            format!(
                "«a reward {{repetition: {{words: 3}}}}|a penalty on repetition in the reward», a smaller learning rate, <beta:{}>",
                view.suggested_kl_coef()
            ),
        )
    } else {
        // A single signal is not a diagnosis.
        Finding::pass(vec![signal, reward])
    })
}
