//! One row of training data, whatever file and format it came from: what formats make and everything after them reads.
//! How files are opened is `source`'s matter, how rows are read `formats`', how text becomes tokens `render`'s.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// One turn of a conversation, in the shape that chat templates read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`; templates may know others.
    pub role: String,
    /// Empty where a turn only calls tools.
    #[serde(default)]
    pub content: String,
    /// OpenAI's `tool_calls`, `tool_call_id`, `name` and whatever else a template may ask for.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message {
            role: role.into(),
            content: content.into(),
            extra: Map::new(),
        }
    }
}

/// A side of an example: plain text that is trained on as it is, or turns that a chat template renders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Turns {
    Text(String),
    Messages(Vec<Message>),
}

/// What a row holds. Methods differ in the kinds that they can learn from.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text to continue: pretraining.
    Text(String),
    /// A whole conversation: SFT.
    Chat(Vec<Message>),
    /// A prompt and the answer to learn: SFT.
    Completion { prompt: Turns, completion: Turns },
    /// Two answers to one prompt, of which one is preferred: DPO and its kin, reward models.
    Preference {
        prompt: Turns,
        chosen: Turns,
        rejected: Turns,
    },
    /// An answer judged alone: KTO.
    Labelled {
        prompt: Turns,
        completion: Turns,
        desirable: bool,
    },
    /// A prompt whose answer is made in training: PPO, GRPO, RLOO. `answer` is what a verifiable reward compares with.
    Prompt {
        prompt: Turns,
        answer: Option<String>,
    },
}

/// A row, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    pub content: Content,
    /// JSON schemas of the tools that a conversation may call, as templates take them.
    pub tools: Option<Value>,
    /// Columns that no format claimed; rewards may ask for them.
    pub extra: Map<String, Value>,
}

impl Example {
    pub fn new(content: Content) -> Example {
        Example {
            content,
            tools: None,
            extra: Map::new(),
        }
    }
}

/// Where a row stands, for people: the file and the line (text formats) or the row (tables), from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: Arc<str>,
    pub row: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.row)
    }
}

/// A row as a file holds it, before any format has looked at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub place: Place,
    /// Columns by name. A line or a document of plain text has the one column `text`.
    pub fields: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_what_it_does_not_know() {
        let json = r#"{"role":"assistant","content":"","tool_calls":[{"id":"1"}]}"#;
        let message: Message = serde_json::from_str(json).unwrap();
        assert!(message.extra.contains_key("tool_calls"));
        assert_eq!(serde_json::to_string(&message).unwrap(), json);
    }

    #[test]
    fn a_place_reads_as_compilers_write_it() {
        let place = Place {
            file: "chat.jsonl".into(),
            row: 812,
        };
        assert_eq!(place.to_string(), "chat.jsonl:812");
    }
}
