//! Plain text: the column `text`.

use super::Writer;
use crate::data::{Content, Example};
use serde_json::{Map, Value};

pub const WRITER: Writer = Writer {
    id: "text",
    about: "only the column text",
    write,
    changes: |_| Vec::new(),
};

fn write(example: &Example) -> Result<Map<String, Value>, String> {
    match &example.content {
        Content::Text(text) => Ok(Map::from_iter([("text".to_string(), Value::from(text.clone()))])),
        _ => Err("turns have no plain text without a chat template; choose messages, sharegpt, alpaca or prompt_completion".into()),
    }
}
