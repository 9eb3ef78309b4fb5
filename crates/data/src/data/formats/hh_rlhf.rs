//! Transcripts in the format of Anthropic's hh-rlhf: one text with `Human:` and `Assistant:` before the turns.

use super::{Format, Row, Shape, pairs, required};
use crate::base::registry::Entry;
use crate::data::{Message, RowFault, Turns};

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "hh_rlhf",
        title: "hh-rlhf transcripts",
        summary: "A chosen and a rejected transcript with Human: and Assistant: before the turns.",
        source: "Anthropic's hh-rlhf (arXiv 2204.05862)",
    },
    parts: &[
        required("chosen", &["chosen"], Shape::Text),
        required("rejected", &["rejected"], Shape::Text),
    ],
    fits: is_transcript,
    read: |row| {
        let chosen = transcript(row, "chosen")?;
        let rejected = transcript(row, "rejected")?;
        pairs::split(row, Turns::Messages(chosen), Turns::Messages(rejected))
    },
};

const HUMAN: &str = "\n\nHuman:";
const ASSISTANT: &str = "\n\nAssistant:";

pub(super) fn is_transcript(row: &Row<'_>) -> bool {
    let is = |part| {
        let found = row.part(part).and_then(|f| f.value.as_str());
        found.is_some_and(|text| begins_with(text, HUMAN) && text.contains(ASSISTANT))
    };
    is("chosen") && is("rejected")
}

fn begins_with(text: &str, mark: &str) -> bool {
    text.trim_start().starts_with(mark.trim_start())
}

fn transcript(row: &Row<'_>, part: &str) -> Result<Vec<Message>, RowFault> {
    let text = row.text(part)?;
    if !begins_with(&text, HUMAN) {
        let start: String = text.chars().take(24).collect();
        let what = format!("{part}: a transcript that starts with `{start}`");
        return Err(row.fault(what, "transcripts start with `Human:`; for other texts: data.format: preference_implicit"));
    }
    // The first mark may lack its empty line.
    let mut rest = text.trim_start().trim_start_matches("Human:");
    let (mut role, mut messages) = ("user", Vec::new());
    loop {
        let next = [(HUMAN, "user"), (ASSISTANT, "assistant")]
            .into_iter()
            .filter_map(|(mark, role)| Some((rest.find(mark)?, mark, role)))
            .min();
        let end = next.map_or(rest.len(), |(at, ..)| at);
        messages.push(Message::new(role, rest[..end].trim()));
        let Some((at, mark, speaker)) = next else {
            return Ok(messages);
        };
        role = speaker;
        rest = &rest[at + mark.len()..];
    }
}
