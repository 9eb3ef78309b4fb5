//! ShareGPT as LLaMA-Factory reads it: `conversations` of `from` and `value`, `system`, `tools`; pairs with `chosen` and
//! `rejected` turns, judged answers with `kto_tag`.

use super::{PLAIN_TEXT, Writer, into_conversation, joined, turns};
use crate::data::{Content, Example, Message, Turns};
use serde_json::{Map, Value, json};

pub const WRITER: Writer = Writer {
    id: "sharegpt",
    about: "conversations as ShareGPT and LLaMA-Factory write them: from and value",
    write,
    changes: into_conversation,
};

fn write(example: &Example) -> Result<Map<String, Value>, String> {
    let mut fields = Map::new();
    let (messages, more) = match &example.content {
        Content::Text(_) => return Err(PLAIN_TEXT.into()),
        Content::Chat(messages) => (messages.clone(), Vec::new()),
        Content::Completion { prompt, completion } => (joined(prompt, completion), Vec::new()),
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => {
            let sides = vec![("chosen", answer(chosen)?), ("rejected", answer(rejected)?)];
            (turns(prompt, "user"), sides)
        }
        Content::Labelled {
            prompt,
            completion,
            desirable,
        } => {
            let tag = vec![("kto_tag", Value::Bool(*desirable))];
            (joined(prompt, completion), tag)
        }
        Content::Prompt { prompt, answer } => {
            let answer = answer.iter().map(|a| ("answer", Value::from(a.clone())));
            (turns(prompt, "user"), answer.collect())
        }
    };
    // An empty column is read as no system prompt, where a template has one of its own: an empty prompt is a turn. So is one that
    // says more than its text.
    let (system, rest) = match messages.split_first() {
        Some((first, rest))
            if first.role == "system" && !first.content.is_empty() && first.extra.is_empty() =>
        {
            (Some(first), rest)
        }
        _ => (None, &*messages),
    };
    let mut conversation = Vec::new();
    for message in rest {
        conversation.extend(turn(message)?);
    }
    fields.insert("conversations".into(), conversation.into());
    if let Some(system) = system {
        fields.insert("system".into(), system.content.clone().into());
    }
    for (column, value) in more {
        fields.insert(column.into(), value);
    }
    if let Some(tools) = &example.tools {
        // A text of JSON, as LLaMA-Factory's own sets have it.
        fields.insert("tools".into(), tools.to_string().into());
    }
    Ok(fields)
}

/// A side of a pair is one turn.
fn answer(side: &Turns) -> Result<Value, String> {
    let messages = turns(side, "assistant");
    match messages.as_slice() {
        [message] => match turn(message)?.as_slice() {
            [turn] => Ok(turn.clone()),
            _ => Err(
                "an answer has text and tool calls, but ShareGPT pairs have one turn per side"
                    .into(),
            ),
        },
        messages => Err(format!(
            "an answer has {} turns, but ShareGPT pairs have one per side",
            messages.len()
        )),
    }
}

/// A message is a turn; one that calls tools becomes one turn a call.
fn turn(message: &Message) -> Result<Vec<Value>, String> {
    let from = match message.role.as_str() {
        "user" => "human",
        "assistant" => "gpt",
        "tool" => "observation",
        "system" => "system",
        role => return Err(format!("ShareGPT has no turn of `{role}`")),
    };
    let mut turns = Vec::new();
    if !message.content.is_empty() || message.extra.is_empty() {
        turns.push(json!({"from": from, "value": message.content}));
    }
    for (key, value) in &message.extra {
        match (key.as_str(), value) {
            ("tool_calls", Value::Array(calls)) => {
                for call in calls {
                    let function = call.get("function").unwrap_or(call);
                    turns.push(json!({"from": "function_call", "value": function.to_string()}));
                }
            }
            // Told by the turn's place.
            ("tool_call_id" | "name", _) if from == "observation" => {}
            (key, _) => {
                return Err(format!(
                    "a turn of {} has `{key}`, which ShareGPT cannot represent",
                    message.role
                ));
            }
        }
    }
    Ok(turns)
}
