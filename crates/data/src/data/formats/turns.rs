//! Turns of a conversation, in the two spellings of data sets: OpenAI's `role` and `content`, ShareGPT's `from` and `value`.
//! Tool calls are normalized to the form that chat templates expect.

use super::columns::nearest;
use super::row::{Found, Row, column_names, kind};
use super::weight;
use crate::base::near::did_you_mean;
use crate::data::{Message, RowFault, Turns};
use serde_json::{Map, Value, json};

/// Words for who speaks, and the role that a template knows.
const ROLES: [(&str, &str); 16] = [
    ("system", "system"),
    ("developer", "developer"),
    ("user", "user"),
    ("human", "user"),
    ("assistant", "assistant"),
    ("gpt", "assistant"),
    ("chatgpt", "assistant"),
    ("bing", "assistant"),
    ("bard", "assistant"),
    ("model", "assistant"),
    ("function_call", "assistant"),
    ("tool_call", "assistant"),
    ("tool", "tool"),
    ("function", "tool"),
    ("observation", "tool"),
    ("function_response", "tool"),
];

impl Row<'_> {
    /// A part that is a text or turns.
    pub fn prose(&self, part: &str) -> Result<Turns, RowFault> {
        let found = self.part(part).ok_or_else(|| self.missing(part))?;
        match found.value {
            Value::String(text) => Ok(Turns::Text(text.clone())),
            Value::Array(_) | Value::Object(_) => messages(self, found).map(Turns::Messages),
            other => Err(self.wrong(found, "a text or a list of messages", other)),
        }
    }

    /// A part that is a list of turns.
    pub fn messages(&self, part: &str) -> Result<Vec<Message>, RowFault> {
        let found = self.part(part).ok_or_else(|| self.missing(part))?;
        messages(self, found)
    }
}

/// The turns of a column; a single one counts as a list of one.
fn messages(row: &Row<'_>, found: Found<'_>) -> Result<Vec<Message>, RowFault> {
    let one;
    let items = match found.value {
        Value::Array(items) => items,
        Value::Object(_) => {
            one = vec![found.value.clone()];
            &one
        }
        other => return Err(row.wrong(found, "a list of messages", other)),
    };
    if items.is_empty() {
        let what = format!("{}: the conversation is empty", found.column);
        return Err(row.fault(what, "drop such rows, or data.on_bad_row: skip"));
    }
    let turns = items.iter().enumerate();
    turns
        .map(|(at, item)| turn(row, item, &format!("{} [{}]", found.column, at + 1)))
        .collect()
}

/// One turn. `place` says which, for display.
fn turn(row: &Row<'_>, item: &Value, place: &str) -> Result<Message, RowFault> {
    let Value::Object(fields) = item else {
        let what = format!("{place}: expected a message, found {}", kind(item));
        return Err(row.fault(what, r#"a message is {"role": "user", "content": "…"}"#));
    };
    let (role_key, said) = role(row, fields, place)?;
    let Some((_, role)) = ROLES.iter().find(|(word, _)| *word == said) else {
        let what = format!("{place}: unknown role `{said}`");
        let near = nearest(said, ROLES.iter().map(|(word, _)| *word));
        return Err(row.fault(what, match near {
            Some(near) => did_you_mean(near),
            None => "roles are system, user, assistant and tool (human, gpt, function_call, observation)".into(),
        }));
    };
    let content_key = ["content", "value", "text"]
        .into_iter()
        .find(|key| fields.contains_key(*key));
    let mut message = Message::new(*role, "");
    for (key, value) in fields {
        if key != role_key && Some(key.as_str()) != content_key && !value.is_null() {
            message.extra.insert(key.clone(), value.clone());
        }
    }
    if let Err(what) = weight::said(&message) {
        return Err(row.fault(format!("{place}: {what}"), weight::FIX));
    }
    if let Some(calls) = message.extra.get("tool_calls") {
        let calls = normal_calls(&without_nulls(calls)).ok_or_else(|| bad_call(row, place))?;
        message.extra.insert("tool_calls".into(), calls);
    }
    match content_key.map(|key| &fields[key]) {
        Some(Value::String(text)) if matches!(said, "function_call" | "tool_call") => {
            let calls = called(text).ok_or_else(|| bad_call(row, place))?;
            message.extra.insert("tool_calls".into(), calls);
        }
        Some(Value::String(text)) => message.content = text.clone(),
        Some(Value::Array(parts)) => add_parts(row, &mut message, parts, place)?,
        None | Some(Value::Null) if message.extra.contains_key("tool_calls") => {}
        None => {
            let names = column_names(fields.keys());
            let what = format!("{place}: a message without content; found: {names}");
            return Err(row.fault(what, "name its text `content` (or `value`)"));
        }
        Some(other) => {
            let what = format!("{place}: expected its text, found {}", kind(other));
            return Err(row.fault(
                what,
                "a message's content is a text, or a list of text parts",
            ));
        }
    }
    Ok(message)
}

fn role<'a>(
    row: &Row<'_>,
    fields: &'a Map<String, Value>,
    place: &str,
) -> Result<(&'static str, &'a str), RowFault> {
    let key = ["role", "from"]
        .into_iter()
        .find(|key| fields.contains_key(*key));
    match key.map(|key| (key, &fields[key])) {
        Some((key, Value::String(said))) => Ok((key, said)),
        Some((key, other)) => {
            let what = format!("{place}: its {key} is {}", kind(other));
            Err(row.fault(what, "a role is a string: user, assistant, system, tool"))
        }
        None => {
            let names = column_names(fields.keys());
            let what = format!("{place}: a message without role; found: {names}");
            Err(row.fault(
                what,
                "use the keys `role` (or `from`) and `content` (or `value`)",
            ))
        }
    }
}

fn bad_call(row: &Row<'_>, place: &str) -> RowFault {
    row.fault(
        format!("{place}: an invalid tool call"),
        r#"a call is {"name": "…", "arguments": {…}}, or a list of them"#,
    )
}

/// Parts of a content: texts are joined; thoughts and calls go where templates look for them.
fn add_parts(
    row: &Row<'_>,
    message: &mut Message,
    parts: &[Value],
    place: &str,
) -> Result<(), RowFault> {
    for part in parts {
        let kind = part["type"].as_str().unwrap_or("text");
        let text = part["text"].as_str().or_else(|| part["value"].as_str());
        match (kind, text) {
            ("text", Some(text)) => message.content.push_str(text),
            ("reasoning" | "thinking", Some(text)) => {
                let thoughts = message
                    .extra
                    .entry("reasoning_content")
                    .or_insert_with(|| json!(""));
                *thoughts =
                    Value::String(format!("{}{text}", thoughts.as_str().unwrap_or_default()));
            }
            ("tool_call", Some(text)) => {
                let calls = called(text).ok_or_else(|| bad_call(row, place))?;
                let known = message
                    .extra
                    .entry("tool_calls")
                    .or_insert_with(|| json!([]));
                if let (Some(known), Value::Array(calls)) = (known.as_array_mut(), calls) {
                    known.extend(calls);
                }
            }
            _ => {
                let what = format!("{place}: a part of kind `{kind}`, but only text is supported");
                return Err(row.fault(what, "drop such rows, or data.on_bad_row: skip"));
            }
        }
    }
    Ok(())
}

/// A value without the members that hold null: a table has one schema for all rows, and gives each call and each tool the
/// members of every other. JSON inside a text has its own.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let held = fields.iter().filter(|(_, value)| !value.is_null());
            held.map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Calls written as JSON inside a text.
fn called(text: &str) -> Option<Value> {
    normal_calls(&serde_json::from_str(text).ok()?)
}

/// `[{"type": "function", "function": {"name": …, "arguments": {…}}}]` from any of the usual spellings. Arguments that are
/// JSON inside a text become what they mean: templates write them as JSON themselves.
fn normal_calls(calls: &Value) -> Option<Value> {
    let one = |call: &Value| {
        let mut function = call.get("function").unwrap_or(call).as_object()?.clone();
        function.get("name")?.as_str()?;
        let arguments = function.entry("arguments").or_insert_with(|| json!({}));
        if let Some(inner) = arguments
            .as_str()
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
            && inner.is_object()
        {
            *arguments = inner;
        }
        let mut normal = Map::new();
        for (key, value) in call.as_object()? {
            if call.get("function").is_some() && key != "function" && !value.is_null() {
                normal.insert(key.clone(), value.clone());
            }
        }
        normal.insert("type".into(), "function".into());
        normal.insert("function".into(), Value::Object(function));
        Some(Value::Object(normal))
    };
    match calls {
        Value::Array(calls) => calls
            .iter()
            .map(one)
            .collect::<Option<Vec<_>>>()
            .map(Value::from),
        call => Some(json!([one(call)?])),
    }
}

/// The tools of a conversation: a list of descriptions, or that as JSON inside a text.
pub(super) fn tools(row: &Row<'_>) -> Result<Option<Value>, RowFault> {
    let Some(found) = row.part("tools") else {
        return Ok(None);
    };
    let bad = || {
        row.fault(
            format!(
                "{}: {} is not a list of tools",
                found.column,
                kind(found.value)
            ),
            r#"tools are [{"type": "function", "function": {"name": "…", "parameters": {…}}}]"#,
        )
    };
    let list = match found.value {
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => serde_json::from_str(text).map_err(|_| bad())?,
        other => without_nulls(other),
    };
    let Value::Array(list) = list else {
        return Err(bad());
    };
    let wrapped = list.into_iter().map(|tool| match tool {
        Value::Object(_) if tool.get("name").is_some() && tool.get("function").is_none() => {
            Some(json!({"type": "function", "function": tool}))
        }
        Value::Object(_) => Some(tool),
        _ => None,
    });
    let wrapped: Vec<Value> = wrapped.collect::<Option<_>>().ok_or_else(bad)?;
    Ok((!wrapped.is_empty()).then_some(Value::Array(wrapped)))
}

/// Earlier rounds go between a system prompt and the other turns.
pub(super) fn with_history(mut messages: Vec<Message>, rounds: Vec<Message>) -> Vec<Message> {
    let at = usize::from(messages.first().is_some_and(|m| m.role == "system"));
    messages.splice(at..at, rounds);
    messages
}

/// A `system` column goes in front of a conversation that has no such turn.
pub(super) fn with_system(mut messages: Vec<Message>, system: Option<String>) -> Vec<Message> {
    let has = messages.first().is_some_and(|m| m.role == "system");
    if let (Some(system), false) = (system, has) {
        messages.insert(0, Message::new("system", system));
    }
    messages
}
