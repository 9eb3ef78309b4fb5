//! Sums over long slices with a fixed partition, so that the result does not depend on the number of threads.

use super::simd::multiversion;
use super::threads;
use rayon::prelude::*;

/// Elements per partial sum.
const CHUNK: usize = 1 << 15;

/// √(Σ x²) with f64 accumulation.
pub fn l2_norm(values: &[f32]) -> f64 {
    let sums: Vec<f64> = values.par_chunks(CHUNK).map(squares).collect();
    sums.iter().sum::<f64>().sqrt()
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

/// Columns that one task sums.
const COLUMNS: usize = 64;

/// Rows summed in f32 before their sum joins the total: keeps rounding errors of long columns small.
const ROW_BLOCK: usize = 64;

/// `sums` (D) += Σ over rows of `x` (N, D).
pub fn add_column_sums(sums: &mut [f32], x: &[f32]) {
    let width = sums.len();
    let rows = x.len() / width.max(1);
    by_columns(sums, rows, |column, sums| {
        column_sums(sums, x, width, column);
    });
}

/// Calls `f(first column, sums)` over blocks of columns.
pub(super) fn by_columns(sums: &mut [f32], rows: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    let width = sums.len();
    if width * rows < 2 * CHUNK {
        for (block, sums) in sums.chunks_mut(COLUMNS).enumerate() {
            f(block * COLUMNS, sums);
        }
    } else {
        sums.par_chunks_mut(COLUMNS)
            .enumerate()
            .for_each(|(block, sums)| f(block * COLUMNS, sums));
    }
}

multiversion! {
    fn column_sums(sums: &mut [f32], x: &[f32], width: usize, column: usize) {
        let n = sums.len();
        for rows in x.chunks(ROW_BLOCK * width) {
            let mut partial = [0.0_f32; COLUMNS];
            let partial = &mut partial[..n];
            for row in rows.chunks_exact(width) {
                for (p, &x) in partial.iter_mut().zip(&row[column..column + n]) {
                    *p += x;
                }
            }
            for (sum, &p) in sums.iter_mut().zip(&*partial) {
                *sum += p;
            }
        }
    }
}

/// `a` += `b`.
pub fn add(a: &mut [f32], b: &[f32]) {
    threads::rows1(a, 1, 1, |first, a| add_part(a, &b[first..]));
}

multiversion! {
    fn add_part(a: &mut [f32], b: &[f32]) {
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
    fn column_sums_take_every_row_of_ragged_shapes() {
        for (rows, width) in [(1, 1), (3, 70), (130, 65), (1000, 129)] {
            let x: Vec<f32> = (0..rows * width).map(|i| (i % 7) as f32).collect();
            let mut sums = vec![1.0; width];
            add_column_sums(&mut sums, &x);
            for (column, sum) in sums.iter().enumerate() {
                let exact: f32 = (0..rows).map(|r| x[r * width + column]).sum();
                assert_eq!(*sum, 1.0 + exact, "{rows} {width} {column}");
            }
        }
    }
}
