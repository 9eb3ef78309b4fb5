//! Thoughts that the template does not render: the model never sees them.

use super::{Check, Kind, Severity};
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "thoughts",
    title: "Thoughts dropped by the template",
    severity: Severity::Problem,
    cleans: false,
    cause: "the chat template does not render the thoughts of the last answer: the model learns to answer without thinking",
    fix: "choose a template that writes thoughts, e.g. qwen3 (data.template, --template), or write them into the answer's text",
    make: |_| Some(Box::new(Thoughts)),
};

struct Thoughts;

impl Check for Thoughts {
    fn row(&mut self, row: &Row) -> Option<String> {
        row.drops_thoughts
            .then(|| "the answer's thoughts are not rendered".into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};

    #[test]
    fn a_row_whose_thoughts_are_dropped_is_found() {
        let mut check = testing::make("thoughts", Setup::default());
        let mut row = testing::text("a");
        assert_eq!(check.row(&row), None);
        row.drops_thoughts = true;
        assert!(check.row(&row).unwrap().contains("not rendered"));
    }
}
