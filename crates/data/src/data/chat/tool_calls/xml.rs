//! `<tool_call><function=name><parameter=x>…</parameter></function></tool_call>`: Qwen3-Coder and Qwen 3.5. A value is text; which
//! kind of value it stands for is known from the tool's definition.

mod write;

use super::json::compact;
use super::{Block, Call, Format, Reading};
use serde_json::Value;

const START: &str = "<tool_call>";
const END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

pub(super) const FORMAT: Format = Format {
    word: "qwen_xml",
    // Models leave out the first one at times.
    marks: &[START, FUNCTION],
    bare: None,
    read,
    write: write::calls,
    turn_ends: &[],
    thinks: None,
};

/// Why a text is not a whole call.
enum Not {
    Whole,
    Call,
}

fn read(text: &str, reading: Reading) -> Block {
    let mut rest = Rest(text);
    match function(&mut rest, reading) {
        Ok(call) => Block::Calls(vec![call], text.len() - rest.0.len()),
        Err(Not::Whole) => Block::Open,
        Err(Not::Call) => Block::Text,
    }
}

fn function(rest: &mut Rest, reading: Reading) -> Result<Call, Not> {
    let is_wrapped = rest.take(START).is_ok();
    rest.take(FUNCTION)?;
    let name = rest.until(">")?.trim();
    if name.is_empty() || name.contains(['<', '\n']) {
        return Err(Not::Call);
    }
    let mut arguments: Vec<(&str, String)> = Vec::new();
    while rest.either(PARAMETER, FUNCTION_END)? {
        let parameter = rest.until(">")?.trim();
        let written = rest.value()?;
        let written = written.strip_prefix('\n').unwrap_or(written);
        let written = written.strip_suffix('\n').unwrap_or(written);
        let schema = reading.tools.parameter(name, parameter);
        arguments.retain(|(other, _)| *other != parameter);
        arguments.push((parameter, value(written, schema)));
    }
    match rest.take(END) {
        // The model may end its turn instead.
        Err(Not::Whole) if reading.is_end => rest.0 = "",
        // Where the first mark is left out, so may be the last one.
        Err(Not::Call) if !is_wrapped => {}
        taken => taken?,
    }
    let pairs = arguments.iter();
    let pairs: Vec<String> = pairs
        .map(|(key, value)| format!("{}:{value}", Value::from(*key)))
        .collect();
    Ok(Call {
        name: name.into(),
        arguments: format!("{{{}}}", pairs.join(",")),
        id: None,
    })
}

/// The value of a parameter whose schema takes it, as JSON. Without a schema, and where it takes texts, a text.
fn value(written: &str, schema: Option<&Value>) -> String {
    let text = || Value::from(written).to_string();
    let Some(schema) = schema else {
        return text();
    };
    let mut kinds = Vec::new();
    kinds_of(schema, &mut kinds);
    let takes = |word: &str| kinds.contains(&word);
    let trimmed = written.trim();
    match trimmed {
        "null" | "None" if takes("null") => return "null".into(),
        _ if takes("string") => return text(),
        // As Python writes them.
        "True" if takes("boolean") => return "true".into(),
        "False" if takes("boolean") => return "false".into(),
        _ => {}
    }
    match serde_json::from_str::<Value>(trimmed) {
        Ok(_) => compact(trimmed),
        Err(_) => text(),
    }
}

/// The kinds of values that a schema takes, in any of its parts.
fn kinds_of<'a>(schema: &'a Value, kinds: &mut Vec<&'a str>) {
    match &schema["type"] {
        Value::String(only) => kinds.push(only),
        Value::Array(several) => kinds.extend(several.iter().filter_map(Value::as_str)),
        _ => {}
    }
    let values = schema["enum"].as_array().into_iter().flatten();
    kinds.extend(
        values
            .chain(schema.get("const"))
            .map(|value| -> &str { kind(value) }),
    );
    for key in ["anyOf", "oneOf", "allOf"] {
        for part in schema[key].as_array().into_iter().flatten() {
            kinds_of(part, kinds);
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What is not read yet.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Takes a word, with the space before it.
    fn take(&mut self, word: &str) -> Result<(), Not> {
        let text = self.0.trim_start();
        match text.strip_prefix(word) {
            Some(rest) => {
                self.0 = rest;
                Ok(())
            }
            None if word.starts_with(text) => Err(Not::Whole),
            None => Err(Not::Call),
        }
    }

    /// Takes the first word, or else the second; true if it was the first.
    fn either(&mut self, first: &str, second: &str) -> Result<bool, Not> {
        let Err(first) = self.take(first) else {
            return Ok(true);
        };
        match (first, self.take(second)) {
            (_, Ok(())) => Ok(false),
            (Not::Call, Err(second)) => Err(second),
            (Not::Whole, Err(_)) => Err(Not::Whole),
        }
    }

    /// Takes a parameter's value and its end, behind which come another parameter or the function's end: a text may hold the mark.
    fn value(&mut self) -> Result<&'a str, Not> {
        let all = self.0;
        let mut ends = all.match_indices(PARAMETER_END);
        let end = ends.find(|(at, end)| {
            let after = all[at + end.len()..].trim_start();
            let is_next = |word: &str| after.starts_with(word) || word.starts_with(after);
            is_next(PARAMETER) || is_next(FUNCTION_END)
        });
        let (at, end) = end.ok_or(Not::Whole)?;
        self.0 = &all[at + end.len()..];
        Ok(&all[..at])
    }

    /// Takes everything before a word, and the word.
    fn until(&mut self, word: &str) -> Result<&'a str, Not> {
        let (before, rest) = self.0.split_once(word).ok_or(Not::Whole)?;
        self.0 = rest;
        Ok(before)
    }
}
