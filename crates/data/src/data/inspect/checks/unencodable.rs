//! Rows with text that the tokenizer has no tokens for.

use super::{Check, Kind, RowFixes, Severity};
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "unencodable",
    title: "Rows the tokenizer cannot encode",
    severity: Severity::Problem,
    cleans: false,
    cause: "the tokenizer's vocabulary does not cover the text",
    fix: "choose a tokenizer that covers every byte (data.tokenizer)",
    make: |_| Some(Box::new(Unencodable::default())),
};

#[derive(Default)]
struct Unencodable {
    fixes: RowFixes,
}

impl Check for Unencodable {
    fn row(&mut self, row: &Row) -> Option<String> {
        let fault = row.fault.as_ref().filter(|fault| fault.of_tokenizer)?;
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
    fn a_fault_of_the_tokenizer_is_not_the_templates_and_keeps_its_fix() {
        let mut row = testing::text("a");
        let mut checks =
            ["unencodable", "unrendered"].map(|id| testing::make(id, Setup::default()));
        row.fault = Some(RowFault {
            of_tokenizer: true,
            ..RowFault::new(&row.place, "the character 'ß'", "use bpe")
        });
        let told = checks.each_mut().map(|check| check.row(&row));
        assert_eq!(told, [Some("the character 'ß'".to_string()), None]);
        let fixes = checks.each_ref().map(|check| check.fix());
        assert_eq!(fixes, [Some("use bpe".to_string()), None]);
    }
}
