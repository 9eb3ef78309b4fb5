//! Rows that the chat template rejects.

use super::{Check, Kind, Severity};
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "unrendered",
    title: "Rows rejected by the template",
    severity: Severity::Problem,
    cleans: false,
    cause: "turns out of order, an unknown role, or an unusual tool call",
    fix: "fix the turns, or choose a template that accepts them (data.template)",
    make: |_| Some(Box::new(Unrendered)),
};

struct Unrendered;

impl Check for Unrendered {
    fn row(&mut self, row: &Row) -> Option<String> {
        row.fault.as_ref().map(|fault| fault.what.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};
    use crate::data::RowFault;

    #[test]
    fn the_templates_words_are_kept() {
        let mut row = testing::chat(&[("user", "a"), ("user", "b")]);
        let mut check = testing::make("unrendered", Setup::default());
        assert_eq!(check.row(&row), None);
        row.fault = Some(RowFault::new(&row.place, "roles must alternate", ""));
        assert_eq!(check.row(&row).unwrap(), "roles must alternate");
    }
}
