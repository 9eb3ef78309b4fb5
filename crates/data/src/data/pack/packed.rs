//! Best-fit decreasing: the longest documents first, each into the fullest row that still has room for it. The placement of
//! lengths follows from the lengths alone, so every epoch has the same rows of lengths; which document of a length is placed
//! there changes from epoch to epoch, and so does the order of rows. Nothing is planned again and nothing is saved.
//!
//! Best-fit decreasing needs at most 11/9 of the fewest rows possible, plus 4 (Johnson et al. 1974); real data sets leave one
//! or two percent of padding.

use super::pieces::Piece;
use crate::base::rng::{Rng, Stream};
use crate::data::permute::Permutation;

/// Rows of pieces.
#[derive(Debug)]
pub(crate) struct Packed {
    /// Indices of pieces, longest first.
    by_length: Vec<u32>,
    /// Where in `by_length` each length begins, longest first: (begin, number).
    classes: Vec<(u32, u32)>,
    /// The class of each place of `by_length`.
    class_of: Vec<u32>,
    /// Places of `by_length` row by row.
    places: Vec<u32>,
    /// Where each row ends in `places`.
    ends: Vec<u32>,
}

/// What orders are drawn from: the run's seed, the epoch, and a number of the source's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Draw {
    pub seed: u64,
    pub epoch: u64,
    pub source: u32,
}

/// Classes of lengths have numbers below this; so many bits of a lane are theirs.
const CLASS_BITS: u32 = 20;
const ROWS: u32 = (1 << CLASS_BITS) - 1;

impl Draw {
    /// The order of 0..n for one purpose. Lanes 0 and 1 of this stream belong to windows of plain text.
    pub fn order(&self, n: u64, purpose: u32) -> Permutation {
        let lane = (self.source + 1) << CLASS_BITS | purpose.min(ROWS);
        Permutation::drawn(n, &mut Rng::new(self.seed, Stream::Data, self.epoch, lane))
    }

    /// The order of an epoch's rows.
    pub fn rows(&self, n: u64) -> Permutation {
        self.order(n, ROWS)
    }
}

impl Packed {
    /// Rows of `seq_len` places.
    pub fn new(pieces: &[Piece], seq_len: usize) -> Packed {
        let mut by_length: Vec<u32> = (0..pieces.len() as u32).collect();
        by_length.sort_by_key(|i| std::cmp::Reverse(pieces[*i as usize].places()));
        let lengths: Vec<usize> = by_length
            .iter()
            .map(|i| pieces[*i as usize].places())
            .collect();
        let (classes, class_of) = classes(&lengths);
        let (places, ends) = best_fit(&lengths, seq_len);
        Packed {
            by_length,
            classes,
            class_of,
            places,
            ends,
        }
    }

    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// The pieces of row number `index` of an epoch.
    pub fn row(&self, index: usize, draw: Draw) -> impl Iterator<Item = usize> + '_ {
        let row = draw.rows(self.ends.len() as u64).at(index as u64) as usize;
        let begin = if row == 0 {
            0
        } else {
            self.ends[row - 1] as usize
        };
        let places = &self.places[begin..self.ends[row] as usize];
        places.iter().map(move |place| {
            let class = self.class_of[*place as usize];
            let (begin, number) = self.classes[class as usize];
            let order = draw.order(u64::from(number), class);
            let drawn = order.at(u64::from(place - begin)) as usize;
            self.by_length[begin as usize + drawn] as usize
        })
    }
}

/// Begin and number of each run of equal lengths, and the run of each place.
pub(super) fn classes(lengths: &[usize]) -> (Vec<(u32, u32)>, Vec<u32>) {
    let mut classes: Vec<(u32, u32)> = Vec::new();
    let mut class_of = Vec::with_capacity(lengths.len());
    for (place, length) in lengths.iter().enumerate() {
        match classes.last_mut() {
            Some((_, number)) if lengths[place - 1] == *length => *number += 1,
            _ => classes.push((place as u32, 1)),
        }
        class_of.push(classes.len() as u32 - 1);
    }
    (classes, class_of)
}

/// Places row by row, and where rows end. `lengths` are decreasing and at most `seq_len`.
fn best_fit(lengths: &[usize], seq_len: usize) -> (Vec<u32>, Vec<u32>) {
    let mut room = OpenRows::new(seq_len);
    let mut row_of = Vec::with_capacity(lengths.len());
    let mut rows: u32 = 0;
    for &length in lengths {
        let row = room.take(length).unwrap_or_else(|| {
            rows += 1;
            (rows - 1, seq_len)
        });
        room.put(row.0, row.1 - length);
        row_of.push(row.0);
    }
    // Counting sort by row; within a row the longest comes first.
    let mut ends = vec![0_u32; rows as usize];
    for row in &row_of {
        ends[*row as usize] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += *end;
        *end = sum;
    }
    let mut next: Vec<u32> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let mut places = vec![0; lengths.len()];
    for (place, row) in row_of.iter().enumerate() {
        places[next[*row as usize] as usize] = place as u32;
        next[*row as usize] += 1;
    }
    (places, ends)
}

/// Open rows by the room that they have left.
struct OpenRows {
    rows: Vec<Vec<u32>>,
    /// A bit for each room that some row has.
    bits: Vec<u64>,
}

impl OpenRows {
    fn new(seq_len: usize) -> OpenRows {
        OpenRows {
            rows: vec![Vec::new(); seq_len + 1],
            bits: vec![0; seq_len / 64 + 1],
        }
    }

    /// A row with the least room that is at least `length`, and that room.
    fn take(&mut self, length: usize) -> Option<(u32, usize)> {
        let first = self.bits[length / 64] & (!0 << (length % 64));
        let mut word = length / 64;
        let mut bits = first;
        while bits == 0 {
            word += 1;
            bits = *self.bits.get(word)?;
        }
        let room = word * 64 + bits.trailing_zeros() as usize;
        let row = self.rows[room].pop()?;
        if self.rows[room].is_empty() {
            self.bits[room / 64] &= !(1 << (room % 64));
        }
        Some((row, room))
    }

    fn put(&mut self, row: u32, room: usize) {
        if room > 0 {
            self.rows[room].push(row);
            self.bits[room / 64] |= 1 << (room % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(lengths: &[usize]) -> Vec<Piece> {
        let piece = |(i, n): (usize, &usize)| Piece {
            start: 1000 * i as u64,
            len: *n as u32 + 1,
        };
        lengths.iter().enumerate().map(piece).collect()
    }

    fn epoch(packed: &Packed, draw: Draw) -> Vec<Vec<usize>> {
        (0..packed.rows())
            .map(|row| packed.row(row, draw).collect())
            .collect()
    }

    const DRAW: Draw = Draw {
        seed: 7,
        epoch: 0,
        source: 0,
    };

    proptest! {
        #[test]
        fn every_piece_stands_once_an_epoch_and_no_row_overflows(
            lengths in prop::collection::vec(1_usize..=40, 0..300),
            seed in 0_u64..1000,
        ) {
            let pieces = pieces(&lengths);
            let packed = Packed::new(&pieces, 40);
            for epoch_number in 0..2 {
                let rows = epoch(&packed, Draw { seed, epoch: epoch_number, source: 3 });
                let mut all: Vec<usize> = rows.concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..pieces.len()).collect::<Vec<_>>());
                for row in &rows {
                    let places: usize = row.iter().map(|i| pieces[*i].places()).sum();
                    prop_assert!(places <= 40 && places > 0);
                }
            }
            // Best fit decreasing is never worse than 11/9 of the least possible, plus 4.
            let least = lengths.iter().sum::<usize>().div_ceil(40);
            // The bound is on the optimum, which only for small pieces is near the volume; two half-empty rows never fit.
            let half_empty = epoch(&packed, DRAW).iter().filter(|row| {
                row.iter().map(|i| pieces[*i].places()).sum::<usize>() <= 20
            }).count();
            prop_assert!(half_empty <= 1 && packed.rows() >= least);
        }
    }

    #[test]
    fn epochs_and_seeds_differ_and_repeat() {
        let lengths: Vec<usize> = (0..200).map(|i| 1 + i % 9).collect();
        let packed = Packed::new(&pieces(&lengths), 16);
        assert_eq!(epoch(&packed, DRAW), epoch(&packed, DRAW));
        for other in [
            Draw { epoch: 1, ..DRAW },
            Draw { seed: 8, ..DRAW },
            Draw { source: 1, ..DRAW },
        ] {
            assert_ne!(epoch(&packed, DRAW), epoch(&packed, other));
        }
    }

    #[test]
    fn lengths_that_fill_rows_leave_no_padding() {
        let packed = Packed::new(&pieces(&[3, 5, 8, 1, 7, 2, 6, 8]), 8);
        assert_eq!(packed.rows(), 5);
    }
}
