//! Training rows that quote the validation file.

use super::{Check, Kind, Severity};
use crate::base::human::{grouped, percent};
use crate::data::inspect::ngrams::Reference;
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "overlap",
    title: "Validation text in the training rows",
    severity: Severity::Problem,
    cleans: true,
    cause: "rows were duplicated before the split, or it was by line instead of by document: validation loss will look too good",
    fix: "llmtui data split IN --val 0.1 splits by content; or data clean IN --val VAL --drop overlap --out OUT",
    make: |setup| {
        let reference = setup.val.take()?;
        Some(Box::new(Overlap { reference }))
    },
};

struct Overlap {
    reference: Reference,
}

impl Check for Overlap {
    fn row(&mut self, row: &Row) -> Option<String> {
        quotes(&mut self.reference, row)
    }

    fn evidence(&self) -> Option<String> {
        Some(met(&self.reference))
    }

    fn limit(&self) -> Option<String> {
        left_out(&self.reference)
    }
}

/// `3 passages of 13 words of eval.jsonl:12`
pub(super) fn quotes(reference: &mut Reference, row: &Row) -> Option<String> {
    let n = reference.n;
    let (place, shared) = reference.find(&row.words)?;
    let (number, plural) = match shared {
        1 => ("a".to_string(), ""),
        n => (grouped(n as u64), "s"),
    };
    Some(format!("{number} passage{plural} of {n} words of {place}"))
}

/// How much of the other file was met.
pub(super) fn met(reference: &Reference) -> String {
    let (met, rows) = (reference.met() as u64, reference.rows() as u64);
    format!(
        "{} of {} rows of {} overlap ({}), by passages of {} words",
        grouped(met),
        grouped(rows),
        reference.name,
        percent(met as f64 / rows.max(1) as f64, 1),
        reference.n
    )
}

pub(super) fn left_out(reference: &Reference) -> Option<String> {
    let mut words = Vec::new();
    if reference.left_out > 0 {
        words.push(format!(
            "{} rows at its end exceed the memory limit",
            grouped(reference.left_out)
        ));
    }
    if reference.too_short > 0 {
        words.push(format!(
            "{} rows have fewer than 4 words",
            grouped(reference.too_short)
        ));
    }
    if reference.unreadable > 0 {
        words.push(format!(
            "{} rows cannot be read",
            grouped(reference.unreadable)
        ));
    }
    let name = &reference.name;
    (!words.is_empty()).then(|| format!("{name} was only partly compared: {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::{KINDS, Setup, testing};
    use crate::data::inspect::ngrams::Reference;

    fn setup(texts: &[&str]) -> Setup {
        let row = |text: &&str| {
            let row = testing::text(text);
            (row.place, row.words)
        };
        let rows: Vec<_> = texts.iter().map(row).collect();
        Setup {
            val: Some(Reference::new("val.jsonl", &rows)),
            ..Setup::default()
        }
    }

    #[test]
    fn a_quoted_row_is_found_and_counted_on_both_sides() {
        let text = "how do I make crepes with two eggs and a cup of milk today";
        let mut check = testing::make("overlap", setup(&[text, "something else of about as many words as the one above it has"]));
        let quote = testing::text(&format!("Question: {text}? Answer: mix them."));
        assert!(check.row(&quote).unwrap().contains("of a.jsonl:1"));
        assert_eq!(check.row(&testing::text("who wrote Hamlet")), None);
        assert!(check.evidence().unwrap().starts_with("1 of 2 rows of val.jsonl"));
    }

    #[test]
    fn without_a_file_there_is_nothing_to_check() {
        let kind = KINDS.iter().find(|k| k.id == "overlap").unwrap();
        assert!((kind.make)(&mut Setup::default()).is_none());
        let short = testing::make("overlap", setup(&["yes", "no"]));
        assert!(short.limit().unwrap().contains("2 rows have fewer than 4 words"));
    }
}
