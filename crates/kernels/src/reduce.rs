//! Sums over long slices with a fixed partition, so that results do not depend on the number of threads.
#![allow(unsafe_code)]

use super::matmul::Accumulation;
use super::numbers::Number;
use super::simd::multiversion;
use super::threads::{self, Shared};
use rayon::prelude::*;
use std::cell::Cell;
use std::ops::Range;

/// Elements per partial sum.
const CHUNK: usize = 1 << 15;

/// √(Σ x²) with f64 accumulation.
pub fn l2_norm(values: &[f32]) -> f64 {
    /// Chunks summed before their sums are combined: bounds the memory for partial sums.
    const WAVE: usize = 1 << 10;
    let mut total = 0.0;
    for wave in values.chunks(WAVE * CHUNK) {
        let mut sums = [0.0; WAVE];
        let chunks = wave.par_chunks(CHUNK).zip(sums.par_iter_mut());
        chunks.for_each(|(chunk, sum)| *sum = squares(chunk));
        total += sums.iter().sum::<f64>();
    }
    total.sqrt()
}

/// L2 norm of one row, accumulated in f64, on this thread.
pub fn row_norm(values: &[f32]) -> f64 {
    squares(values).sqrt()
}

multiversion! {
    fn squares(values: &[f32]) -> f64 {
        let mut lanes = [0.0_f64; 8];
        let (blocks, rest) = values.as_chunks::<8>();
        for block in blocks {
            for (lane, &x) in lanes.iter_mut().zip(block) {
                *lane += f64::from(x) * f64::from(x);
            }
        }
        let tail: f64 = rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        lanes.iter().sum::<f64>() + tail
    }
}

/// `sums` (D) = (or +=) Σ over rows of `x` (N, D).
pub fn column_sums<N: Number>(sums: &mut [f32], x: &[N], into: Accumulation) {
    let width = sums.len();
    let rows = x.len() / width.max(1);
    let add = |rows: Range<usize>, sums: &mut [f32]| {
        add_rows(sums, &x[rows.start * width..rows.end * width]);
    };
    over_rows(rows, width, width, add, |total| join(sums, total, into));
}

/// `sums` = (or +=) `total`.
pub(super) fn join(sums: &mut [f32], total: &[f32], into: Accumulation) {
    match into {
        Accumulation::Overwrite => sums.copy_from_slice(total),
        Accumulation::Add => add_part(sums, total),
    }
}

thread_local! {
    /// Partial sums of blocks of rows. Moved out while in use: a waiting thread may be given other work.
    static PARTIAL: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Row sums fused with other work: calls `work(rows, sums)` for blocks of rows, on several threads if `cost` per row
/// is worth it, with zeroed `sums` (width) to accumulate into; then `finish` with the blocks' sums added in order.
/// The partition depends only on the number of rows, so the result does not depend on the number of threads.
pub(super) fn over_rows(
    rows: usize,
    width: usize,
    cost: usize,
    work: impl Fn(Range<usize>, &mut [f32]) + Sync,
    finish: impl FnOnce(&[f32]),
) {
    // Few enough rows for f32 sums, enough blocks for many threads.
    let block = rows.div_ceil(16).clamp(16, 256);
    let blocks = rows.div_ceil(block).max(1);
    let mut partial = PARTIAL.take();
    if partial.len() < blocks * width {
        partial.resize(blocks * width, 0.0);
    }
    let sums = Shared(partial.as_mut_ptr());
    threads::tasks(blocks, block * cost, |at| {
        // SAFETY: each task has its own sums within `partial`.
        let sums = unsafe { std::slice::from_raw_parts_mut(sums.at(at * width), width) };
        sums.fill(0.0);
        work(at * block..((at + 1) * block).min(rows), sums);
    });
    let (total, rest) = partial[..blocks * width].split_at_mut(width);
    for sums in rest.chunks_exact(width.max(1)) {
        add_part(total, sums);
    }
    finish(total);
    PARTIAL.set(partial);
}

multiversion! {
    /// `sums` += each row of `x`, four rows at a time.
    fn add_rows<N: Number>(sums: &mut [f32], x: &[N]) {
        let width = sums.len();
        let fours = x.chunks_exact(4 * width);
        let rest = fours.remainder();
        for four in fours {
            let (a, b) = four.split_at(2 * width);
            let ((a, b), (c, d)) = (a.split_at(width), b.split_at(width));
            let rows = a.iter().zip(b).zip(c.iter().zip(d));
            for (sum, ((&a, &b), (&c, &d))) in sums.iter_mut().zip(rows) {
                *sum += (a.wide() + b.wide()) + (c.wide() + d.wide());
            }
        }
        for row in rest.chunks_exact(width) {
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum += x.wide();
            }
        }
    }
}

/// `a` += `b`.
pub fn add(a: &mut [f32], b: &[f32]) {
    threads::rows1(a, 1, 1, |first, a| add_part(a, &b[first..]));
}

multiversion! {
    /// `a` += `b`, on this thread.
    pub(super) fn add_part(a: &mut [f32], b: &[f32]) {
        for (a, &b) in a.iter_mut().zip(b) {
            *a += b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l2_norm_equals_the_plain_sum_and_shows_nan() {
        let values: Vec<f32> = (0..100_003).map(|i| (i % 17) as f32 - 8.0).collect();
        let plain: f64 = values.iter().map(|&x| f64::from(x).powi(2)).sum();
        assert!((l2_norm(&values) - plain.sqrt()).abs() < 1e-9 * plain.sqrt());
        assert!(l2_norm(&[1.0, f32::NAN]).is_nan());
        assert_eq!(l2_norm(&[]), 0.0);
    }

    #[test]
    fn column_sums_count_every_row_of_uneven_shapes() {
        for (rows, width) in [(1, 1), (3, 70), (130, 65), (1000, 129)] {
            let x: Vec<f32> = (0..rows * width).map(|i| (i % 7) as f32).collect();
            let mut sums = vec![1.0; width];
            column_sums(&mut sums, &x, Accumulation::Add);
            for (column, sum) in sums.iter().enumerate() {
                let exact: f32 = (0..rows).map(|r| x[r * width + column]).sum();
                assert_eq!(*sum, 1.0 + exact, "{rows} {width} {column}");
            }
        }
    }
}
