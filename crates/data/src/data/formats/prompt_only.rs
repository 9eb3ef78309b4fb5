//! Prompts for RL, with the reference answer if rewards compare with one.

use super::alpaca::with_opening;
use super::{Format, HISTORY, QUESTION, Row, SYSTEM, Shape, TOOLS, optional, required};
use crate::base::registry::Entry;
use crate::data::{Content, Message, RowFault, Turns};
use serde_json::Value;

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "prompt_only",
        title: "Prompts",
        summary: "Prompts for PPO, GRPO and RLOO, with the correct answer if there is one.",
        source: "TRL's prompt-only type; GSM8K (arXiv 2110.14168): the answer follows ####",
    },
    parts: &[
        required("prompt", &["prompt", "question", "problem"], Shape::Prose),
        QUESTION,
        optional("answer", &["answer", "ground_truth", "target", "solution"], Shape::Any),
        SYSTEM,
        HISTORY,
        TOOLS,
    ],
    fits: |_| true,
    read,
};

fn read(row: &Row<'_>) -> Result<Content, RowFault> {
    let column = row.part("prompt").map_or("", |found| found.column);
    let turns = |messages| with_opening(row, messages).map(Turns::Messages);
    let prompt = match row.prose("prompt")? {
        Turns::Messages(messages) => turns(messages)?,
        // A text under the name `prompt` is continued verbatim; a question is a user turn.
        Turns::Text(text)
            if text.is_empty() || (column == "prompt" && !row.prompts_are_turns()) =>
        {
            Turns::Text(text)
        }
        Turns::Text(text) => turns(vec![Message::new("user", text)])?,
    };
    let answer = match row.part("answer") {
        None => None,
        Some(found) => Some(match found.value {
            Value::String(text) => final_answer(text),
            Value::Number(n) => n.to_string(),
            Value::Bool(b) => b.to_string(),
            other => return Err(row.wrong(found, "an answer, a text or a number,", other)),
        }),
    };
    Ok(Content::Prompt { prompt, answer })
}

/// GSM8K writes the way to the answer, `####`, and the answer, with commas in large numbers.
fn final_answer(text: &str) -> String {
    match text.rsplit_once("####") {
        None => text.trim().to_string(),
        Some((_, answer)) => {
            let answer = answer.trim();
            let number = answer.replace(',', "");
            match number.parse::<f64>() {
                Ok(_) => number,
                Err(_) => answer.to_string(),
            }
        }
    }
}
