//! The microkernel: one tile of the destination in registers, its sum along k, and the write-back.

use super::added::Added;
use super::ahead::Ahead;
use super::instructions::{Instructions, Tiles};
use super::job::Write;
use crate::fetch;
use crate::pointers::{ReadPtr, WritePtr};

/// A tile of `M` rows and up to `N` vectors. Every element is summed in the order of k whatever M and N are, so that the
/// tiling of a matrix does not change the bits.
///
/// # Safety
/// The machine must have the instructions; `left` and `right` must hold `words` words of a panel each; `write` must be
/// valid for M rows of `write.cols` ≤ N · LANES columns.
#[inline(always)]
pub(super) unsafe fn tile<I: Instructions, const M: usize, const N: usize>(
    words: usize,
    mut left: *const u32,
    mut right: *const u32,
    write: Write,
    ahead: &mut Ahead,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[I::zero(); N]; M];
        prefetch::<I>(write, M, N);
        for _ in 0..words / I::WORDS_PER_TURN {
            ahead.turn();
            // Unrolled by hand, 3 % faster: compilers find the loop too large.
            const { assert!(I::WORDS_PER_TURN == 4) };
            step::<I, M, N>(&mut sums, left, right);
            step::<I, M, N>(&mut sums, left.add(I::ROWS), right.add(I::COLS));
            step::<I, M, N>(&mut sums, left.add(2 * I::ROWS), right.add(2 * I::COLS));
            step::<I, M, N>(&mut sums, left.add(3 * I::ROWS), right.add(3 * I::COLS));
            left = left.add(I::WORDS_PER_TURN * I::ROWS);
            right = right.add(I::WORDS_PER_TURN * I::COLS);
        }
        for _ in 0..words % I::WORDS_PER_TURN {
            step::<I, M, N>(&mut sums, left, right);
            left = left.add(I::ROWS);
            right = right.add(I::COLS);
        }
        // On a copy: `finish` indexes its sums, and compilers keep indexed arrays in memory, here for the loop above too.
        let sums = sums;
        finish::<I, M, N>(&sums, write);
    }
}

/// Accumulates one word along k.
#[inline(always)]
unsafe fn step<I: Instructions, const M: usize, const N: usize>(
    sums: &mut [[I::Sum; N]; M],
    left: *const u32,
    right: *const u32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut columns = [I::words(right); N];
        for (j, column) in columns.iter_mut().enumerate().skip(1) {
            *column = I::words(right.add(j * I::LANES));
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            let row = I::broadcast(left.add(i));
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = I::dot(*sum, row, column);
            }
        }
    }
}

/// Prefetches the destination and the addends, so that both are cached when the sum is done.
#[inline(always)]
pub(super) unsafe fn prefetch<I: Tiles>(write: Write, rows: usize, vectors: usize) {
    for i in 0..rows {
        for j in 0..vectors {
            let to = write.to.add(i * write.stride + j * I::LANES);
            to.fetch(1);
            if let Some((base, stride)) = write.base
                && write.to.as_base() != Some(base)
            {
                fetch::at(base.wrapping_add(i * stride + j * I::LANES), 1);
            }
        }
    }
}

#[inline(always)]
unsafe fn finish<I: Instructions, const M: usize, const N: usize>(
    sums: &[[I::Sum; N]; M],
    write: Write,
) {
    // Checked once: usually there is no low-rank term, and rows are written without any test for it.
    match write.low_rank {
        None => {
            for (i, sums) in sums.iter().enumerate() {
                // SAFETY: a row of the tile, guaranteed by the caller.
                unsafe { finish_row::<I, N>(sums, None, i, write) };
            }
        }
        Some(added) => {
            for (i, sums) in sums.iter().enumerate() {
                // SAFETY: as above.
                unsafe {
                    let joins = added.row_of::<I, N>(i, write.cols);
                    finish_row::<I, N>(sums, Some(joins), i, write);
                }
            }
        }
    }
}

/// Writes row `i` of a tile, with its low-rank term.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
pub(super) unsafe fn finish_row<I: Instructions, const N: usize>(
    sums: &[I::Sum; N],
    joins: Option<[I::Sum; N]>,
    i: usize,
    write: Write,
) {
    // SAFETY: a row of the tile, guaranteed by the caller.
    unsafe {
        let scale = I::splat(write.scale);
        for (j, &sum) in sums.iter().enumerate() {
            let col = j * I::LANES;
            let n = write.cols.saturating_sub(col).min(I::LANES);
            if n == 0 {
                break;
            }
            let mut x = match write.base {
                Some((base, stride)) => {
                    I::mul_add(sum, scale, I::load(base.add(i * stride + col), n))
                }
                None => I::mul(sum, scale),
            };
            if let Some(bias) = write.bias {
                x = I::add(x, I::load(bias.add(col), n));
            }
            if let Some(joins) = joins {
                x = I::add(x, joins[j]);
            }
            match write.to.add(i * write.stride + col) {
                WritePtr::F32(to) => I::store(to, n, x),
                WritePtr::Bf16(to) => I::store_bf16(to, n, x),
            }
        }
    }
}

impl Added {
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

/// Calls `f::<M, N>(arguments)` for the size (M, N), among the listed rows and vectors.
macro_rules! by_size {
    ($size:expr, [$($m:literal)*], $vectors:tt, $f:ident $arguments:tt) => {
        match $size.0 {
            $($m => $crate::matmul::packed::tile::by_size!(@ $size, $m, $vectors, $f $arguments),)*
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
    (@ $size:expr, $m:literal, [$($n:literal)*], $f:ident $arguments:tt) => {
        match $size.1 {
            $($n => $f::<$m, $n> $arguments,)*
            vectors => unreachable!("a tile of {vectors} vectors"),
        }
    };
}
pub(super) use by_size;
