//! A text that must not occur in training data: a validation file or an evaluation set, as the set of its word n-grams. The
//! length of an n-gram follows GPT-3 (Brown et al. 2020, arXiv:2005.14165, appendix C): 13 words, fewer for short rows, at
//! least 8; shorter rows of 4 words and more are one n-gram each.

use super::words::grams;
use crate::data::Place;
use std::collections::HashMap;

const LONGEST: usize = 13;
const SHORTEST: usize = 8;
/// Rows of fewer words occur everywhere by chance.
const FEWEST_WORDS: usize = 4;
/// Grams remembered, some 40 bytes each.
const MAX_GRAMS: usize = 6_000_000;

/// A set of rows to be compared with.
#[derive(Debug, Default)]
pub struct Reference {
    /// As the person named it.
    pub name: String,
    /// Words in a gram.
    pub n: usize,
    grams: HashMap<u64, u32>,
    places: Vec<Place>,
    /// Rows that a training row was found to share a gram with.
    met: Vec<bool>,
    /// Rows left out because of their number or their brevity.
    pub left_out: u64,
    pub too_short: u64,
    /// Rows that could not be read.
    pub unreadable: u64,
}

impl Reference {
    /// `rows`: the words of each row and its location.
    pub fn new(name: &str, rows: &[(Place, Vec<u64>)]) -> Reference {
        let mut lengths: Vec<usize> = rows.iter().map(|(_, words)| words.len()).collect();
        lengths.sort_unstable();
        let fifth = lengths.get(lengths.len() / 20).copied().unwrap_or(LONGEST);
        let mut reference = Reference {
            name: name.to_string(),
            n: fifth.clamp(SHORTEST, LONGEST),
            ..Reference::default()
        };
        for (place, words) in rows {
            reference.add(place, words);
        }
        reference.met = vec![false; reference.places.len()];
        reference
    }

    /// With so many rows of the file that could not be read.
    #[must_use]
    pub fn with_unreadable(self, unreadable: u64) -> Reference {
        Reference { unreadable, ..self }
    }

    fn add(&mut self, place: &Place, words: &[u64]) {
        if words.len() < FEWEST_WORDS {
            self.too_short += 1;
            return;
        }
        if self.grams.len() >= MAX_GRAMS {
            self.left_out += 1;
            return;
        }
        let row = self.places.len() as u32;
        for gram in self.keys(words) {
            self.grams.entry(gram).or_insert(row);
        }
        self.places.push(place.clone());
    }

    /// Grams and, for short rows, the row as a whole, keyed by its length.
    fn keys(&self, words: &[u64]) -> Vec<u64> {
        grams(words, self.n).collect()
    }

    /// Rows compared with.
    pub fn rows(&self) -> usize {
        self.places.len()
    }

    /// Its rows that were met so far.
    pub fn met(&self) -> usize {
        self.met.iter().filter(|met| **met).count()
    }

    /// The first row of the reference that shares a gram with these words, and how many grams are shared.
    pub fn find(&mut self, words: &[u64]) -> Option<(&Place, usize)> {
        if words.len() < FEWEST_WORDS {
            return None;
        }
        let mut first = None;
        let mut shared = 0;
        for gram in self.keys(words) {
            if let Some(row) = self.grams.get(&gram) {
                self.met[*row as usize] = true;
                first.get_or_insert(*row);
                shared += 1;
            }
        }
        first.map(|row| (&self.places[row as usize], shared))
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::push_words;
    use super::*;

    fn reference(texts: &[&str]) -> Reference {
        let row = |(i, text): (usize, &&str)| {
            let mut words = Vec::new();
            push_words(text, &mut words);
            let place = Place {
                file: "eval.jsonl".into(),
                row: i as u64 + 1,
            };
            (place, words)
        };
        Reference::new(
            "eval.jsonl",
            &texts.iter().enumerate().map(row).collect::<Vec<_>>(),
        )
    }

    fn words(text: &str) -> Vec<u64> {
        let mut out = Vec::new();
        push_words(text, &mut out);
        out
    }

    const LONG: &str =
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen";

    #[test]
    fn thirteen_words_in_a_row_are_a_match_and_twelve_are_not() {
        let mut eval = reference(&[LONG, &LONG.to_uppercase().replace("FOUR", "4")]);
        assert_eq!(eval.n, 13);
        let thirteen = "and TWO three, four five six seven eight nine ten eleven twelve thirteen fourteen and so on";
        let (place, shared) = eval.find(&words(thirteen)).unwrap();
        assert_eq!((place.row, shared), (1, 1));
        let twelve = "and three four five six seven eight nine ten eleven twelve thirteen fourteen and so on";
        assert!(eval.find(&words(twelve)).is_none());
        assert_eq!(eval.met(), 1);
    }

    #[test]
    fn short_rows_make_short_grams_and_very_short_ones_match_as_a_whole() {
        let mut eval = reference(&[
            "what is nine plus three",
            "how many legs has a spider",
            "yes",
        ]);
        assert_eq!((eval.n, eval.rows(), eval.too_short), (8, 2, 1));
        assert!(eval.find(&words("What is nine plus three?")).is_some());
        assert!(
            eval.find(&words("what is nine plus three minus one"))
                .is_none()
        );
        assert!(eval.find(&words("yes")).is_none());
    }
}
