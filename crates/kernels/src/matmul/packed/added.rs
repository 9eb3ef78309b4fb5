//! The low-rank term that is added to a tile: its block of the output, and how vectors of it are computed.

use super::instructions::Instructions;
use super::pack::Source;
use crate::matmul::low_rank::LowRank;
use crate::pointers::ReadPtr;
use std::ops::Range;

/// A low-rank term from (row, col) on.
#[derive(Clone, Copy)]
pub struct Added {
    of: *const LowRank<'static>,
    row: usize,
    col: usize,
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
    fn of(&self) -> &LowRank<'_> {
        // SAFETY: it outlives the matmul.
        unsafe { &*self.of }
    }

    /// The first column.
    pub fn col(&self) -> usize {
        self.col
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

    /// The first `cols` ≤ N · LANES columns of a row.
    ///
    /// # Safety
    /// The machine must have the instructions; the position must lie within the destination.
    #[inline(always)]
    pub(super) unsafe fn row_of<I: Instructions, const N: usize>(
        &self,
        row: usize,
        cols: usize,
    ) -> [I::Sum; N] {
        let ranks = self.ranks(cols);
        let (z, factor) = self.sources(ranks.clone(), 1, cols);
        let (ReadPtr::F32(z), ReadPtr::F32(factor)) = (z.start.add(row * z.stride), factor.start)
        else {
            unreachable!("both are f32")
        };
        let cols_of_all = self.of().factor.len() / self.of().ranks;
        // SAFETY: sizes were checked, and the caller names a position in the destination.
        unsafe {
            let mut sums = [I::zero(); N];
            for r in 0..ranks.len() {
                let z = I::splat(*z.add(r));
                for (j, sum) in sums.iter_mut().enumerate() {
                    let n = cols.saturating_sub(j * I::LANES).min(I::LANES);
                    let factor = factor.wrapping_add(r * cols_of_all + j * I::LANES);
                    *sum = I::mul_add(z, I::load(factor, n), *sum);
                }
            }
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = self.kept::<I>(*sum, row, j * I::LANES);
            }
            sums
        }
    }

    /// The masked and scaled part of a vector that begins at (row, col). A vector beyond the last column is zero.
    ///
    /// # Safety
    /// As for [`Added::row_of`].
    #[inline(always)]
    pub(super) unsafe fn kept<I: Instructions>(
        &self,
        sum: I::Sum,
        row: usize,
        col: usize,
    ) -> I::Sum {
        let (of, row, col) = (self.of(), self.row + row, self.col + col);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let sum = I::mul(sum, I::splat(of.whole_scale()));
            match of.kept {
                Some(kept) if col < kept.words * 32 => I::keep(sum, kept.bits(row, col)),
                _ => sum,
            }
        }
    }
}
