//! The loops of skinny matmuls over a task's rows or columns.
#![allow(unsafe_code)]

use super::{COLUMNS, PAIRS, View, pair_stride};
use crate::dropout::Kept;
use crate::fetch;
use crate::lanes::{InLanes, LINE, Vector, widest};
use crate::numbers::bf16;
use crate::pointers::ReadPtr;
use crate::threads::Shared;

/// The body for the storage dtype; a closure would not have the instructions.
macro_rules! of_numbers {
    ($source:expr, |$x:ident| $body:expr) => {
        match $source {
            ReadPtr::F32($x) => $body,
            ReadPtr::Bf16($x) => $body,
        }
    };
}

/// Inputs of a task.
pub(super) struct Job<'a> {
    pub x: (ReadPtr, View),
    pub z: (*const f32, View),
    pub kept: Option<Kept<'a>>,
    pub factor: &'a [f32],
    /// The factor in bf16, rows [`pair_stride`] apart.
    pub rounded: &'a [bf16],
    pub scale: f32,
}

// SAFETY: tasks read it.
unsafe impl Sync for Job<'_> {}
// SAFETY: as above.
unsafe impl Send for Job<'_> {}

impl Job<'_> {
    /// `n` features of a row from `column` on, 0 where dropped.
    #[inline(always)]
    unsafe fn features<V: Vector>(
        &self,
        x: *const impl InLanes,
        (row, column): (usize, usize),
        n: usize,
    ) -> V {
        // SAFETY: the caller names a position within x.
        unsafe {
            let x: V = InLanes::load_first(x.add(self.x.1.start(row) + column), n);
            match self.kept {
                Some(kept) => x.keep_bits(kept.bits(row, column)),
                None => x,
            }
        }
    }
}

/// The body for each register of `n` numbers, with its first index and count; only the last may be shorter. A closure would
/// not have the instructions.
macro_rules! registers {
    ($V:ident, $n:expr, |$at:ident, $count:ident| $body:block) => {{
        let whole = $n / $V::LANES * $V::LANES;
        for $at in (0..whole).step_by($V::LANES) {
            let $count = $V::LANES;
            $body
        }
        if whole < $n {
            let ($at, $count) = (whole, $n - whole);
            $body
        }
    }};
}

/// Calls `f::<V, M, R>(job, out, row, rank)` for blocks of M rows and R ranks that cover all of them: 2 rows or 1, and 8, 4, 2 or 1
/// ranks.
macro_rules! in_blocks {
    ($f:ident::<$V:ident>($job:ident, $out:ident), ($first:ident, $rows:ident)) => {{
        let (ranks, end) = ($job.z.1.cols, $first + $rows);
        let mut row = $first;
        while row + 1 < end {
            in_blocks!(@ $f, $V, 2, $job, $out, row, ranks);
            row += 2;
        }
        if row < end {
            in_blocks!(@ $f, $V, 1, $job, $out, row, ranks);
        }
    }};
    (@ $f:ident, $V:ident, $M:literal, $job:ident, $out:ident, $row:ident, $ranks:ident) => {{
        let mut rank = 0;
        while rank < $ranks {
            rank += match $ranks - rank {
                8.. => in_blocks!(@ $f::<$V, $M, 8>($job, $out, $row, rank)),
                4.. => in_blocks!(@ $f::<$V, $M, 4>($job, $out, $row, rank)),
                2.. => in_blocks!(@ $f::<$V, $M, 2>($job, $out, $row, rank)),
                _ => in_blocks!(@ $f::<$V, $M, 1>($job, $out, $row, rank)),
            };
        }
    }};
    (@ $f:ident::<$V:ident, $M:literal, $R:literal>$arguments:tt) => {{
        $f::<$V, $M, $R> $arguments;
        $R
    }};
}

widest! { pub(super) fn project_rows(pairs, job: &Job<'_>, z: Shared, first: usize, rows: usize) = project_with }

#[inline(always)]
unsafe fn project_with<V: Vector>(job: &Job<'_>, z: Shared, first: usize, rows: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if V::NUMBERS == 2
            && let ReadPtr::Bf16(x) = job.x.0
        {
            let at = (x, z);
            return in_blocks!(project_pairs_at::<V>(job, at), (first, rows));
        }
        of_numbers!(job.x.0, |x| {
            let at = (x, z);
            in_blocks!(project_at::<V>(job, at), (first, rows));
        });
    }
}

#[inline(always)]
unsafe fn project_at<V: Vector, const M: usize, const R: usize>(
    job: &Job<'_>,
    (from, z): (*const impl InLanes, Shared),
    row: usize,
    rank: usize,
) {
    let (d, to) = (job.x.1.cols, job.z.1);
    let factor = job.factor[rank * d..(rank + R) * d].as_ptr();
    // SAFETY: rows of x and z, ranks of the factor.
    unsafe {
        let mut sums = [[V::zero(); R]; M];
        registers!(V, d, |at, n| {
            let mut x = [V::zero(); M];
            for (i, x) in x.iter_mut().enumerate() {
                *x = job.features::<V>(from, (row + i, at), n);
            }
            for r in 0..R {
                let f = V::load_first(factor.add(r * d + at), n);
                for (sums, x) in sums.iter_mut().zip(x) {
                    sums[r] = f.fused(x, sums[r]);
                }
            }
        });
        for (i, sums) in sums.into_iter().enumerate() {
            for (r, sum) in sums.into_iter().enumerate() {
                *z.at(to.start(row + i) + rank + r) = sum.total() * job.scale;
            }
        }
    }
}

/// The same for pairs.
#[inline(always)]
unsafe fn project_pairs_at<V: Vector, const M: usize, const R: usize>(
    job: &Job<'_>,
    (from, z): (*const bf16, Shared),
    row: usize,
    rank: usize,
) {
    let (at, to) = (job.x.1, job.z.1);
    let stride = pair_stride(at.cols);
    let factor = job.rounded[rank * stride..(rank + R) * stride].as_ptr();
    // SAFETY: rows of x and z, ranks of the factor.
    unsafe {
        let mut sums = [[V::zero(); R]; M];
        for column in (0..at.cols).step_by(PAIRS) {
            let mut x = [V::zero(); M];
            for (i, x) in x.iter_mut().enumerate() {
                let from = from.add(at.start(row + i) + column);
                let words = pairs_of::<V>(from, at.cols - column);
                *x = match job.kept {
                    Some(kept) => words.keep_numbers(kept.bits(row + i, column)),
                    None => words,
                };
            }
            for r in 0..R {
                let f = V::load(factor.add(r * stride + column).cast());
                for (sums, x) in sums.iter_mut().zip(x) {
                    sums[r] = f.multiply_add(x, sums[r]);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (r, sum) in sums.into_iter().enumerate() {
                *z.at(to.start(row + i) + rank + r) = sum.total() * job.scale;
            }
        }
    }
}

/// Up to `n` numbers as pairs, then 0.
#[inline(always)]
unsafe fn pairs_of<V: Vector>(from: *const bf16, n: usize) -> V {
    #[repr(align(64))]
    struct Line([bf16; PAIRS]);
    // SAFETY: guaranteed by the caller, for n numbers.
    unsafe {
        if n >= PAIRS {
            return V::load(from.cast());
        }
        let mut line = Line([bf16::ZERO; PAIRS]);
        std::ptr::copy_nonoverlapping(from, line.0.as_mut_ptr(), n);
        V::load(line.0.as_ptr().cast())
    }
}

widest! { pub(super) fn expand_rows(pairs, job: &Job<'_>, x: Shared, first: usize, rows: usize) = expand_with }

#[inline(always)]
unsafe fn expand_with<V: Vector>(job: &Job<'_>, x: Shared, first: usize, rows: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { in_blocks!(expand_at::<V>(job, x), (first, rows)) }
}

#[inline(always)]
unsafe fn expand_at<V: Vector, const M: usize, const R: usize>(
    job: &Job<'_>,
    x: Shared,
    row: usize,
    rank: usize,
) {
    let ((z, from), at) = (job.z, job.x.1);
    let d = at.cols;
    let factor = job.factor[rank * d..(rank + R) * d].as_ptr();
    // SAFETY: rows of x and z, ranks of the factor.
    unsafe {
        let mut weights = [[V::zero(); R]; M];
        for (i, weights) in weights.iter_mut().enumerate() {
            for (r, weight) in weights.iter_mut().enumerate() {
                *weight = V::all(*z.add(from.start(row + i) + rank + r) * job.scale);
            }
        }
        registers!(V, d, |column, n| {
            let mut sums = [V::zero(); M];
            for r in 0..R {
                let f = V::load_first(factor.add(r * d + column), n);
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = weights[r].fused(f, *sum);
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                let sum = match job.kept {
                    Some(kept) => sum.keep_bits(kept.bits(row + i, column)),
                    None => sum,
                };
                let to = x.at(at.start(row + i) + column);
                V::load_first(to, n).plus(sum).store_first(to, n);
            }
        });
    }
}

widest! { pub(super) fn sum_columns(pairs, job: &Job<'_>, cols: (usize, usize), sums: &mut [f32]) = sum_columns_with }

#[inline(always)]
unsafe fn sum_columns_with<V: Vector>(job: &Job<'_>, cols: (usize, usize), sums: &mut [f32]) {
    sums.fill(0.0);
    // SAFETY: guaranteed by the caller.
    unsafe { of_numbers!(job.x.0, |x| sum_all::<V>(job, x, cols, sums)) }
}

#[inline(always)]
unsafe fn sum_all<V: Vector>(
    job: &Job<'_>,
    x: *const impl InLanes,
    cols: (usize, usize),
    sums: &mut [f32],
) {
    const TOGETHER: usize = 8;
    let at = job.x.1;
    let whole = at.rows / TOGETHER * TOGETHER;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for row in (0..whole).step_by(TOGETHER) {
            let next = x.wrapping_add(at.start(row + TOGETHER) + cols.0);
            for i in 0..TOGETHER {
                fetch::at(next.wrapping_add(i * at.width), cols.1);
            }
            sum_rows::<V, TOGETHER>(job, x, (row, cols), sums);
        }
        for row in whole..at.rows {
            sum_rows::<V, 1>(job, x, (row, cols), sums);
        }
    }
}

#[inline(always)]
unsafe fn sum_rows<V: Vector, const M: usize>(
    job: &Job<'_>,
    from: *const impl InLanes,
    (row, (first, cols)): (usize, (usize, usize)),
    sums: &mut [f32],
) {
    let (z, of) = job.z;
    // SAFETY: rows of x and z, columns of x; sums are whole lines.
    unsafe {
        registers!(V, cols, |at, n| {
            let mut x = [V::zero(); M];
            for (i, x) in x.iter_mut().enumerate() {
                *x = job.features::<V>(from, (row + i, first + at), n);
            }
            for r in 0..of.cols {
                let to = sums.as_mut_ptr().add(r * COLUMNS + at);
                let mut sum = V::load(to);
                for (i, x) in x.into_iter().enumerate() {
                    sum = V::splat(z.add(of.start(row + i) + r)).fused(x, sum);
                }
                sum.store(to);
            }
        });
    }
}

const _: () = assert!(COLUMNS.is_multiple_of(LINE));
