//! Completions that grow until they are truncated.

use super::{empty_answers, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human::percent;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "answer_length",
        title: "truncation",
        summary: "Less than half of the completions are truncated at the maximum number of new tokens, and less than a tenth inside their thoughts.",
        source: "Dr. GRPO, arXiv 2503.20783: length bias; DAPO, arXiv 2503.14476: overlong answers",
    },
    needs: &[metric::CUT_ANSWERS, metric::ANSWER_LENGTH],
    judge,
};

const MANY: f64 = 0.5;
/// Of completions without a final message.
const SOME: f64 = 0.1;

fn judge(view: &View<'_>) -> Option<Finding> {
    let cut = view.typical(metric::CUT_ANSWERS)?;
    let (begun, now) = view.first_and_last_third(metric::ANSWER_LENGTH)?;
    let text = format!("{} of completions are truncated", percent(cut, 0));
    let words = format!("mean length {begun:.1} → {now:.1} tokens");
    let signals = vec![
        Signal::of(metric::CUT_ANSWERS, cut, text).at(view.state.step),
        Signal::of(metric::ANSWER_LENGTH, now, words),
    ];
    // One that has no final message is worth nothing, however good its thoughts are.
    if let Some(share) = view
        .typical(metric::UNFINISHED_THOUGHTS)
        .filter(|x| *x >= SOME)
    {
        let text = format!("{} end inside their thoughts", percent(share, 0));
        let unfinished = Signal::of(metric::UNFINISHED_THOUGHTS, share, text);
        return Some(Finding::warn(
            signals.into_iter().chain([unfinished]).collect::<Vec<_>>(),
            "completions that end inside their thoughts have no final message: rules score them 0",
            "a larger <max_completion_length>, or «a reward {length: {limit: …}}|a penalty on length» for shorter thoughts",
        ));
    }
    if cut < MANY || empty_answers::are_one_token(view) {
        return Some(Finding::pass(signals));
    }
    Some(match now > 1.2 * begun {
        true => Finding::warn(
            signals,
            "answers grow: length itself is rewarded, or costs nothing",
            "‹<loss_type:dr_grpo>, ›«a reward {length: {limit: …}}|a penalty on length», <mask_truncated_completions:true>",
        ),
        false => Finding::warn(
            signals,
            "the model does not end its completions, or lacks the tokens to",
            "a larger <max_completion_length>, «rollout.stop, or a cold start that|a stop string, or supervised fine-tuning first, which» teaches how answers end",
        ),
    })
}
