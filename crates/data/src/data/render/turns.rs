//! Prepares turns for templates, and detects special tokens in their text.

use crate::data::{Message, Tokenizer, Turns};
use serde_json::Value;

/// A side of an example as turns: plain text is one turn of `role`.
pub fn as_turns(side: &Turns, role: &str) -> Vec<Message> {
    match side {
        Turns::Text(text) => vec![Message::new(role, text.clone())],
        Turns::Messages(messages) => messages.clone(),
    }
}

/// With the arguments of tool calls as objects: OpenAI writes them as text that holds JSON, templates print objects, and
/// a model trained on the one inside the other learns to escape its quotes.
pub fn decoded(messages: &[Message]) -> Vec<Message> {
    let mut messages = messages.to_vec();
    for message in &mut messages {
        let Some(Value::Array(calls)) = message.extra.get_mut("tool_calls") else {
            continue;
        };
        for call in calls {
            let holder = match call.get_mut("function") {
                Some(function) => function,
                None => call,
            };
            if let Some(arguments) = holder.get_mut("arguments") {
                let object = arguments
                    .as_str()
                    .and_then(|text| serde_json::from_str(text).ok());
                if let Some(object @ Value::Object(_)) = object {
                    *arguments = object;
                }
            }
        }
    }
    messages
}

/// All text contents of turns.
pub fn texts(messages: &[Message]) -> Vec<&str> {
    let mut texts = Vec::with_capacity(messages.len());
    for message in messages {
        texts.push(message.content.as_str());
        message
            .extra
            .values()
            .for_each(|value| collect(value, &mut texts));
    }
    texts
}

fn collect<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(map) => map.values().for_each(|item| collect(item, texts)),
        _ => {}
    }
}

/// The special tokens of a vocabulary, as they are spelt.
#[derive(Debug, Default)]
pub struct SpecialTokens {
    spelt: Vec<String>,
    /// The bytes that they begin with: most texts are done with one look for these.
    firsts: Vec<u8>,
}

impl SpecialTokens {
    pub fn of(tokenizer: &Tokenizer) -> SpecialTokens {
        let special = tokenizer.added_tokens().into_iter().filter(|t| t.special);
        let spelt = special.map(|token| token.content);
        SpecialTokens::spelt(spelt.filter(|token| !token.is_empty()).collect())
    }

    fn spelt(spelt: Vec<String>) -> SpecialTokens {
        let mut firsts: Vec<u8> = spelt.iter().map(|t| t.as_bytes()[0]).collect();
        firsts.sort_unstable();
        firsts.dedup();
        SpecialTokens { spelt, firsts }
    }

    /// Whether one of them occurs in a text.
    pub fn occur_in(&self, text: &str) -> bool {
        let bytes = text.as_bytes();
        bytes.iter().enumerate().any(|(at, byte)| {
            self.firsts.contains(byte)
                && self
                    .spelt
                    .iter()
                    .any(|t| bytes[at..].starts_with(t.as_bytes()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_that_hold_json_become_objects_and_other_text_stays() {
        let mut message = Message::new("assistant", "");
        let calls = json!([
            {"function": {"name": "a", "arguments": "{\"x\": 1}"}},
            {"name": "b", "arguments": "not json"},
            {"name": "c", "arguments": {"y": 2}},
        ]);
        message.extra.insert("tool_calls".into(), calls);
        let calls = &decoded(&[message])[0].extra["tool_calls"];
        assert_eq!(calls[0]["function"]["arguments"], json!({"x": 1}));
        assert_eq!(calls[1]["arguments"], "not json");
        assert_eq!(calls[2]["arguments"], json!({"y": 2}));
    }

    #[test]
    fn special_tokens_are_found_wherever_they_are_written() {
        let special = SpecialTokens::spelt(vec!["<|im_end|>".into(), "</s>".into()]);
        assert!(special.occur_in("a <|im_end|>") && special.occur_in("</s>"));
        assert!(!special.occur_in("<|im_end |> < / s>") && !special.occur_in(""));
        let mut message = Message::new("user", "a");
        message
            .extra
            .insert("tool_calls".into(), json!([{"name": "</s>"}]));
        assert!(texts(&[message]).iter().any(|t| special.occur_in(t)));
    }
}
