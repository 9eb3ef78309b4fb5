//! A prompt and its completion, both as text or both as messages. Texts are continued verbatim, without a template, unless the
//! prompt is mapped as a `question`.

use super::{Format, QUESTION, Row, Shape, TOOLS, required};
use crate::base::registry::Entry;
use crate::data::{Content, Message, RowFault, Turns};

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "prompt_completion",
        title: "Prompt and completion",
        summary: "A prompt and its completion, as consecutive texts or as messages.",
        source: "TRL's prompt-completion type; OpenAI's first fine-tuning format",
    },
    parts: &[
        required("prompt", &["prompt"], Shape::Prose),
        QUESTION,
        required("completion", &["completion", "response"], Shape::Prose),
        TOOLS,
    ],
    fits: |_| true,
    read,
};

fn read(row: &Row<'_>) -> Result<Content, RowFault> {
    let (prompt, completion) = (row.prose("prompt")?, row.prose("completion")?);
    if !row.asks() {
        return Ok(Content::Completion { prompt, completion });
    }
    let turn = |side, role| match side {
        Turns::Text(text) => Turns::Messages(vec![Message::new(role, text)]),
        turns => turns,
    };
    Ok(Content::Completion {
        prompt: turn(prompt, "user"),
        completion: turn(completion, "assistant"),
    })
}
