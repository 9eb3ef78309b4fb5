//! Rows with text that the tokenizer has no tokens for.

use super::unrendered::Faults;
use super::{Kind, Severity};

pub const KIND: Kind = Kind {
    id: "unencodable",
    title: "Rows the tokenizer cannot encode",
    severity: Severity::Problem,
    cleans: false,
    cause: "the tokenizer's vocabulary does not cover the text",
    fix: "choose a tokenizer that covers every byte (data.tokenizer)",
    make: |_| Some(Box::new(Faults::of_tokenizer(true))),
};

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
