//! JSON in the text of an answer, that may not be whole yet.

use super::Call;
use serde_json::{Map, Value};

/// What a text begins with.
pub(super) enum Json {
    /// A value, and how many bytes it takes.
    Whole(Value, usize),
    /// More text decides.
    Open,
    /// No JSON.
    Wrong,
}

impl Json {
    pub(super) fn begins(text: &str) -> Json {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        match values.next() {
            None => Json::Open,
            Some(Ok(value)) => Json::Whole(value, values.byte_offset()),
            Some(Err(error)) if error.is_eof() => Json::Open,
            Some(Err(_)) => Json::Wrong,
        }
    }
}

/// `{"name": …, "arguments": {…}}` as a call; some models write `parameters`, the arguments as the text of JSON, or none where
/// there are none.
pub(super) fn call(value: &Value) -> Option<Call> {
    let name = value
        .get("name")?
        .as_str()
        .filter(|name| !name.is_empty())?;
    let said = ["arguments", "parameters"]
        .iter()
        .find_map(|key| value.get(key));
    let arguments = match said {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(object @ Value::Object(_)) => object.clone(),
        Some(Value::String(text)) => {
            let parsed: Value = serde_json::from_str(text).ok()?;
            parsed.is_object().then_some(parsed)?
        }
        Some(_) => return None,
    };
    Some(Call {
        name: name.into(),
        arguments: arguments.to_string(),
        id: value.get("id").and_then(Value::as_str).map(String::from),
    })
}
