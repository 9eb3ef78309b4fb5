//! Two answers to one prompt in its own column.

use super::alpaca::{asked, with_opening};
use super::{Format, HISTORY, QUESTION, Row, SYSTEM, Shape, TOOLS, optional, pairs, required};
use crate::base::registry::Entry;
use crate::data::{Content, Message, RowFault, Turns};

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "preference",
        title: "Preference",
        summary: "A prompt with a chosen and a rejected answer.",
        source: "TRL's preference type with an explicit prompt; LLaMA-Factory's ranking",
    },
    parts: &[
        required(
            "prompt",
            &["prompt", "conversations", "messages", "instruction", "question"],
            Shape::Prose,
        ),
        QUESTION,
        optional("input", &["input"], Shape::Text),
        required("chosen", &["chosen"], Shape::Prose),
        required("rejected", &["rejected"], Shape::Prose),
        SYSTEM,
        HISTORY,
        TOOLS,
    ],
    fits: |_| true,
    read,
};

fn read(row: &Row<'_>) -> Result<Content, RowFault> {
    let (chosen, rejected) = (row.prose("chosen")?, row.prose("rejected")?);
    // Whole conversations on both sides: the prompt column only repeats how they begin.
    if let (Turns::Messages(c), Turns::Messages(r)) = (&chosen, &rejected)
        && [c, r].iter().all(|m| m.len() > 1 && m[0].role != "assistant")
    {
        return pairs::split(row, chosen, rejected);
    }
    if chosen == rejected {
        return Err(pairs::same(row));
    }
    let column = row.part("prompt").map_or("", |found| found.column);
    let turns = |messages| with_opening(row, messages).map(Turns::Messages);
    let prompt = match row.prose("prompt")? {
        Turns::Messages(messages) => turns(messages)?,
        // A text under the name `prompt` is continued verbatim, unless the answers are turns.
        Turns::Text(text)
            if column == "prompt" && !row.prompts_are_turns() && is_text(&chosen) =>
        {
            Turns::Text(text)
        }
        Turns::Text(_) => turns(vec![Message::new("user", asked(row, "prompt")?)])?,
    };
    let is_chat = !is_text(&prompt);
    let answer = |turns: Turns| match turns {
        Turns::Text(text) if is_chat => Turns::Messages(vec![Message::new("assistant", text)]),
        other => other,
    };
    Ok(Content::Preference {
        prompt,
        chosen: answer(chosen),
        rejected: answer(rejected),
    })
}

fn is_text(turns: &Turns) -> bool {
    matches!(turns, Turns::Text(_))
}
