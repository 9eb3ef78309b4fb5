//! Tokenized documents, in memory or mapped from the cache: a sequence of shards read as one. Forming rows of a batch is in
//! `pack`, creating shards in `build` and `cache`.

mod build;
mod cache;
mod inputs;
mod shard;

pub use build::Progress;
pub(super) use build::{Feed, Piece, in_memory, text_bytes};
pub use cache::{Cached, clear, list};
pub(super) use cache::{Entry, Key, RowFeeder, open_or_build};
pub(super) use inputs::{by_time, digest};
pub use shard::Tally;

use super::Unit;
use shard::Shard;

/// The documents of one source, one after the other; those of an example are adjacent.
#[derive(Debug)]
pub(super) struct Store {
    pub unit: Unit,
    /// Examples of a row: 2 where a pair is two judged answers.
    pub examples_of_row: usize,
    shards: Vec<Shard>,
    /// Tokens before each shard.
    before: Vec<u64>,
    tokens: u64,
}

impl Store {
    /// Identifies its tokens, whatever files they were made from.
    pub fn identity(&self) -> String {
        let shards: Vec<String> = self.shards.iter().map(Shard::identity).collect();
        shards.join(" ")
    }

    fn new(shards: Vec<Shard>) -> Store {
        let mut tokens = 0;
        let before = shards.iter().map(|shard| {
            let before = tokens;
            tokens += shard.tokens() as u64;
            before
        });
        Store {
            unit: Unit::Text,
            examples_of_row: 1,
            before: before.collect(),
            shards,
            tokens,
        }
    }

    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    pub fn documents(&self) -> u64 {
        self.shards.iter().map(|s| s.documents() as u64).sum()
    }

    /// Documents of a row: they are held out together, as they share a prompt.
    pub fn documents_of_row(&self) -> usize {
        self.unit.documents() * self.examples_of_row
    }

    /// Whether some tokens are read and not supervised.
    pub fn masked(&self) -> bool {
        self.shards.iter().any(Shard::masked)
    }

    /// The inputs that it was built from.
    pub fn tally(&self) -> Tally {
        self.shards
            .last()
            .map(|s| s.tally().clone())
            .unwrap_or_default()
    }

    /// First token and length of each document.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.shards
            .iter()
            .zip(&self.before)
            .flat_map(|(shard, before)| {
                let mut start = 0;
                shard.ends().map(move |end| {
                    let span = (before + start, end.saturating_sub(start));
                    start = end;
                    span
                })
            })
    }

    /// The row that this token is of, from 0.
    pub fn row_at(&self, token: u64) -> u64 {
        let at = self.before.partition_point(|before| *before <= token);
        let Some(at) = at.checked_sub(1) else {
            return 0;
        };
        let earlier: u64 = self.shards[..at].iter().map(|s| s.documents() as u64).sum();
        let within = self.shards[at].documents_until(token - self.before[at]) as u64;
        (earlier + within) / self.documents_of_row() as u64
    }

    /// Appends the ids of `len` tokens from `start` on.
    pub fn copy(&self, start: u64, len: usize, out: &mut Vec<u32>) {
        self.walk(start, len, |shard, range| shard.copy(range, out));
    }

    /// Appends for each token whether it is supervised.
    pub fn mask(&self, start: u64, len: usize, out: &mut Vec<bool>) {
        self.walk(start, len, |shard, range| {
            if shard.masked() {
                out.extend(range.map(|token| shard.supervised(token)));
            } else {
                out.extend(range.map(|_| true));
            }
        });
    }

    /// Number of supervised tokens.
    pub fn supervised(&self, start: u64, len: usize) -> usize {
        let mut n = 0;
        self.walk(start, len, |shard, range| {
            n += match shard.masked() {
                true => range.filter(|token| shard.supervised(*token)).count(),
                false => range.len(),
            };
        });
        n
    }

    fn walk(&self, start: u64, len: usize, mut visit: impl FnMut(&Shard, std::ops::Range<usize>)) {
        let (mut at, end) = (start, start + len as u64);
        let mut shard = self
            .before
            .partition_point(|before| *before <= at)
            .saturating_sub(1);
        while at < end && shard < self.shards.len() {
            let before = self.before[shard];
            let stop = end.min(before + self.shards[shard].tokens() as u64);
            if at < stop {
                visit(
                    &self.shards[shard],
                    (at - before) as usize..(stop - before) as usize,
                );
                at = stop;
            }
            shard += 1;
        }
    }
}

/// Documents spread over shards as given.
#[cfg(test)]
pub(super) fn of_documents(shards: &[&[super::Document]]) -> Store {
    let shards = shards.iter().map(|documents| {
        let mut draft = shard::Draft::default();
        documents.iter().for_each(|d| draft.push(d));
        Shard::held(draft.finish(4, &Tally::default())).unwrap()
    });
    Store::new(shards.collect())
}

#[cfg(test)]
mod tests {
    use super::of_documents as store;
    use crate::data::Document;

    #[test]
    fn shards_read_as_one() {
        let plain = |ids: std::ops::Range<u32>| Document::all_supervised(ids.collect());
        let masked = Document {
            ids: vec![6, 7, 8],
            supervised: vec![false, false, true],
        };
        let store = store(&[
            &[plain(0..2), plain(2..5)],
            &[],
            &[plain(5..6), masked],
            &[plain(9..12)],
        ]);
        assert_eq!(
            (store.tokens(), store.documents(), store.masked()),
            (12, 5, true)
        );
        let spans: Vec<_> = store.spans().collect();
        assert_eq!(spans, [(0, 2), (2, 3), (5, 1), (6, 3), (9, 3)]);
        let rows = [0, 1, 2, 4, 5, 6, 8, 9, 11].map(|token| store.row_at(token));
        assert_eq!(rows, [0, 0, 1, 1, 2, 3, 3, 4, 4]);
        let mut ids = Vec::new();
        store.copy(1, 10, &mut ids);
        assert_eq!(ids, (1..11).collect::<Vec<_>>());
        let mut mask = Vec::new();
        store.mask(4, 7, &mut mask);
        assert_eq!(mask, [true, false, false, false, true, true, true]);
        assert_eq!((store.supervised(6, 3), store.supervised(9, 3)), (1, 3));
    }
}
