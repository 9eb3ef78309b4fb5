//! A row with everything that the checks need, computed once and on any thread.

use super::minhash::Signature;
use super::view::{RenderedDocument, View};
use super::words::push_words;
use crate::data::render::thoughts;
use crate::data::{Content, Example, Message, Place, RowFault, Turns};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;

/// A part of a row that somebody wrote: a turn, a prompt, an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    /// `text`, a role of a conversation, or `prompt`, `completion`, `chosen`, `rejected`.
    pub role: Cow<'a, str>,
    pub text: Cow<'a, str>,
    /// The model is to write this.
    pub answer: bool,
}

/// The parts of an example, in order.
pub fn parts(example: &Example) -> Vec<Part<'_>> {
    let mut out = Vec::new();
    match &example.content {
        Content::Text(text) => out.push(Part {
            role: "text".into(),
            text: text.into(),
            answer: true,
        }),
        Content::Chat(messages) => messages.iter().for_each(|m| out.push(of_message(m, None))),
        Content::Completion { prompt, completion } => {
            side(prompt, "prompt", false, &mut out);
            side(completion, "completion", true, &mut out);
        }
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => {
            side(prompt, "prompt", false, &mut out);
            side(chosen, "chosen", true, &mut out);
            side(rejected, "rejected", true, &mut out);
        }
        Content::Labelled {
            prompt, completion, ..
        } => {
            side(prompt, "prompt", false, &mut out);
            side(completion, "completion", true, &mut out);
        }
        Content::Prompt { prompt, answer } => {
            side(prompt, "prompt", false, &mut out);
            out.extend(answer.as_ref().map(|text| Part {
                role: "answer".into(),
                text: text.into(),
                answer: true,
            }));
        }
    }
    out
}

fn side<'a>(turns: &'a Turns, role: &'static str, answer: bool, out: &mut Vec<Part<'a>>) {
    match turns {
        Turns::Text(text) => out.push(Part {
            role: role.into(),
            text: text.into(),
            answer,
        }),
        Turns::Messages(messages) => {
            // Turns of a prompt keep their roles; those of an answer say of which.
            let word = answer.then_some(role);
            messages.iter().for_each(|m| out.push(of_message(m, word)));
        }
    }
}

fn of_message<'a>(message: &'a Message, role: Option<&'static str>) -> Part<'a> {
    let text = match message.extra.is_empty() {
        true => Cow::Borrowed(message.content.as_str()),
        false => {
            let extra = serde_json::to_string(&message.extra).unwrap_or_default();
            let gap = if message.content.is_empty() { "" } else { "\n" };
            Cow::Owned(format!("{}{gap}{extra}", message.content))
        }
    };
    Part {
        role: role.map_or(Cow::Borrowed(message.role.as_str()), Cow::Borrowed),
        text,
        answer: role.is_some() || message.role == "assistant",
    }
}

/// One row, measured.
#[derive(Debug, Clone)]
pub struct Row {
    pub place: Place,
    /// Which of several sources it came from; a file's name where there is only one.
    pub source: Arc<str>,
    pub example: Example,
    /// Characters of all parts.
    pub characters: u64,
    /// Equal for rows with the same parts, and for no others.
    pub key: u128,
    pub words: Vec<u64>,
    pub signature: Option<Signature>,
    /// The row as a model sees it; empty without a tokenizer.
    pub seen: Vec<RenderedDocument>,
    /// Why it could not be rendered.
    pub fault: Option<RowFault>,
    /// A tool whose name is in the row but not in the rendered text.
    pub left_out: Option<String>,
    /// The rendered text does not hold the thoughts of the last answer.
    pub drops_thoughts: bool,
}

impl Row {
    /// Measures an example; `view` is the model's way of reading, `near` whether a signature is needed.
    pub fn new(
        place: Place,
        source: Arc<str>,
        example: Example,
        view: Option<&dyn View>,
        near: bool,
    ) -> Row {
        let mut words = Vec::new();
        let mut characters = 0;
        for part in parts(&example) {
            push_words(&part.text, &mut words);
            characters += part.text.chars().count() as u64;
        }
        let (seen, fault) = match view.map(|view| view.render(&example, &place)) {
            Some(Ok(seen)) => (seen, None),
            Some(Err(fault)) => (Vec::new(), Some(fault)),
            None => (Vec::new(), None),
        };
        let left_out = view.and_then(|view| left_out(&example, &seen, view));
        let unthought = view.and(thoughts::without(&example));
        let unthought = unthought.and_then(|row| view?.render(&row, &place).ok());
        let drops_thoughts = unthought.is_some_and(|unthought| {
            let ids = |all: &[RenderedDocument]| -> Vec<Vec<u32>> {
                all.iter().map(|seen| seen.document.ids.clone()).collect()
            };
            !seen.is_empty() && ids(&unthought) == ids(&seen)
        });
        Row {
            left_out,
            drops_thoughts,
            key: key(&example),
            signature: if near { Signature::of(&words) } else { None },
            place,
            source,
            example,
            characters,
            words,
            seen,
            fault,
        }
    }

    /// Tokens of the row; the longer side of a pair.
    pub fn tokens(&self) -> Option<u64> {
        let lengths = self.seen.iter().map(|seen| seen.document.ids.len() as u64);
        lengths.max()
    }
}

/// The name of a tool that is offered or called, and that the rendered row does not hold.
fn left_out(example: &Example, seen: &[RenderedDocument], view: &dyn View) -> Option<String> {
    let names = tool_names(example);
    if names.is_empty() || seen.is_empty() {
        return None;
    }
    let text: String = seen
        .iter()
        .flat_map(|seen| view.pieces(&seen.document.ids))
        .collect();
    names.into_iter().find(|name| !text.contains(name.as_str()))
}

/// Names of the tools that an example offers or calls.
pub(super) fn tool_names(example: &Example) -> Vec<String> {
    let mut messages: Vec<&Message> = Vec::new();
    match &example.content {
        Content::Chat(list) => messages.extend(list),
        Content::Completion { prompt, completion }
        | Content::Labelled {
            prompt, completion, ..
        } => {
            messages.extend(turns_of(prompt).iter().chain(turns_of(completion)));
        }
        Content::Preference { prompt, .. } | Content::Prompt { prompt, .. } => {
            messages.extend(turns_of(prompt));
        }
        Content::Text(_) => {}
    }
    let called = messages
        .iter()
        .filter_map(|message| message.extra.get("tool_calls")?.as_array())
        .flatten();
    let offered = example.tools.iter().filter_map(Value::as_array).flatten();
    let name = |tool: &Value| {
        let function = tool.get("function").unwrap_or(tool);
        Some(function.get("name")?.as_str()?.to_string())
    };
    called.chain(offered).filter_map(name).collect()
}

fn turns_of(turns: &Turns) -> &[Message] {
    match turns {
        Turns::Text(_) => &[],
        Turns::Messages(messages) => messages,
    }
}

/// The first half of SHA-256 over the parts with their roles, the label of a judged answer, the tools on offer.
pub fn key(example: &Example) -> u128 {
    let mut hash = Sha256::new();
    for part in parts(example) {
        for text in [&part.role, &part.text] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
    }
    if let Content::Labelled { desirable, .. } = example.content {
        hash.update([u8::from(desirable)]);
    }
    if let Some(tools) = &example.tools {
        hash.update(tools.to_string());
    }
    let digest = hash.finalize();
    digest
        .iter()
        .take(16)
        .fold(0, |key, byte| (key << 8) | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(turns: &[(&str, &str)]) -> Example {
        Example::new(Content::Chat(
            turns.iter().map(|(r, t)| Message::new(*r, *t)).collect(),
        ))
    }

    #[test]
    fn keys_tell_rows_apart_by_text_role_and_label() {
        let a = key(&chat(&[("user", "hi"), ("assistant", "hello")]));
        assert_eq!(a, key(&chat(&[("user", "hi"), ("assistant", "hello")])));
        assert_ne!(a, key(&chat(&[("user", "hi"), ("user", "hello")])));
        assert_ne!(a, key(&chat(&[("user", "hihello"), ("assistant", "")])));
        let judged = |desirable| {
            key(&Example::new(Content::Labelled {
                prompt: Turns::Text("p".into()),
                completion: Turns::Text("c".into()),
                desirable,
            }))
        };
        assert_ne!(judged(true), judged(false));
        let mut tooled = chat(&[("user", "hi"), ("assistant", "hello")]);
        tooled.tools = Some(serde_json::json!([{"name": "f"}]));
        assert_ne!(a, key(&tooled));
    }

    #[test]
    fn parts_say_who_writes_them() {
        let pair = Example::new(Content::Preference {
            prompt: Turns::Messages(vec![Message::new("user", "q")]),
            chosen: Turns::Messages(vec![Message::new("assistant", "good")]),
            rejected: Turns::Text("bad".into()),
        });
        let roles: Vec<(String, bool)> = parts(&pair)
            .iter()
            .map(|p| (p.role.to_string(), p.answer))
            .collect();
        let expected = [("user", false), ("chosen", true), ("rejected", true)];
        assert_eq!(roles, expected.map(|(r, a)| (r.to_string(), a)));
        let mut call = Message::new("assistant", "");
        call.extra
            .insert("tool_calls".into(), serde_json::json!([1]));
        let example = Example::new(Content::Chat(vec![call]));
        assert_eq!(parts(&example)[0].text, r#"{"tool_calls":[1]}"#);
    }

    #[test]
    fn a_row_without_a_view_has_no_tokens_and_no_fault() {
        let place = Place {
            file: "a.txt".into(),
            row: 1,
        };
        let example = Example::new(Content::Text("Größe zwei".into()));
        let row = Row::new(place, "a.txt".into(), example, None, true);
        assert_eq!(
            (row.characters, row.words.len(), row.tokens()),
            (10, 2, None)
        );
        assert!(row.signature.is_some() && row.fault.is_none());
    }
}
