//! Prompts that a chat model would answer as turns, given to it as texts to continue.

use super::{Subject, poor};
use crate::base::finding::Finding;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let answers_itself = subject.spec.method.on_policy().is_some();
    if !answers_itself || subject.begins_at_random() || !subject.sizes.unused_template {
        return Vec::new();
    }
    vec![poor(
        "data.format",
        "the start model has a chat template, and all prompts are texts, which are continued without it: a chat model may end at once or \
         go on with the question"
            .into(),
        "for turns of a user name the column `question`, or make every prompt a list `[{role: user, content: …}]`: llmtui data convert FILE --to \
         messages writes them"
            .into(),
        "docs/data.md; TRL applies the template to conversational prompts alone",
    )]
}
