//! Plain text to continue: pretraining.

use super::{Format, Shape, required};
use crate::base::registry::Entry;
use crate::data::Content;

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "text",
        title: "Plain text",
        summary: "A column with text, all of it supervised.",
        source: "Hugging Face datasets' convention: a column called text",
    },
    parts: &[required("text", &["text", "content"], Shape::Text)],
    fits: |_| true,
    read: |row| Ok(Content::Text(row.text("text")?)),
};
