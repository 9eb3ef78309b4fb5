//! Replacement characters: an earlier program met invalid bytes and lost them.

use super::{Check, Kind, Severity};
use crate::data::inspect::row::{Row, parts};

pub const KIND: Kind = Kind {
    id: "broken_unicode",
    title: "Lost characters (U+FFFD)",
    severity: Severity::Warning,
    cleans: true,
    cause: "the text was once read in the wrong encoding, and undecodable characters became \u{fffd}",
    fix: "read the original again in its own encoding; or llmtui data clean IN --drop broken_unicode --out OUT",
    make: |_| Some(Box::new(BrokenUnicode)),
};

struct BrokenUnicode;

impl Check for BrokenUnicode {
    fn row(&mut self, row: &Row) -> Option<String> {
        let parts = parts(&row.example);
        let n: usize = parts
            .iter()
            .map(|part| part.text.matches('\u{fffd}').count())
            .sum();
        let part = parts.iter().find(|part| part.text.contains('\u{fffd}'))?;
        let at = part.text.find('\u{fffd}')?;
        Some(format!("{n} × in “{}”", around(&part.text, at, 12)))
    }
}

/// Some characters of a text around byte `at`, safe to show.
pub(super) fn around(text: &str, at: usize, n: usize) -> String {
    let before: Vec<char> = text[..at].chars().rev().take(n).collect();
    let piece: String = before
        .into_iter()
        .rev()
        .chain(text[at..].chars().take(n))
        .collect();
    crate::base::text::one_line(&piece)
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};

    #[test]
    fn lost_characters_are_counted_and_shown_in_place() {
        let mut check = testing::make("broken_unicode", Setup::default());
        let row = testing::text("caf\u{fffd} and na\u{fffd}ve");
        assert_eq!(
            check.row(&row).unwrap(),
            "2 × in “caf\u{fffd} and na\u{fffd}ve”"
        );
        assert_eq!(check.row(&testing::text("café")), None);
    }
}
