//! TRL's plain columns: `prompt` and `completion`, `chosen` and `rejected`, `label`, each a text.

use super::{PLAIN_TEXT, Writer, no_tools, one_text, plain};
use crate::data::{Content, Example, Turns};
use serde_json::{Map, Value};

pub const WRITER: Writer = Writer {
    id: "prompt_completion",
    about: "prompt and completion (or chosen, rejected, label) as plain texts, as TRL reads them",
    write,
};

fn write(example: &Example) -> Result<Map<String, Value>, String> {
    no_tools(example)?;
    let mut fields = Map::new();
    let mut put = |column: &str, side: &Turns| -> Result<(), String> {
        let text = one_text(side, column)?;
        fields.insert(column.into(), text.into());
        Ok(())
    };
    match &example.content {
        Content::Text(_) => return Err(PLAIN_TEXT.into()),
        Content::Chat(messages) => match messages.as_slice() {
            [prompt, answer] if prompt.role == "user" && answer.role == "assistant" => {
                put("prompt", &Turns::Text(plain(prompt)?))?;
                put("completion", &Turns::Text(plain(answer)?))?;
            }
            messages => {
                return Err(format!(
                    "it has {} turns, and this format has one question and one answer",
                    messages.len()
                ));
            }
        },
        Content::Completion { prompt, completion } => {
            put("prompt", prompt)?;
            put("completion", completion)?;
        }
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => {
            put("prompt", prompt)?;
            put("chosen", chosen)?;
            put("rejected", rejected)?;
        }
        Content::Labelled {
            prompt,
            completion,
            desirable,
        } => {
            put("prompt", prompt)?;
            put("completion", completion)?;
            fields.insert("label".into(), (*desirable).into());
        }
        Content::Prompt { prompt, answer } => {
            put("prompt", prompt)?;
            if let Some(answer) = answer {
                fields.insert("answer".into(), Value::from(answer.clone()));
            }
        }
    }
    Ok(fields)
}
