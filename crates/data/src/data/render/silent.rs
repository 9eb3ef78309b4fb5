//! Rows whose answer is empty: of it only the end is supervised, and the model learns to answer nothing.

use super::unwritten::calls;
use super::weight;
use crate::data::{Content, Message, Turns};

/// Whether a row has an answer to learn that says nothing. A turn that calls a tool says something; what is only read, or taught
/// to be avoided, is no answer to learn.
pub fn answers_nothing(content: &Content) -> bool {
    match content {
        Content::Text(_) | Content::Prompt { .. } => false,
        Content::Chat(messages) => messages.iter().any(silent),
        Content::Completion { completion, .. } => of_side(completion),
        Content::Preference { chosen, .. } => of_side(chosen),
        Content::Labelled {
            completion,
            desirable,
            ..
        } => *desirable && of_side(completion),
    }
}

fn of_side(answer: &Turns) -> bool {
    match answer {
        Turns::Text(text) => text.trim().is_empty(),
        Turns::Messages(messages) => messages.iter().any(silent),
    }
}

fn silent(turn: &Message) -> bool {
    turn.role == "assistant"
        && turn.content.trim().is_empty()
        && calls(turn).is_none()
        && weight::said(turn) != Ok(Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_empty_answer_is_one_that_would_be_learned() {
        let turn = |content: &str, extra: serde_json::Value| Message {
            extra: extra.as_object().unwrap().clone(),
            ..Message::new("assistant", content)
        };
        let chat = |answer: Message| Content::Chat(vec![Message::new("user", ""), answer]);
        assert!(answers_nothing(&chat(turn(" \n", json!({})))));
        assert!(!answers_nothing(&chat(turn("a", json!({})))));
        assert!(!answers_nothing(&chat(turn("", json!({"weight": 0})))));
        let call = json!({"tool_calls": [{"type": "function", "function": {"name": "f"}}]});
        assert!(!answers_nothing(&chat(turn("", call))));
        let text = |text: &str| Turns::Text(text.into());
        let pair = |chosen: &str, rejected: &str| Content::Preference {
            prompt: text("a"),
            chosen: text(chosen),
            rejected: text(rejected),
        };
        assert!(answers_nothing(&pair("", "b")) && !answers_nothing(&pair("b", "")));
        let judged = |desirable| Content::Labelled {
            prompt: text("a"),
            completion: Turns::Messages(vec![turn("", json!({}))]),
            desirable,
        };
        assert!(answers_nothing(&judged(true)) && !answers_nothing(&judged(false)));
    }
}
