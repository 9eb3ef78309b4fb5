//! A call as people read it, and as a turn of a conversation has it.

use super::{AnswerReader, Call, Format, Part, Tools};
use serde_json::{Map, Value, json};

/// Values that are longer are written part by part, in columns.
const ON_A_LINE: usize = 60;
/// Ids of calls differ from turn to turn where no answer has more of them.
const CALLS_OF_A_TURN: usize = 100;
/// Columns that a part stands further in than its whole.
const INDENT: usize = 2;

/// A line, and the columns before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownLine {
    pub indent: usize,
    pub text: String,
}

impl Call {
    /// The arguments, each by its name: short values as JSON, long ones part by part, texts of several lines as they are.
    pub fn lines(&self) -> Vec<ShownLine> {
        let mut lines = Vec::new();
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(arguments)) => push_members(&arguments, 0, &mut lines),
            _ => lines.push(line(0, &self.arguments)),
        }
        lines
    }

    /// The same with an id, which templates want that write one: nine letters and digits, as Mistral's do. It is that of call number
    /// `at` of turn number `turn`.
    pub fn numbered(mut self, turn: usize, at: usize) -> Call {
        let number = CALLS_OF_A_TURN * turn + at;
        self.id
            .get_or_insert_with(|| format!("call{:05}", number % 100_000));
        self
    }

    /// What a message of the role `tool` has besides the result.
    pub fn result_fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("name".into(), self.name.as_str().into());
        if let Some(id) = &self.id {
            fields.insert("tool_call_id".into(), id.as_str().into());
        }
        fields
    }

    /// As in `tool_calls` of a message.
    pub fn as_value(&self) -> Value {
        let arguments: Value = serde_json::from_str(&self.arguments).unwrap_or_default();
        let mut call = json!({
            "type": "function",
            "function": {"name": self.name, "arguments": arguments},
        });
        if let Some(id) = &self.id {
            call["id"] = id.as_str().into();
        }
        call
    }
}

/// The parts of a whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadAnswer {
    /// What the model thought before it answered.
    pub thought: String,
    pub text: String,
    pub calls: Vec<Call>,
}

impl ReadAnswer {
    /// What a message of the role `assistant` has besides the text.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        if !self.thought.is_empty() {
            fields.insert("reasoning_content".into(), self.thought.as_str().into());
        }
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(Call::as_value).collect();
            fields.insert("tool_calls".into(), calls);
        }
        fields
    }
}

impl FromIterator<Part> for ReadAnswer {
    fn from_iter<T: IntoIterator<Item = Part>>(parts: T) -> ReadAnswer {
        let mut answer = ReadAnswer::default();
        for part in parts {
            match part {
                Part::Thought(more) => answer.thought.push_str(&more),
                Part::Text(more) => answer.text.push_str(&more),
                Part::Call(call) => answer.calls.push(call),
            }
        }
        answer
    }
}

/// The parts of a whole answer in this format.
pub fn read_all(format: &'static Format, tools: &Tools, answer: &str) -> ReadAnswer {
    let mut reader = AnswerReader::new(format, tools.clone());
    let mut parts = reader.push(answer);
    parts.extend(reader.finish());
    parts.into_iter().collect()
}

fn line(indent: usize, text: &str) -> ShownLine {
    let text = text.into();
    ShownLine { indent, text }
}

fn push_members(members: &Map<String, Value>, indent: usize, lines: &mut Vec<ShownLine>) {
    for (name, value) in members {
        push(&format!("{name}:"), value, indent, lines);
    }
}

fn push(before: &str, value: &Value, indent: usize, lines: &mut Vec<ShownLine>) {
    if let Value::String(text) = value
        && text.contains('\n')
    {
        lines.push(line(indent, before));
        lines.extend(text.lines().map(|row| line(indent + INDENT, row)));
        return;
    }
    let short = spaced(value);
    let is_short = before.chars().count() + short.chars().count() <= ON_A_LINE;
    match value {
        Value::Object(members) if !is_short => {
            lines.push(line(indent, before));
            push_members(members, indent + INDENT, lines);
        }
        Value::Array(items) if !is_short => {
            lines.push(line(indent, before));
            for item in items {
                push("-", item, indent + INDENT, lines);
            }
        }
        _ => lines.push(line(indent, &format!("{before} {short}"))),
    }
}

/// `{"a": 1, "b": [2, 3]}`
fn spaced(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members = members.iter();
            let members =
                members.map(|(name, value)| format!("{}: {}", json!(name), spaced(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_line_by_line() {
        let call = Call {
            name: "plan".into(),
            arguments: json!({
                "city": "Paris", "days": 3, "note": "one\ntwo", "near": {"lat": 1.5, "lon": [2]},
                "stops": [{"name": "a place with quite a long name", "at": "half past ten"}, "end of the journey"],
            })
            .to_string(),
            id: None,
        };
        let lines = call.lines().into_iter();
        let text: Vec<String> = lines
            .map(|l| format!("{}{}", " ".repeat(l.indent), l.text))
            .collect();
        let expected = r#"city: "Paris"
days: 3
note:
  one
  two
near: {"lat": 1.5, "lon": [2]}
stops:
  -
    name: "a place with quite a long name"
    at: "half past ten"
  - "end of the journey""#;
        assert_eq!(text.join("\n"), expected);
        let broken = Call {
            arguments: "[1".into(),
            ..call
        };
        assert_eq!(broken.lines(), [line(0, "[1")]);
        let call = broken.numbered(3, 7);
        assert_eq!(call.id.as_deref(), Some("call00307"));
        assert_eq!(
            json!(call.result_fields()),
            json!({"name": "plan", "tool_call_id": "call00307"})
        );
    }
}
