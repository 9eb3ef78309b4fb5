//! Alpaca as LLaMA-Factory reads it: `instruction`, `input`, `output`, `system`, `history`; pairs with `chosen` and
//! `rejected`, judged answers with `kto_tag`.

use super::{
    PLAIN_TEXT, Writer, into_completion, into_turns, joined, no_tools, one_text, plain, turns,
};
use crate::data::{Content, Example, Message};
use serde_json::{Map, Value, json};

pub const WRITER: Writer = Writer {
    id: "alpaca",
    about: "instruction, input, output; earlier turns as history",
    write,
    changes,
};

fn changes(example: &Example) -> Vec<&'static str> {
    match &example.content {
        Content::Chat(messages) => into_completion(
            messages,
            "earlier answers become history: only the last one is trained on",
        ),
        _ => into_turns(example).into_iter().collect(),
    }
}

fn write(example: &Example) -> Result<Map<String, Value>, String> {
    no_tools(example)?;
    let mut more: Vec<(&str, Value)> = Vec::new();
    let mut messages = match &example.content {
        Content::Text(_) => return Err(PLAIN_TEXT.into()),
        Content::Chat(messages) => messages.clone(),
        Content::Completion { prompt, completion } => joined(prompt, completion),
        Content::Labelled {
            prompt,
            completion,
            desirable,
        } => {
            more.push(("kto_tag", (*desirable).into()));
            joined(prompt, completion)
        }
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => {
            more.push(("chosen", one_text(chosen, "chosen answer")?.into()));
            more.push(("rejected", one_text(rejected, "rejected answer")?.into()));
            turns(prompt, "user")
        }
        Content::Prompt { prompt, answer } => {
            more.extend(answer.iter().map(|a| ("answer", a.clone().into())));
            turns(prompt, "user")
        }
    };
    let system = match messages.first() {
        Some(first) if first.role == "system" => Some(plain(&messages.remove(0))?),
        _ => None,
    };
    if system.as_ref().is_some_and(String::is_empty) {
        return Err("an empty system prompt cannot be represented in Alpaca format".into());
    }
    let answered = messages.len().is_multiple_of(2);
    let pairs = alternating(&messages)?;
    let mut fields = Map::new();
    let (last, history) = pairs.split_last().ok_or("it has no turn")?;
    fields.insert("instruction".into(), last.0.clone().into());
    fields.insert("input".into(), "".into());
    if answered {
        fields.insert("output".into(), last.1.clone().into());
    }
    if let Some(system) = system {
        fields.insert("system".into(), system.into());
    }
    if !history.is_empty() {
        let history: Vec<Value> = history.iter().map(|(q, a)| json!([q, a])).collect();
        fields.insert("history".into(), history.into());
    }
    for (column, value) in more {
        fields.insert(column.into(), value);
    }
    Ok(fields)
}

/// Question and answer in turns; the last answer may be missing.
fn alternating(messages: &[Message]) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    for pair in messages.chunks(2) {
        let roles: Vec<&str> = pair.iter().map(|m| m.role.as_str()).collect();
        match roles.as_slice() {
            ["user", "assistant"] => pairs.push((plain(&pair[0])?, plain(&pair[1])?)),
            ["user"] => pairs.push((plain(&pair[0])?, String::new())),
            roles => {
                return Err(format!(
                    "consecutive turns of {}: Alpaca alternates question and answer",
                    roles.join(" and ")
                ));
            }
        }
    }
    Ok(pairs)
}
