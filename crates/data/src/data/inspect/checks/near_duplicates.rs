//! Rows that are nearly identical to an earlier one. Identical ones belong to another check; a row is compared with rows that
//! have no earlier near duplicate, so that dropping the found ones leaves no two similar rows.

use super::{Check, Kind, Severity};
use crate::base::human::{grouped, percent};
use crate::data::Place;
use crate::data::inspect::minhash::{Index, SHINGLE};
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "near_duplicates",
    title: "Near duplicates",
    severity: Severity::Warning,
    cleans: true,
    cause: "copies with another name, date or line break: they are as harmful as copies (Jaccard similarity of word 5-grams of at least 0.8)",
    fix: "llmtui data clean IN --drop duplicates,near_duplicates --out OUT",
    make: |setup| {
        Some(Box::new(Near {
            index: Index::default(),
            places: Vec::new(),
            keys: Vec::new(),
            max_bytes: setup.max_near_bytes,
            forgotten: 0,
        }))
    },
};

struct Near {
    index: Index,
    places: Vec<Place>,
    keys: Vec<u128>,
    max_bytes: usize,
    forgotten: u64,
}

impl Check for Near {
    fn row(&mut self, row: &Row) -> Option<String> {
        // Few words: nothing to be similar with.
        let signature = row.signature.as_ref().filter(|_| row.words.len() > SHINGLE)?;
        if let Some((at, similarity)) = self.index.nearest(signature) {
            let exact = self.keys[at] == row.key;
            let place = &self.places[at];
            let file = if place.file == row.place.file { "" } else { &place.file };
            return (!exact).then(|| format!("{} of {file}:{}", percent(similarity, 0), place.row));
        }
        if self.index.bytes() >= self.max_bytes {
            self.forgotten += 1;
            return None;
        }
        self.index.add(signature.clone());
        self.places.push(row.place.clone());
        self.keys.push(row.key);
        None
    }

    fn severity(&self, share: f64) -> Option<Severity> {
        Some(match share {
            s if s >= 0.2 => Severity::Problem,
            s if s < 0.002 => Severity::Note,
            _ => Severity::Warning,
        })
    }

    fn limit(&self) -> Option<String> {
        (self.forgotten > 0).then(|| {
            format!(
                "near duplicates were searched among the first {} distinct rows; {} later ones were only compared with these",
                grouped(self.index.len() as u64),
                grouped(self.forgotten)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};
    use testing::{make, text};

    const TEXT: &str = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of \
                        foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of Light";

    #[test]
    fn a_changed_word_is_near_and_an_equal_row_is_not_told_twice() {
        let mut check = make("near_duplicates", Setup::default());
        assert_eq!(check.row(&text(TEXT)), None);
        assert_eq!(check.row(&text(TEXT)), None, "exact");
        let hit = check.row(&text(&TEXT.replace("Light", "Darkness")));
        assert!(hit.as_deref().is_some_and(|h| h.ends_with("% of :1")), "{hit:?}");
        let other = "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money";
        assert_eq!(check.row(&text(other)), None);
        assert_eq!(check.row(&text("to be or not")), None);
    }

    #[test]
    fn the_bound_on_memory_is_told() {
        let setup = Setup {
            max_near_bytes: 0,
            ..Setup::default()
        };
        let mut check = make("near_duplicates", setup);
        check.row(&text(TEXT));
        assert!(check.limit().is_some());
    }
}
