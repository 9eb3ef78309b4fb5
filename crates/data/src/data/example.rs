//! One row of training data, independent of its file and format: the output of formats and the input of everything after
//! them. Opening files is in `source`, reading rows in `formats`, tokenization in `render`.

use super::{RowFault, Unit};
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

/// The content of a row. Methods differ in the kinds that they can train on.
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
    /// A prompt whose completion is generated in training: PPO, GRPO, RLOO. `answer` is the reference for verifiable rewards.
    Prompt {
        prompt: Turns,
        answer: Option<String>,
    },
}

impl Content {
    /// Its kind, in words, and the methods that train on it.
    fn kind(&self) -> (&'static str, &'static [&'static str]) {
        match self {
            Content::Text(_) => ("a text", &["pretrain"]),
            Content::Chat(_) => ("a conversation", &["sft"]),
            Content::Completion { .. } => ("a prompt with its answer", &["sft"]),
            Content::Preference { .. } => (
                "a pair of a chosen and a rejected answer",
                Unit::Pair.methods(),
            ),
            Content::Labelled { .. } => (
                "an answer with its label, good or bad",
                Unit::Judged.methods(),
            ),
            Content::Prompt { .. } => ("a prompt without an answer", Unit::Prompt.methods()),
        }
    }

    /// The fault of a row that a method cannot use: its kind, what the method needs, which methods can use it.
    pub fn unfit(&self, wanted: Unit, place: &Place) -> RowFault {
        let (what, methods) = self.kind();
        let readers = match methods {
            [one] => format!("use method {one}, which trains on such rows"),
            several => {
                let several = several.join(", ");
                format!("use one of the methods that train on such rows: {several}")
            }
        };
        RowFault::new(
            place,
            format!("{what}, but the method needs {}", wanted.needs()),
            format!("{readers}; or name the columns that it needs with data.format"),
        )
    }
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

/// The location of a row, for display: the file and the line (text formats) or the row (tables), from 1.
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
    fn a_row_of_another_kind_names_the_methods_that_learn_from_it() {
        let text = |text: &str| Turns::Text(text.into());
        let judged = Content::Labelled {
            prompt: text("a"),
            completion: text("b"),
            desirable: true,
        };
        let pair = Content::Preference {
            prompt: text("a"),
            chosen: text("b"),
            rejected: text("c"),
        };
        let place = Place {
            file: "rows.jsonl".into(),
            row: 1,
        };
        let fault = judged.unfit(Unit::Pair, &place);
        let what = "rows.jsonl:1: an answer with its label, good or bad, but the method needs a prompt with a chosen and a rejected answer";
        assert_eq!(fault.to_string(), what);
        assert!(fault.fix.starts_with("use method kto, "), "{}", fault.fix);
        let fault = pair.unfit(Unit::Judged, &place);
        assert!(fault.fix.contains("such rows: dpo, orpo,"), "{}", fault.fix);
    }

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
