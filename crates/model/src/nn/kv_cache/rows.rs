//! Keys or values of one layer: for each key/value head rows of equal number, in f32 or bf16.

use crate::kernels::aligned::Aligned;
use crate::kernels::numbers::{Storage, Values, ValuesMut, narrow};
use std::ops::Range;

/// Memory is taken when it is written.
pub(super) struct HeadRows {
    /// The numbers, two in a word if they are bf16.
    words: Aligned,
    storage: Storage,
    n: usize,
}

impl HeadRows {
    /// `n` zeros.
    pub fn zeros(storage: Storage, n: usize) -> Self {
        HeadRows {
            words: Aligned::zeros_on_demand(storage.words(n)),
            storage,
            n,
        }
    }

    pub fn bytes(&self) -> usize {
        size_of_val::<[f32]>(&self.words)
    }

    pub fn values(&self) -> Values<'_> {
        self.storage.view(&self.words, self.n)
    }

    fn values_mut(&mut self) -> ValuesMut<'_> {
        self.storage.view_mut(&mut self.words, self.n)
    }

    /// Writes a row from number `at` on; in bf16 it is rounded to nearest, ties to even.
    pub fn write(&mut self, at: usize, row: &[f32]) {
        let range = at..at + row.len();
        match self.values_mut() {
            ValuesMut::F32(to) => to[range].copy_from_slice(row),
            ValuesMut::Bf16(to) => narrow(row, &mut to[range]),
        }
    }

    /// Copies the first `held` numbers of each head; a head has `sizes.0` numbers there and `sizes.1` here.
    pub fn copy_heads(&mut self, from: &HeadRows, sizes: (usize, usize), held: usize) {
        match (self.values_mut(), from.values()) {
            (ValuesMut::F32(to), Values::F32(from)) => copy(to, from, sizes, held),
            (ValuesMut::Bf16(to), Values::Bf16(from)) => copy(to, from, sizes, held),
            _ => unreachable!("caches of one model have one dtype"),
        }
    }

    /// Moves a range of each head of `size` numbers to the head's beginning.
    pub fn move_to_front(&mut self, size: usize, range: Range<usize>) {
        fn moved<T: Copy>(all: &mut [T], size: usize, range: Range<usize>) {
            for head in all.chunks_exact_mut(size) {
                head.copy_within(range.clone(), 0);
            }
        }
        match self.values_mut() {
            ValuesMut::F32(all) => moved(all, size, range),
            ValuesMut::Bf16(all) => moved(all, size, range),
        }
    }
}

fn copy<T: Copy>(to: &mut [T], from: &[T], sizes: (usize, usize), held: usize) {
    let heads = from.chunks_exact(sizes.0).zip(to.chunks_exact_mut(sizes.1));
    heads.for_each(|(from, to)| to[..held].copy_from_slice(&from[..held]));
}
