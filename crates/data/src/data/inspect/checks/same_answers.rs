//! Pairs without a preference: both answers are identical.

use super::{Check, Kind, Severity};
use crate::data::Content;
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "same_answers",
    title: "Pairs with equal answers",
    severity: Severity::Warning,
    cleans: true,
    cause: "chosen and rejected are the same text: the pair has no signal, and its loss stays at ln 2",
    fix: "llmtui data clean IN --drop same_answers --out OUT",
    make: |_| Some(Box::new(SameAnswers)),
};

struct SameAnswers;

impl Check for SameAnswers {
    fn row(&mut self, row: &Row) -> Option<String> {
        match &row.example.content {
            Content::Preference {
                chosen, rejected, ..
            } if chosen == rejected => Some("chosen and rejected are equal".into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};

    #[test]
    fn only_equal_answers_are_found() {
        let mut check = testing::make("same_answers", Setup::default());
        assert!(check.row(&testing::pair("a", "a")).is_some());
        assert_eq!(check.row(&testing::pair("a", "b")), None);
        assert_eq!(check.row(&testing::text("a")), None);
    }
}
