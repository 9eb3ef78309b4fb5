//! Prompts beside columns with text that nobody reads: often the answers, under names that no format knows.

use super::{Check, Kind, Severity};
use crate::data::Content;
use crate::data::formats::{is_answer, texts};
use crate::data::inspect::row::Row;
use std::collections::BTreeSet;

pub const KIND: Kind = Kind {
    id: "unread_columns",
    title: "Columns beside the prompt that are not read",
    severity: Severity::Warning,
    cleans: false,
    cause: "the rows are read as prompts alone: a method that learns answers has none, and rewards alone see the other columns",
    fix: "name the answers: -s data.columns.completion=COLUMN; of pairs -s data.columns.chosen=COLUMN -s data.columns.rejected=COLUMN",
    make: |_| Some(Box::new(UnreadColumns::default())),
};

#[derive(Default)]
struct UnreadColumns {
    columns: BTreeSet<String>,
}

impl Check for UnreadColumns {
    fn row(&mut self, row: &Row) -> Option<String> {
        // Beside a reference the rest are remarks.
        let Content::Prompt { answer: None, .. } = &row.example.content else {
            return None;
        };
        let mut unread: Vec<&str> = texts(&row.example.extra).collect();
        unread.sort_unstable();
        self.columns.extend(unread.iter().map(|name| (*name).to_string()));
        let noun = if unread.len() == 1 { "column" } else { "columns" };
        (!unread.is_empty()).then(|| format!("{noun} {}", unread.join(", ")))
    }

    fn severity(&self, _share: f64) -> Option<Severity> {
        let answers = self.columns.iter().any(|name| is_answer(name));
        (!answers).then_some(Severity::Note)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, Severity, testing};
    use crate::data::{Content, Turns};
    use serde_json::json;

    #[test]
    fn answers_under_other_names_are_a_warning_and_remarks_a_note() {
        let row = |answer: Option<&str>, extra: serde_json::Value| {
            let mut row = testing::row(Content::Prompt {
                prompt: Turns::Text("q".into()),
                answer: answer.map(String::from),
            });
            row.example.extra = extra.as_object().unwrap().clone();
            row
        };
        let make = || testing::make("unread_columns", Setup::default());
        let mut check = make();
        assert_eq!(check.row(&row(None, json!({"id": "7", "n": 3}))), None);
        assert_eq!(check.row(&row(Some("4"), json!({"good": "a"}))), None);
        let remark = row(None, json!({"hint": "a"}));
        assert_eq!(check.row(&remark).unwrap(), "column hint");
        assert_eq!(check.severity(1.0), Some(Severity::Note));
        let pair = row(None, json!({"good": "a", "bad": "b"}));
        assert_eq!(check.row(&pair).unwrap(), "columns bad, good");
        assert_eq!(check.severity(1.0), None, "a warning, as the kind says");
    }
}
