//! Training rows that quote an evaluation set: scores on it then measure memorization.

use super::overlap::{left_out, met, quotes};
use super::{Check, Kind, Severity};
use crate::data::inspect::ngrams::Reference;
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "contamination",
    title: "Evaluation text in the training rows",
    severity: Severity::Problem,
    cleans: true,
    cause: "an evaluation set got into the training data: its score will measure memorization",
    fix: "llmtui data clean IN --against EVAL --drop contamination --out OUT",
    make: |setup| {
        let references = std::mem::take(&mut setup.against);
        (!references.is_empty()).then(|| Box::new(Contamination { references }) as Box<dyn Check>)
    },
};

struct Contamination {
    references: Vec<Reference>,
}

impl Check for Contamination {
    fn row(&mut self, row: &Row) -> Option<String> {
        // All of them: each counts its own matches.
        let hits: Vec<String> = self
            .references
            .iter_mut()
            .filter_map(|reference| quotes(reference, row))
            .collect();
        (!hits.is_empty()).then(|| hits.join(", "))
    }

    fn evidence(&self) -> Option<String> {
        Some(self.references.iter().map(met).collect::<Vec<_>>().join("; "))
    }

    fn limit(&self) -> Option<String> {
        let words: Vec<String> = self.references.iter().filter_map(left_out).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};
    use crate::data::inspect::ngrams::Reference;

    #[test]
    fn every_set_keeps_its_own_count() {
        let set = |name: &str, text: &str| {
            let row = testing::text(text);
            Reference::new(name, &[(row.place, row.words)])
        };
        let a = "the quick brown fox jumps over the lazy dog and runs far away";
        let b = "a completely different question about nine rivers of the old world here";
        let setup = Setup {
            against: vec![set("a.jsonl", a), set("b.jsonl", b)],
            ..Setup::default()
        };
        let mut check = testing::make("contamination", setup);
        assert!(check.row(&testing::text(a)).is_some());
        assert_eq!(check.row(&testing::text("nothing of that kind")), None);
        let evidence = check.evidence().unwrap();
        assert!(evidence.contains("1 of 1 rows of a.jsonl"), "{evidence}");
        assert!(evidence.contains("0 of 1 rows of b.jsonl"), "{evidence}");
    }
}
