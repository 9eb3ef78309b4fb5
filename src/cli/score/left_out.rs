//! Tokens of a text that are not scored, and why.

use crate::data::Document;
use serde::Serialize;
use std::iter::Sum;
use std::ops::Add;

/// How many, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct LeftOut {
    /// Nothing stands in front of them: a BOS token, or a text's own first one.
    first: usize,
    /// Prompts, and what a chat template writes around answers.
    context: usize,
    /// EOS at the end of a text: a row and a file of one text are scored alike.
    eos: usize,
}

impl LeftOut {
    /// Of a document as it is read; `ends` if its EOS was taken away.
    pub fn of(document: &Document, ends: bool) -> LeftOut {
        let behind = document.supervised.iter().skip(1);
        LeftOut {
            first: document.ids.len().min(1),
            context: behind.filter(|supervised| !**supervised).count(),
            eos: usize::from(ends),
        }
    }

    /// `3 first tokens (nothing in front of them), 2 EOS at the end of texts`; empty where all are scored.
    pub fn words(self) -> String {
        let parts = [
            (self.first, "first (nothing stands in front of them)"),
            (self.context, "of prompts and chat markers"),
            (self.eos, "EOS at the end of texts"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{} {what}", crate::base::human::grouped(*n as u64)))
            .collect();
        parts.join(", ")
    }
}

impl Add for LeftOut {
    type Output = LeftOut;

    fn add(self, other: LeftOut) -> LeftOut {
        LeftOut {
            first: self.first + other.first,
            context: self.context + other.context,
            eos: self.eos + other.eos,
        }
    }
}

impl Sum for LeftOut {
    fn sum<I: Iterator<Item = LeftOut>>(all: I) -> LeftOut {
        all.fold(LeftOut::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_scored_or_has_a_reason() {
        let document = Document {
            ids: vec![1, 2, 3, 4, 5],
            supervised: vec![true, false, false, true, true],
        };
        let found = LeftOut::of(&document, true);
        let expected = LeftOut {
            first: 1,
            context: 2,
            eos: 1,
        };
        assert_eq!(found, expected);
        let words = [found, found].into_iter().sum::<LeftOut>().words();
        assert_eq!(
            words,
            "2 first (nothing stands in front of them), 4 of prompts and chat markers, 2 EOS at the end of texts"
        );
    }
}
