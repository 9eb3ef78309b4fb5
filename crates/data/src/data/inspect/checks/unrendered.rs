//! Rows that the chat template rejects, and conversations without a template.

use super::{Check, Kind, RowFixes, Severity};
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "unrendered",
    title: "Rows rejected by the template",
    severity: Severity::Problem,
    cleans: false,
    cause: "turns out of order, an unknown role, or an unusual tool call",
    fix: "fix the turns, or choose a template that accepts them (data.template)",
    make: |_| Some(Box::new(Faults::of_tokenizer(false))),
};

/// Rows that make no document: by a fault of the tokenizer, or by another.
pub(super) struct Faults {
    of_tokenizer: bool,
    fixes: RowFixes,
}

impl Faults {
    pub(super) fn of_tokenizer(of_tokenizer: bool) -> Faults {
        Faults {
            of_tokenizer,
            fixes: RowFixes::default(),
        }
    }
}

impl Check for Faults {
    fn row(&mut self, row: &Row) -> Option<String> {
        let fault = row.fault.as_ref().filter(|fault| fault.of_tokenizer == self.of_tokenizer)?;
        self.fixes.add(&fault.fix);
        Some(fault.what.clone())
    }

    fn fix(&self) -> Option<String> {
        self.fixes.common()
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
        assert_eq!(check.fix(), None, "that of the kind");
    }

    #[test]
    fn the_fix_is_that_of_the_rows_where_they_have_one_in_common() {
        let mut row = testing::chat(&[("user", "a")]);
        let mut check = testing::make("unrendered", Setup::default());
        for (fix, common) in [
            ("set data.template", Some("set data.template")),
            ("set data.template", Some("set data.template")),
            ("drop the row", None),
            ("set data.template", None),
        ] {
            row.fault = Some(RowFault::new(&row.place, "no", fix));
            check.row(&row);
            assert_eq!(check.fix().as_deref(), common);
        }
    }
}
