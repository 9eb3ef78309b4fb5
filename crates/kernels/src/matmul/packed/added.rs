//! The low-rank term that is added to a tile: its block of the output.

use super::factor::Source;
use crate::matmul::low_rank::LowRank;
use crate::pointers::ReadPtr;
use std::ops::Range;

/// A low-rank term from (row, col) on.
#[derive(Clone, Copy)]
pub struct Added {
    of: *const LowRank<'static>,
    pub(super) row: usize,
    pub(super) col: usize,
}

impl Added {
    /// The term must outlive the matmul.
    pub fn new(of: &LowRank) -> Added {
        Added {
            of: std::ptr::from_ref(of).cast(),
            row: 0,
            col: 0,
        }
    }

    /// The same term, further on.
    pub fn at(self, row: usize, col: usize) -> Added {
        Added {
            row: self.row + row,
            col: self.col + col,
            ..self
        }
    }

    #[inline(always)]
    pub(super) fn of(&self) -> &LowRank<'_> {
        // SAFETY: it outlives the matmul.
        unsafe { &*self.of }
    }

    /// Whether all of it is added, unmasked and unscaled.
    pub fn is_whole(&self) -> bool {
        let of = self.of();
        of.kept.is_none() && of.scale == 1.0
    }

    /// The ranks that contribute to the first `cols` columns.
    pub fn ranks(&self, cols: usize) -> Range<usize> {
        self.of().ranks_of(self.col, cols)
    }

    /// One element.
    pub fn one(&self, row: usize, col: usize) -> f32 {
        self.of().one(self.row + row, self.col + col)
    }

    /// The packed inputs of these ranks, for this many rows and columns.
    pub(super) fn sources(
        &self,
        ranks: Range<usize>,
        rows: usize,
        cols: usize,
    ) -> (Source, Source) {
        let (of, k) = (self.of(), ranks.len());
        let cols_of_all = of.factor.len() / of.ranks;
        let z = self.row * of.ranks + ranks.start;
        let factor = ranks.start * cols_of_all + self.col;
        let z = Source {
            start: ReadPtr::F32(of.z.as_ptr().wrapping_add(z)),
            stride: of.ranks,
            k_stride: 1,
            width: rows,
            k,
        };
        let factor = Source {
            start: ReadPtr::F32(of.factor.as_ptr().wrapping_add(factor)),
            stride: 1,
            k_stride: cols_of_all,
            width: cols,
            k,
        };
        (z, factor)
    }
}
