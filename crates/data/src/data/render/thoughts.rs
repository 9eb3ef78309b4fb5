//! The thoughts of an answer in the data, in a field beside its text or between `<think>` and `</think>` in it, and what is left of a row
//! without them: where that renders to the same, a template drops them.

use crate::data::chat::REASONING;
use crate::data::{Content, Example, Message, Turns};

const CLOSE: &str = "</think>";

/// Takes the thoughts out of the last answer; false where it has none.
pub(in crate::data) fn take_last(messages: &mut [Message]) -> bool {
    let last = messages.iter_mut().rev().find(|m| m.role == "assistant");
    let Some(message) = last else {
        return false;
    };
    let mut found = false;
    for field in REASONING {
        let said = message.extra.get(field).and_then(|text| text.as_str());
        if said.is_some_and(|text| !text.trim().is_empty()) {
            message.extra.remove(field);
            found = true;
        }
    }
    if let Some((thought, said)) = message.content.rsplit_once(CLOSE) {
        let thought = thought.trim().trim_start_matches("<think>").trim();
        found |= !thought.is_empty();
        message.content = said.trim_start().into();
    }
    found
}

/// A row without the thoughts of its last answer, or of each side of a pair; none where it has none.
pub(in crate::data) fn without(example: &Example) -> Option<Example> {
    let mut example = example.clone();
    let of = |turns: &mut Turns| match turns {
        Turns::Messages(messages) => take_last(messages),
        Turns::Text(_) => false,
    };
    let found = match &mut example.content {
        Content::Text(_) | Content::Prompt { .. } => false,
        Content::Chat(messages) => take_last(messages),
        Content::Completion { completion, .. } | Content::Labelled { completion, .. } => {
            of(completion)
        }
        Content::Preference {
            chosen, rejected, ..
        } => {
            let both = [of(chosen), of(rejected)];
            both.contains(&true)
        }
    };
    found.then_some(example)
}
