//! A prompt and its completion, both as text or both as messages. Texts are continued verbatim, without a template.

use super::{Format, Shape, TOOLS, required};
use crate::base::registry::Entry;
use crate::data::Content;

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "prompt_completion",
        title: "Prompt and completion",
        summary: "A prompt and its completion, as consecutive texts or as messages.",
        source: "TRL's prompt-completion type; OpenAI's first fine-tuning format",
    },
    parts: &[
        required("prompt", &["prompt"], Shape::Prose),
        required("completion", &["completion", "response"], Shape::Prose),
        TOOLS,
    ],
    fits: |_| true,
    read: |row| {
        Ok(Content::Completion {
            prompt: row.prose("prompt")?,
            completion: row.prose("completion")?,
        })
    },
};
