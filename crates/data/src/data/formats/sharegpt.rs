//! Conversations in ShareGPT's format: `conversations: [{from, value}]`.

use super::messages::conversation;
use super::{Format, SYSTEM, Shape, TOOLS, required};
use crate::base::registry::Entry;

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "sharegpt",
        title: "ShareGPT",
        summary: "Conversations as lists of {from, value} by human, gpt, function_call and observation.",
        source: "ShareGPT's export; LLaMA-Factory's data/README.md",
    },
    parts: &[
        required(
            "conversations",
            &["conversations", "conversation", "messages"],
            Shape::Senders,
        ),
        SYSTEM,
        TOOLS,
    ],
    fits: |_| true,
    read: |row| conversation(row, "conversations"),
};
