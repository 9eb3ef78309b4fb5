//! Conversations in OpenAI's format: `messages: [{role, content}]`, with tools and tool calls.

use super::turns::with_system;
use super::{Format, Row, SYSTEM, Shape, TOOLS, required};
use crate::base::registry::Entry;
use crate::data::{Content, RowFault};

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "messages",
        title: "Messages",
        summary: "Conversations as lists of {role, content}, with tools and tool calls.",
        source: "OpenAI's chat format; TRL's conversational language modelling",
    },
    parts: &[
        required(
            "messages",
            &["messages", "conversations", "conversation", "chat"],
            Shape::Roles,
        ),
        SYSTEM,
        TOOLS,
    ],
    fits: |_| true,
    read: |row| conversation(row, "messages"),
};

/// A conversation in which somebody answers.
pub(super) fn conversation(row: &Row<'_>, part: &str) -> Result<Content, RowFault> {
    let messages = with_system(row.messages(part)?, row.optional_text("system")?);
    if !messages.iter().any(|m| m.role == "assistant") {
        let fix = "for prompts without answers use data.format: prompt_only; else drop such rows";
        return Err(row.fault("a conversation without an assistant turn", fix));
    }
    Ok(Content::Chat(messages))
}
