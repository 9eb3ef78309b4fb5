//! A question and its answer, as turns of a conversation; context, if there is any, follows the question.

use super::alpaca::history;
use super::{Format, HISTORY, Row, SYSTEM, Shape, optional, required};
use crate::base::registry::Entry;
use crate::data::{Content, Message, RowFault, Turns};

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "instruction_response",
        title: "Instruction and response",
        summary: "A question or instruction and its answer, with optional context.",
        source: "Databricks Dolly 15k; OpenOrca; MetaMathQA",
    },
    parts: &[
        required("instruction", &["instruction", "question", "query"], Shape::Text),
        optional("context", &["context"], Shape::Text),
        required("response", &["response", "answer", "completion"], Shape::Text),
        SYSTEM,
        HISTORY,
    ],
    fits: |_| true,
    read,
};

fn read(row: &Row<'_>) -> Result<Content, RowFault> {
    let mut prompt = Vec::new();
    if let Some(system) = row.optional_text("system")? {
        prompt.push(Message::new("system", system));
    }
    prompt.extend(history(row)?);
    let mut asked = row.text("instruction")?;
    if let Some(context) = row.optional_text("context")? {
        asked = format!("{asked}\n{context}");
    }
    prompt.push(Message::new("user", asked));
    Ok(Content::Completion {
        prompt: Turns::Messages(prompt),
        completion: Turns::Messages(vec![Message::new("assistant", row.text("response")?)]),
    })
}
