//! Completions that end at once: empty text earns no reward.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human::percent;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::{ENOUGH, View};
use crate::run::series::Point;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "empty_answers",
        title: "empty answers",
        summary: "Completions are longer than one token, or their rewards differ; of one token alone, if that is the maximum.",
        source: "the token that ends an answer counts as one; rule of thumb",
    },
    needs: &[metric::ANSWER_LENGTH, metric::REWARD_STD],
    judge,
};

/// Mean tokens.
const NOTHING: f64 = 1.5;
const EMPTY: f64 = 1.05;
const MOST: f64 = 0.5;

fn judge(view: &View<'_>) -> Option<Finding> {
    let length = view.typical(metric::ANSWER_LENGTH)?;
    let spread = view.recent(metric::REWARD_STD);
    if spread.len() < ENOUGH {
        return None;
    }
    let text = format!("mean length {length:.1} tokens");
    let signal = Signal::of(metric::ANSWER_LENGTH, length, text).at(view.state.step);
    // One of the newest answers may differ; if the mean is only the end token, all are empty.
    let varies = spread.iter().any(|point| point.value > 0.0);
    if length > NOTHING || varies && length > EMPTY || are_one_token(view) {
        return Some(Finding::pass(vec![signal]));
    }
    let of_last =
        spread.iter().filter(|point| point.value > 0.0).count() as f64 / spread.len() as f64;
    let same = Signal::of(
        metric::REWARD_STD,
        of_last,
        format!("rewards vary in {} of the last steps", percent(of_last, 0)),
    );
    let signals = vec![signal, same];
    let cut = view.typical(metric::CUT_ANSWERS).unwrap_or(0.0);
    Some(match cut > MOST {
        true => Finding::fail(
            signals,
            "completions are truncated after their first token",
            "a larger <max_completion_length>; check that no «rollout.stop|stop string» matches the start of completions",
        ),
        false => Finding::fail(
            signals,
            "the model stops at once: plain-text prompts bypass a chat model's template, and a base model may not know the answer \
             format",
            "«prompts as turns (a column `question`, or llmtui data convert FILE --to messages)|prompts in the model's chat template»; \
             else «a cold start (rollout.cold_start_steps)|supervised fine-tuning first, which» teaches how answers begin",
        ),
    })
}

/// Whether answers are one token by design, such as a digit or a label: all are cut there, and their rewards differ.
pub(super) fn are_one_token(view: &View<'_>) -> bool {
    let varies = |point: &Point| point.value > 0.0;
    let length = view.typical(metric::ANSWER_LENGTH);
    let cut = view.typical(metric::CUT_ANSWERS);
    length.is_some_and(|length| length <= EMPTY)
        && cut.is_some_and(|cut| cut > MOST)
        && view.recent(metric::REWARD_STD).iter().any(varies)
}

/// Whether it explains why all rewards are equal.
pub(super) fn explains(view: &View<'_>) -> bool {
    RULE.evaluate(view)
        .is_some_and(|found| found.status == crate::base::finding::Status::Fail)
}
