//! A reward that finds nothing to score in most completions: no number, no JSON, no program.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human::percent;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "unread_answers",
        title: "unparsed",
        summary: "Each reward finds what it scores (a number, JSON, a program) in more than half of the completions.",
        source: "parser failures count as wrong answers; the share is a rule of thumb",
    },
    needs: &[metric::UNREAD, metric::REWARD, metric::CUT_ANSWERS],
    judge,
};

const MANY: f64 = 0.5;
const CUT: f64 = 0.5;

fn judge(view: &View<'_>) -> Option<Finding> {
    let unread = view.typical(metric::UNREAD)?;
    let reward = view.typical(metric::REWARD)?;
    let cut = view.typical(metric::CUT_ANSWERS)?;
    let text = format!(
        "in {} of completions a reward finds nothing to score",
        percent(unread, 0)
    );
    let signal = Signal::of(metric::UNREAD, unread, text).at(view.state.step);
    if unread < MANY {
        return Some(Finding::pass(vec![signal]));
    }
    Some(match cut >= CUT {
        true => Finding::warn(
            vec![
                signal,
                Signal::of(
                    metric::CUT_ANSWERS,
                    cut,
                    format!("{} of completions are truncated", percent(cut, 0)),
                ),
            ],
            "completions are truncated before their result",
            "a larger <max_completion_length>, <mask_truncated_completions:true>, or «a cold start that|supervised fine-tuning first, which» teaches how answers end",
        ),
        false => Finding::warn(
            vec![
                signal,
                Signal::of(metric::REWARD, reward, format!("mean reward {reward:.2}")),
            ],
            "completions do not have the format that the reward parses: correct ones may count as wrong",
            "«llmtui reward test SPEC FILE shows|look at» what is parsed from a completion; state the format in the prompt, «marked: false, or a cold start (rollout.cold_start_steps)|or begin with supervised fine-tuning»",
        ),
    })
}
