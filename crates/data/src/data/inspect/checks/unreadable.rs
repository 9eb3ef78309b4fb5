//! Rows that no format can read.

use super::{Check, Kind, Severity};
use crate::data::RowFault;
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "unreadable",
    title: "Unreadable rows",
    severity: Severity::Problem,
    cleans: true,
    cause: "a row lacks a column, has it under another name, is truncated, or is not UTF-8",
    fix: "fix the rows, map the columns, or set data.on_bad_row: skip",
    make: |_| Some(Box::new(Unreadable)),
};

struct Unreadable;

impl Check for Unreadable {
    fn row(&mut self, _row: &Row) -> Option<String> {
        None
    }

    fn fault(&mut self, fault: &RowFault) -> Option<String> {
        Some(match fault.fix.is_empty() {
            true => fault.what.clone(),
            false => format!("{}; {}", fault.what, fault.fix),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};
    use crate::data::{Place, RowFault};

    #[test]
    fn a_fault_is_told_with_its_fix() {
        let place = Place {
            file: "a.jsonl".into(),
            row: 3,
        };
        let fault = RowFault::new(&place, "no column `text`", "map it");
        let mut check = testing::make("unreadable", Setup::default());
        assert_eq!(check.fault(&fault).unwrap(), "no column `text`; map it");
        assert_eq!(check.row(&testing::text("x")), None);
    }
}
