//! One sequence per row: examples of similar length are grouped into batches, so that there is little padding. The rows of a
//! batch follow from the lengths, their documents and the order of batches from seed and epoch.

use super::packed::{Draw, classes};
use super::pieces::Piece;
use std::ops::Range;

/// Widths of batches are multiples of this.
pub(crate) const STEP: usize = 32;

/// Batches of examples.
#[derive(Debug)]
pub(crate) struct Padded {
    /// Indices of examples, longest first.
    by_length: Vec<u32>,
    classes: Vec<(u32, u32)>,
    class_of: Vec<u32>,
    /// Whether no batch may have a single example where there are more.
    no_lone: bool,
}

/// Batch number `index` of `n` examples in batches of `batch_size`; the last may be smaller. With `no_lone` a single one that is left
/// takes another from the batch before it, or joins a batch that has but two.
pub(crate) fn bounds(n: usize, (index, batch_size): (usize, usize), no_lone: bool) -> Range<usize> {
    let (begin, end) = (index * batch_size, n.min((index + 1) * batch_size));
    match (no_lone && n > batch_size && n % batch_size == 1, batch_size) {
        (true, 2) if end + 1 == n => begin..n,
        (true, 3..) if end == n => begin - 1..n,
        (true, 3..) if end + 1 == n => begin..end - 1,
        _ => begin..end,
    }
}

/// How many batches [`bounds`] speaks of.
pub(crate) fn batches(n: usize, batch_size: usize, no_lone: bool) -> usize {
    match no_lone && batch_size == 2 && n > 2 {
        true => n / 2,
        false => n.div_ceil(batch_size),
    }
}

impl Padded {
    /// Examples of so many sequences each, whose pieces are adjacent.
    pub fn new(pieces: &[Piece], sequences: usize) -> Padded {
        let longest = |example: &[Piece]| example.iter().map(Piece::places).max().unwrap_or(0);
        Padded::of(pieces.chunks(sequences).map(longest).collect())
    }

    /// So many examples in any order: they need not be of like length.
    pub fn unsorted(examples: usize) -> Padded {
        Padded::of(vec![0; examples])
    }

    fn of(places: Vec<usize>) -> Padded {
        let mut by_length: Vec<u32> = (0..places.len() as u32).collect();
        by_length.sort_by_key(|i| std::cmp::Reverse(places[*i as usize]));
        let lengths: Vec<usize> = by_length.iter().map(|i| places[*i as usize]).collect();
        let (classes, class_of) = classes(&lengths);
        Padded {
            by_length,
            classes,
            class_of,
            no_lone: false,
        }
    }

    /// The same without batches of a single example, which has no others to be compared with.
    pub fn without_lone(self, no_lone: bool) -> Padded {
        Padded { no_lone, ..self }
    }

    /// Number of examples.
    pub fn examples(&self) -> usize {
        self.by_length.len()
    }

    /// Example number `place` from the longest on.
    pub fn sorted(&self, place: usize) -> usize {
        self.by_length[place] as usize
    }

    /// Places, longest first, of the first `n` examples of the file.
    pub fn first(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        let places = self.by_length.iter().enumerate();
        places.filter_map(move |(place, example)| ((*example as usize) < n).then_some(place))
    }

    /// Batches of an epoch; the last of them, the shortest examples, may be smaller.
    pub fn batches(&self, batch_size: usize) -> usize {
        batches(self.by_length.len(), batch_size, self.no_lone)
    }

    /// The places of batch number `index`, from the longest on.
    pub fn places(&self, index: usize, batch_size: usize) -> Range<usize> {
        bounds(self.by_length.len(), (index, batch_size), self.no_lone)
    }

    /// The examples of batch number `index` of an epoch.
    pub fn batch(
        &self,
        index: usize,
        batch_size: usize,
        draw: Draw,
    ) -> impl Iterator<Item = usize> + '_ {
        let batches = self.batches(batch_size) as u64;
        let index = draw.rows(batches).at(index as u64) as usize;
        self.places(index, batch_size).map(move |place| {
            let class = self.class_of[place];
            let (begin, number) = self.classes[class as usize];
            let order = draw.order(u64::from(number), class);
            let drawn = order.at(place as u64 - u64::from(begin)) as usize;
            self.by_length[begin as usize + drawn] as usize
        })
    }
}

/// Places of a row in a batch whose longest row has `longest`, at most `seq_len`: a multiple of `step`, so that there are few
/// different sizes and buffers are used again.
pub fn width(longest: usize, seq_len: usize, step: usize) -> usize {
    longest.next_multiple_of(step).min(seq_len).max(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_piece_stands_once_an_epoch_beside_its_like(
            lengths in prop::collection::vec(1_u32..=90, 1..200),
            batch_size in 1_usize..9,
            seed in 0_u64..100,
        ) {
            let pieces: Vec<Piece> = lengths.iter().map(|n| Piece { start: 0, len: n + 1 }).collect();
            let padded = Padded::new(&pieces, 1);
            let draw = Draw { seed, epoch: 2, source: 0 };
            let batches: Vec<Vec<usize>> = (0..padded.batches(batch_size))
                .map(|k| padded.batch(k, batch_size, draw).collect())
                .collect();
            let mut all = batches.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..pieces.len()).collect::<Vec<_>>());
            // Sorted by length, batches do not overlap.
            let mut ranges: Vec<(u32, u32)> = batches.iter().map(|batch| {
                let lens = batch.iter().map(|i| pieces[*i].len);
                (lens.clone().min().unwrap(), lens.max().unwrap())
            }).collect();
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0 || pair[0] == pair[1]));
        }
    }

    #[test]
    fn no_example_is_alone_where_it_is_to_have_others() {
        let sizes = |n: usize, size: usize| -> Vec<usize> {
            let all = (0..batches(n, size, true)).map(|i| bounds(n, (i, size), true));
            let all: Vec<Range<usize>> = all.collect();
            assert_eq!(
                all.iter().cloned().flatten().collect::<Vec<_>>(),
                (0..n).collect::<Vec<_>>()
            );
            all.into_iter().map(|range| range.len()).collect()
        };
        assert_eq!(sizes(9, 4), [4, 3, 2]);
        assert_eq!(sizes(7, 3), [3, 2, 2]);
        assert_eq!(sizes(5, 2), [2, 3]);
        assert_eq!(sizes(8, 4), [4, 4]);
        assert_eq!(sizes(10, 4), [4, 4, 2]);
        assert_eq!(
            (sizes(1, 4), sizes(4, 4), sizes(3, 2)),
            (vec![1], vec![4], vec![3])
        );
    }

    #[test]
    fn widths_come_in_steps_and_never_beyond_the_row() {
        let of = |longest| width(longest, 100, STEP);
        assert_eq!([1, 32, 33, 100].map(of), [32, 32, 64, 100]);
        assert_eq!((width(7, 16, STEP), width(7, 16, 4)), (16, 8));
    }
}
