//! Single answers labelled good or bad.

use super::alpaca::{asked, with_opening};
use super::{Format, HISTORY, QUESTION, Row, SYSTEM, Shape, TOOLS, optional, required};
use crate::base::registry::Entry;
use crate::data::{Content, Message, RowFault, Turns};

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "kto",
        title: "Labelled answers",
        summary: "An answer and whether it is desirable, with its prompt or as a conversation.",
        source: "KTO (arXiv 2402.01306): TRL's unpaired preference type; LLaMA-Factory's kto_tag",
    },
    parts: &[
        optional("prompt", &["prompt", "instruction", "question"], Shape::Prose),
        QUESTION,
        optional("input", &["input"], Shape::Text),
        optional("completion", &["completion", "response", "output"], Shape::Prose),
        optional("messages", &["messages", "conversations"], Shape::Prose),
        required("label", &["label", "kto_tag"], Shape::Label),
        SYSTEM,
        HISTORY,
        TOOLS,
    ],
    fits: |row| {
        let has = |part| row.part(part).is_some();
        has("messages") || (has("prompt") && has("completion"))
    },
    read,
};

fn read(row: &Row<'_>) -> Result<Content, RowFault> {
    let desirable = row.label("label")?;
    if row.part("messages").is_some() && row.part("completion").is_none() {
        let mut messages = with_opening(row, row.messages("messages")?)?;
        let last = messages.pop().filter(|m| m.role == "assistant" && !messages.is_empty());
        let answer = last.ok_or_else(|| {
            let fix = "the label applies to the last turn, which must be an assistant's answer";
            row.fault("a conversation that does not end with an answer", fix)
        })?;
        return Ok(Content::Labelled {
            prompt: Turns::Messages(messages),
            completion: Turns::Messages(vec![answer]),
            desirable,
        });
    }
    let column = row.part("prompt").map_or("", |found| found.column);
    let completion = row.prose("completion")?;
    let verbatim = column == "prompt" && !row.prompts_are_turns();
    let texts = verbatim && matches!(completion, Turns::Text(_));
    let prompt = match row.prose("prompt")? {
        Turns::Text(text) if texts => {
            return Ok(Content::Labelled {
                prompt: Turns::Text(text),
                completion,
                desirable,
            });
        }
        Turns::Text(_) => vec![Message::new("user", asked(row, "prompt")?)],
        Turns::Messages(messages) => messages,
    };
    let completion = match completion {
        Turns::Text(text) => vec![Message::new("assistant", text)],
        Turns::Messages(messages) => messages,
    };
    Ok(Content::Labelled {
        prompt: Turns::Messages(with_opening(row, prompt)?),
        completion: Turns::Messages(completion),
        desirable,
    })
}
