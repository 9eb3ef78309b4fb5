//! JSON in the text of an answer, that may not be whole yet. Arguments stay as the model wrote them but for the space between their
//! parts: numbers keep all their digits.

use super::Call;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What a text begins with.
pub(super) enum Json<'a> {
    /// A value, and how many bytes it takes.
    Whole(Written<'a>, usize),
    /// More text decides.
    Open,
    /// No JSON.
    Wrong,
}

/// A value, and the text that it was read from.
pub(super) struct Written<'a> {
    pub value: Value,
    text: &'a str,
}

impl<'a> Json<'a> {
    pub(super) fn begins(text: &'a str) -> Json<'a> {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        match values.next() {
            None => Json::Open,
            Some(Ok(value)) => {
                let len = values.byte_offset();
                let text = &text[..len];
                Json::Whole(Written { value, text }, len)
            }
            Some(Err(error)) if error.is_eof() => Json::Open,
            Some(Err(_)) => Json::Wrong,
        }
    }
}

impl<'a> Written<'a> {
    fn of(text: &'a str) -> Option<Written<'a>> {
        let value = serde_json::from_str(text).ok()?;
        Some(Written { value, text })
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Option<Vec<Written<'a>>> {
        let items: Vec<&'a RawValue> = serde_json::from_str(self.text).ok()?;
        items
            .into_iter()
            .map(|item| Written::of(item.get()))
            .collect()
    }

    /// The value of a key.
    fn member(&self, key: &str) -> Option<Written<'a>> {
        let all: BTreeMap<String, &'a RawValue> = serde_json::from_str(self.text).ok()?;
        let value: &'a RawValue = all.get(key).copied()?;
        Written::of(value.get())
    }

    /// As the text of an object; that text may itself be written as a text.
    pub(super) fn arguments(&self) -> Option<String> {
        match &self.value {
            Value::Null => Some("{}".into()),
            Value::Object(_) => Some(compact(self.text)),
            Value::String(text) => {
                let inner = Written::of(text)?;
                inner.value.is_object().then(|| compact(text))
            }
            _ => None,
        }
    }
}

/// `{"name": …, "arguments": {…}}` as a call; some models write `parameters`, the arguments as the text of JSON, or none where
/// there are none.
pub(super) fn call(written: &Written) -> Option<Call> {
    let value = &written.value;
    let name = value
        .get("name")?
        .as_str()
        .filter(|name| !name.is_empty())?;
    let said = ["arguments", "parameters"]
        .iter()
        .find_map(|key| written.member(key));
    let arguments = match said {
        None => "{}".into(),
        Some(said) => said.arguments()?,
    };
    Some(Call {
        name: name.into(),
        arguments,
        id: value.get("id").and_then(Value::as_str).map(String::from),
    })
}

/// JSON without the space between its parts.
pub(super) fn compact(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let is_kept = |c: &char| {
        let kept = is_text || !matches!(c, ' ' | '\n' | '\r' | '\t');
        match *c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_text = !is_text,
            _ => {}
        }
        kept
    };
    json.chars().filter(is_kept).collect()
}
