//! Documents concatenated: windows of a fixed length over all tokens, independent of document boundaries.

use super::packed::Draw;
use crate::base::rng::{Rng, Stream as Purpose};
use crate::data::Order;
use crate::data::store::Store;

/// A sequence of tokens made of stretches of a store.
#[derive(Debug)]
pub(crate) struct Stream {
    /// First token in the store and first token in the sequence of each stretch.
    stretches: Vec<(u64, u64)>,
    tokens: u64,
    seq_len: usize,
}

impl Stream {
    /// `documents` are first token and length; those that follow each other in the store become one stretch.
    pub fn new(documents: impl Iterator<Item = (u64, u64)>, seq_len: usize) -> Stream {
        let (mut stretches, mut tokens, mut end) = (Vec::new(), 0, None);
        for (start, len) in documents.filter(|(_, len)| *len > 0) {
            if end != Some(start) {
                stretches.push((start, tokens));
            }
            end = Some(start + len);
            tokens += len;
        }
        Stream {
            stretches,
            tokens,
            seq_len,
        }
    }

    /// Disjoint windows, each with one token more than it has predictions; a rest is left out.
    pub fn windows(&self) -> u64 {
        self.tokens.saturating_sub(1) / self.seq_len as u64
    }

    /// Where window number `index` of a source begins. Shuffled, each epoch visits every disjoint window once.
    pub fn start(&self, order: Order, index: u64, seed: u64, source: u32) -> u64 {
        let windows = self.windows().max(1);
        match order {
            Order::Random => {
                let mut rng = Rng::new(seed, Purpose::Data, index, source + 2);
                rng.below(self.tokens.saturating_sub(self.seq_len as u64).max(1))
            }
            Order::Shuffled => {
                let draw = Draw {
                    seed,
                    epoch: index / windows,
                    source,
                };
                draw.rows(windows).at(index % windows) * self.seq_len as u64
            }
        }
    }

    /// All tokens in order, until `out` holds `limit`.
    pub fn flat(&self, store: &Store, limit: usize, out: &mut Vec<u32>) {
        for (i, (from, first)) in self.stretches.iter().enumerate() {
            let next = self.stretches.get(i + 1).map_or(self.tokens, |s| s.1);
            let room = limit.saturating_sub(out.len()) as u64;
            store.copy(*from, (next - first).min(room) as usize, out);
        }
    }

    /// The seq_len + 1 tokens from `start` on, and which of them are supervised where the store has a mask.
    pub fn read(&self, store: &Store, start: u64, ids: &mut Vec<u32>, mask: &mut Vec<bool>) {
        let masked = store.masked();
        let (mut at, end) = (start, start + self.seq_len as u64 + 1);
        let mut stretch = self.stretches.partition_point(|(_, first)| *first <= at) - 1;
        while at < end {
            let (from, first) = self.stretches[stretch];
            let next = self.stretches.get(stretch + 1).map_or(self.tokens, |s| s.1);
            let len = (end.min(next) - at) as usize;
            store.copy(from + at - first, len, ids);
            if masked {
                store.mask(from + at - first, len, mask);
            }
            at += len as u64;
            stretch += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Document;
    use crate::data::store::of_documents as store;

    #[test]
    fn windows_run_over_the_documents_that_were_left() {
        let documents: Vec<Document> = (0..6)
            .map(|i| Document::all_supervised(vec![2 * i, 2 * i + 1]))
            .collect();
        let store = store(&[&documents[..3], &documents[3..]]);
        let kept = store
            .spans()
            .enumerate()
            .filter(|(i, _)| *i != 2)
            .map(|(_, span)| span);
        let stream = Stream::new(kept, 3);
        assert_eq!(
            (stream.tokens, stream.windows(), stream.stretches.len()),
            (10, 3, 2)
        );
        let mut ids = Vec::new();
        stream.read(&store, 2, &mut ids, &mut Vec::new());
        assert_eq!(ids, [2, 3, 6, 7]);
        let starts: Vec<u64> = (0..6)
            .map(|i| stream.start(Order::Shuffled, i, 1, 0))
            .collect();
        for epoch in starts.chunks(3) {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 3, 6]);
        }
        let random: Vec<u64> = (0..200)
            .map(|i| stream.start(Order::Random, i, 1, 0))
            .collect();
        assert_eq!(
            (random.iter().min(), random.iter().max()),
            (Some(&0), Some(&6))
        );
    }
}
