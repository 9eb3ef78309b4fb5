//! Instructions in Alpaca's format. The input, if there is one, follows the instruction in the same turn.

use super::row::kind;
use super::turns::{with_history, with_system};
use super::{Format, Row, SYSTEM, Shape, optional, required};
use crate::base::registry::Entry;
use crate::data::{Content, Message, RowFault, Turns};
use serde_json::Value;

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "alpaca",
        title: "Alpaca",
        summary: "instruction, input and output, with optional system and history.",
        source: "Stanford Alpaca (Taori et al. 2023); LLaMA-Factory's data/README.md",
    },
    parts: &[
        required("instruction", &["instruction"], Shape::Text),
        optional("input", &["input"], Shape::Text),
        required("output", &["output"], Shape::Text),
        SYSTEM,
        // Part of the format: a row that has anything else there is at fault.
        optional("history", &["history"], Shape::List),
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
    prompt.push(Message::new("user", asked(row, "instruction")?));
    let output = row.text("output")?;
    Ok(Content::Completion {
        prompt: Turns::Messages(prompt),
        completion: Turns::Messages(vec![Message::new("assistant", output)]),
    })
}

/// An instruction and its input in one text.
pub(super) fn asked(row: &Row<'_>, part: &str) -> Result<String, RowFault> {
    let instruction = row.text(part)?;
    Ok(match row.optional_text("input")? {
        None => instruction,
        Some(input) if instruction.is_empty() => input,
        Some(input) => format!("{instruction}\n{input}"),
    })
}

/// A row's turns after what its columns `system` and `history` hold.
pub(super) fn with_opening(
    row: &Row<'_>,
    messages: Vec<Message>,
) -> Result<Vec<Message>, RowFault> {
    let system = row.optional_text("system")?;
    Ok(with_system(with_history(messages, history(row)?), system))
}

/// Rounds before: `[[asked, answered], …]`.
pub(super) fn history(row: &Row<'_>) -> Result<Vec<Message>, RowFault> {
    let Some(found) = row.part("history") else {
        return Ok(Vec::new());
    };
    let Value::Array(rounds) = found.value else {
        return Err(row.wrong(found, "a list of rounds", found.value));
    };
    let mut messages = Vec::new();
    for round in rounds {
        let pair = round.as_array().map(Vec::as_slice);
        let Some([Value::String(asked), Value::String(answered)]) = pair else {
            let what = format!("{}: a round is {}", found.column, kind(round));
            return Err(row.fault(what, r#"a round is ["question", "answer"]"#));
        };
        messages.push(Message::new("user", asked));
        messages.push(Message::new("assistant", answered));
    }
    Ok(messages)
}
