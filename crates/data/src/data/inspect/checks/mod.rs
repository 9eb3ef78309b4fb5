//! Problems of rows: one file per kind and one word in the list below. A check gets the rows one by one and describes the
//! problem of one in a few words; counting, examples and the report are up to the inspector.

use super::ngrams::Reference;
use super::row::Row;
use crate::base::finding::Status;
use crate::data::RowFault;
use serde::Serialize;

/// How bad a finding is, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Training on these rows fails, or its numbers lie.
    Problem,
    Warning,
    Note,
}

impl Severity {
    /// A note is nothing wrong.
    pub fn status(self) -> Status {
        match self {
            Severity::Problem => Status::Fail,
            Severity::Warning => Status::Warn,
            Severity::Note => Status::Pass,
        }
    }
}

/// The context of a run of checks.
#[derive(Debug)]
pub struct Setup {
    /// Tokens of the longest row that is to be trained on.
    pub seq_len: Option<u64>,
    /// Tokens of which one ends an answer.
    pub ends: Vec<u32>,
    /// The validation file.
    pub val: Option<Reference>,
    /// Evaluation sets.
    pub against: Vec<Reference>,
    /// Rows remembered in search of equal ones, some 60 bytes each.
    pub max_rows: usize,
    /// Memory for rows in search of similar ones, one to three kilobytes each.
    pub max_near_bytes: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            seq_len: None,
            ends: Vec::new(),
            val: None,
            against: Vec::new(),
            max_rows: 4_000_000,
            max_near_bytes: 400 << 20,
        }
    }
}

/// One kind of finding at work.
pub trait Check: Send {
    /// The fault of this row.
    fn row(&mut self, row: &Row) -> Option<String>;

    /// Its verdict on an unreadable row.
    fn fault(&mut self, _fault: &RowFault) -> Option<String> {
        None
    }

    /// How bad it is that the share `share` of the rows has it; the kind's own word otherwise.
    fn severity(&self, _share: f64) -> Option<Severity> {
        None
    }

    /// Details of the finding.
    fn evidence(&self) -> Option<String> {
        None
    }

    /// What helps here, where the rows say it; the kind's own words otherwise.
    fn fix(&self) -> Option<String> {
        None
    }

    /// What was omitted, if anything.
    fn limit(&self) -> Option<String> {
        None
    }
}

/// The fixes that the faults of rows bring.
#[derive(Debug, Default)]
pub(super) struct RowFixes {
    first: Option<String>,
    differ: bool,
}

impl RowFixes {
    pub(super) fn add(&mut self, fix: &str) {
        let first = self.first.get_or_insert_with(|| fix.to_string());
        self.differ |= first != fix;
    }

    /// The fix of all of them, if it is the same one.
    pub(super) fn common(&self) -> Option<String> {
        let fix = self.first.clone().filter(|fix| !fix.is_empty());
        fix.filter(|_| !self.differ)
    }
}

/// The texts of one kind of finding, and its check's constructor.
pub struct Kind {
    /// The word of `--drop`.
    pub id: &'static str,
    pub title: &'static str,
    pub severity: Severity,
    /// Such rows can be found without a tokenizer, and `data clean` removes them. Those that cannot be rendered go with the
    /// tokenizer that it is given.
    pub cleans: bool,
    pub cause: &'static str,
    pub fix: &'static str,
    /// `None` where there is nothing to check against.
    pub make: fn(&mut Setup) -> Option<Box<dyn Check>>,
}

macro_rules! kinds {
    ($($id:ident)+) => {
        $(mod $id;)+
        /// Every kind, the worst first.
        pub const KINDS: &[Kind] = &[$($id::KIND),+];
    };
}

kinds! {
    unreadable
    unrendered
    unencodable
    left_out
    thoughts
    contamination
    overlap
    nothing_supervised
    eos_not_supervised
    empty
    over_length
    unread_columns
    duplicates
    near_duplicates
    same_answers
    mojibake
    broken_unicode
    control
    ends_unanswered
}

/// Looks a kind up by its word.
pub fn find(id: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.id == id)
}

#[cfg(test)]
pub(super) mod testing {
    use super::super::row::Row;
    use super::super::view::RenderedDocument;
    use super::*;
    use crate::data::{Content, Document, Example, Message, Place, Turns};

    pub fn row(content: Content) -> Row {
        let place = Place {
            file: "a.jsonl".into(),
            row: 1,
        };
        Row::new(place, "a.jsonl".into(), Example::new(content), None, true)
    }

    pub fn text(text: &str) -> Row {
        row(Content::Text(text.into()))
    }

    pub fn chat(turns: &[(&str, &str)]) -> Row {
        row(Content::Chat(
            turns.iter().map(|(r, t)| Message::new(*r, *t)).collect(),
        ))
    }

    pub fn pair(chosen: &str, rejected: &str) -> Row {
        row(Content::Preference {
            prompt: Turns::Text("q".into()),
            chosen: Turns::Text(chosen.into()),
            rejected: Turns::Text(rejected.into()),
        })
    }

    /// A row that a model sees as these tokens.
    pub fn seen(content: Content, ids: &[u32], supervised: &[usize]) -> Row {
        let mut row = row(content);
        row.seen = vec![RenderedDocument {
            label: "",
            document: Document {
                ids: ids.to_vec(),
                supervised: (0..ids.len()).map(|i| supervised.contains(&i)).collect(),
            },
        }];
        row
    }

    pub fn make(id: &str, mut setup: Setup) -> Box<dyn Check> {
        (find(id).unwrap().make)(&mut setup).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_words_causes_and_fixes_of_their_own() {
        let mut ids = Vec::new();
        for kind in KINDS {
            assert!(!ids.contains(&kind.id), "{} stands twice", kind.id);
            ids.push(kind.id);
            assert!(
                !kind.cause.is_empty() && !kind.fix.is_empty(),
                "{}",
                kind.id
            );
            assert!(find(kind.id).is_some_and(|k| k.title == kind.title));
        }
        assert!(
            KINDS.is_sorted_by_key(|kind| kind.severity),
            "the worst come first"
        );
    }
}
