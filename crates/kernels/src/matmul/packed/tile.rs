//! The microkernel: one tile of the destination in registers, its sum along k, and the write-back.

use super::added::Added;
use super::ahead::Ahead;
use super::instructions::{Instructions, Tiles};
use crate::fetch;
use crate::numbers::Number;
use crate::pointers::WritePtr;

/// Destination and addends of a tile: `to` = `scale` · sum (+ `base`) (+ `bias`).
#[derive(Clone, Copy)]
pub struct Write {
    pub to: WritePtr,
    pub stride: usize,
    pub cols: usize,
    pub scale: f32,
    /// A matrix like the destination, with its stride; may be the destination itself.
    pub base: Option<(*const f32, usize)>,
    /// One value per column.
    pub bias: Option<*const f32>,
    pub low_rank: Option<Added>,
}

impl Write {
    /// The same for the tile that starts at (row, col).
    ///
    /// # Safety
    /// The position must lie within all matrices.
    pub unsafe fn at(self, row: usize, col: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Write {
                to: self.to.add(row * self.stride + col),
                base: self
                    .base
                    .map(|(base, stride)| (base.add(row * stride + col), stride)),
                bias: self.bias.map(|bias| bias.add(col)),
                low_rank: self.low_rank.map(|added| added.at(row, col)),
                ..self
            }
        }
    }

    /// Words summed at once where `most` would be best, of `all`: a bf16 destination cannot hold partial sums.
    pub fn most(&self, most: usize, all: usize) -> usize {
        match self.to {
            WritePtr::F32(_) => most,
            WritePtr::Bf16(_) => all.max(1),
        }
    }

    /// Makes the terms that follow accumulate onto what was written.
    #[inline(always)]
    pub fn accumulate(&mut self) {
        self.base = self.to.as_base().map(|base| (base, self.stride));
        self.bias = None;
        self.low_rank = None;
    }

    /// Writes one element.
    ///
    /// # Safety
    /// As for [`Write::at`].
    #[inline(always)]
    pub unsafe fn one(&self, row: usize, col: usize, sum: f32) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut x = sum * self.scale;
            if let Some((base, stride)) = self.base {
                x += *base.add(row * stride + col);
            }
            if let Some(bias) = self.bias {
                x += *bias.add(col);
            }
            if let Some(added) = self.low_rank {
                x += added.one(row, col);
            }
            match self.to.add(row * self.stride + col) {
                WritePtr::F32(to) => *to = x,
                WritePtr::Bf16(to) => *to = Number::narrow(x),
            }
        }
    }
}

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
