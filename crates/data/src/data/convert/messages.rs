//! OpenAI's and TRL's conversations: `messages`; pairs as `prompt`, `chosen`, `rejected` of turns; judged answers with a
//! `label`.

use super::{PLAIN_TEXT, Writer, conversation, into_conversation, turns};
use crate::data::{Content, Example, Message};
use serde_json::{Map, Value, json};

pub const WRITER: Writer = Writer {
    id: "messages",
    about: "conversations as OpenAI and TRL write them: messages with role and content",
    write,
    changes: into_conversation,
};

fn write(example: &Example) -> Result<Map<String, Value>, String> {
    let mut fields = Map::new();
    let mut put = |column: &str, messages: Vec<Message>| {
        fields.insert(column.into(), json!(messages));
    };
    match &example.content {
        Content::Text(_) => return Err(PLAIN_TEXT.into()),
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => {
            put("prompt", turns(prompt, "user"));
            put("chosen", turns(chosen, "assistant"));
            put("rejected", turns(rejected, "assistant"));
        }
        Content::Labelled {
            prompt,
            completion,
            desirable,
        } => {
            put("prompt", turns(prompt, "user"));
            put("completion", turns(completion, "assistant"));
            fields.insert("label".into(), (*desirable).into());
        }
        Content::Prompt { prompt, answer } => {
            put("prompt", turns(prompt, "user"));
            if let Some(answer) = answer {
                fields.insert("answer".into(), answer.clone().into());
            }
        }
        Content::Chat(_) | Content::Completion { .. } => {
            put("messages", conversation(example).unwrap_or_default());
        }
    }
    if let Some(tools) = &example.tools {
        fields.insert("tools".into(), tools.clone());
    }
    Ok(fields)
}
