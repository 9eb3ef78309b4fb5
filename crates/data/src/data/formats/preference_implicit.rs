//! Two whole conversations, or texts, that begin the same: the prompt is their longest common beginning.

use super::pairs::split;
use super::{Format, SYSTEM, Shape, TOOLS, hh_rlhf, required};
use crate::base::registry::Entry;

pub(super) const FORMAT: Format = Format {
    entry: Entry {
        id: "preference_implicit",
        title: "Preference without a prompt column",
        summary: "A chosen and a rejected conversation or text; their common start is the prompt.",
        source: "TRL's preference type with an implicit prompt (extract_prompt)",
    },
    parts: &[
        required("chosen", &["chosen", "chosen_messages"], Shape::Prose),
        required("rejected", &["rejected", "rejected_messages"], Shape::Prose),
        SYSTEM,
        TOOLS,
    ],
    fits: |row| {
        let whole = |part| row.part(part).is_some_and(|f| !f.value.is_object());
        !hh_rlhf::is_transcript(row) && whole("chosen") && whole("rejected")
    },
    read: |row| split(row, row.prose("chosen")?, row.prose("rejected")?),
};
