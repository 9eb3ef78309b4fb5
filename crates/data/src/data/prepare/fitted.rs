//! Adapts rows to a method that needs another kind, without inventing content: the chosen answer of a pair becomes a text, a pair
//! two labelled answers, and a row with a prompt a prompt. Any other row is unchanged, and rendering reports what is wrong
//! with it.

use crate::data::render::TrainOn;
use crate::data::{Content, Example, Message, Turns, Unit};
use std::borrow::Cow;

/// What is learned of a row: none of an answer that is labelled bad, where good ones are learned; of a prompt its text,
/// where all text is.
pub(super) fn fitted(unit: Unit, train_on: TrainOn, example: &Example) -> Vec<Cow<'_, Example>> {
    let with = |content: Content| {
        Cow::Owned(Example {
            content,
            ..example.clone()
        })
    };
    let labelled = |prompt: &Turns, answer: &Turns, desirable| {
        with(Content::Labelled {
            prompt: prompt.clone(),
            completion: answer.clone(),
            desirable,
        })
    };
    match (unit, &example.content) {
        (
            Unit::Text,
            Content::Labelled {
                desirable: false, ..
            },
        ) => Vec::new(),
        (
            Unit::Text,
            Content::Preference {
                prompt,
                chosen: completion,
                ..
            }
            | Content::Labelled {
                prompt, completion, ..
            },
        ) => vec![with(Content::Completion {
            prompt: prompt.clone(),
            completion: completion.clone(),
        })],
        (Unit::Text, Content::Prompt { prompt, .. }) if train_on == TrainOn::All => {
            vec![with(match prompt {
                Turns::Text(text) => Content::Text(text.clone()),
                Turns::Messages(messages) => Content::Chat(messages.clone()),
            })]
        }
        (
            Unit::Judged,
            Content::Preference {
                prompt,
                chosen,
                rejected,
            },
        ) => vec![
            labelled(prompt, chosen, true),
            labelled(prompt, rejected, false),
        ],
        (Unit::Prompt, Content::Preference { prompt, .. } | Content::Labelled { prompt, .. }) => {
            vec![with(Content::Prompt {
                prompt: prompt.clone(),
                answer: None,
            })]
        }
        (Unit::Prompt, Content::Chat(messages)) => {
            let (prompt, answer) = asked(messages);
            vec![with(Content::Prompt {
                prompt: Turns::Messages(prompt.to_vec()),
                answer,
            })]
        }
        _ => vec![Cow::Borrowed(example)],
    }
}

/// A conversation up to its last answer, and that answer.
fn asked(messages: &[Message]) -> (&[Message], Option<String>) {
    match messages {
        [before @ .., last] if last.role == "assistant" && !before.is_empty() => {
            (before, Some(last.content.clone()))
        }
        all => (all, None),
    }
}

/// The message for the user.
pub(super) fn warning(unit: Unit, train_on: TrainOn, content: &Content) -> Option<&'static str> {
    Some(match (unit, content) {
        (Unit::Text, Content::Preference { .. }) => {
            "trains on the chosen answer of each pair; the rejected one is unused"
        }
        (Unit::Text, Content::Labelled { .. }) => {
            "trains on answers labelled good; the others are unused"
        }
        (Unit::Text, Content::Prompt { .. }) if train_on == TrainOn::All => {
            "trains on the text of the prompts"
        }
        (Unit::Judged, Content::Preference { .. }) => {
            "each pair becomes two labelled answers: chosen is good, rejected is bad"
        }
        (Unit::Prompt, Content::Preference { .. } | Content::Labelled { .. }) => {
            "only the prompts are used: the model generates the answers"
        }
        (Unit::Prompt, Content::Chat(_)) => {
            "the last turn of each conversation is the reference answer, the turns before it the prompt"
        }
        _ => return None,
    })
}
