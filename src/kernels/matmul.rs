//! Matrix products in f32: the `gemm` crate behind views that are checked.
#![allow(unsafe_code)]

use crate::base::clock::{Clock, SystemClock};
use gemm::Parallelism;

/// A matrix to read: element (i, j) lies at i · row_stride + j · col_stride.
#[derive(Debug, Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Mat<'a> {
    /// Row-major without gaps.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Mat::strided(data, rows, cols, cols)
    }

    /// Row-major with `row_stride` elements from one row to the next.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(
            rows == 0 || (rows - 1) * row_stride + cols <= data.len(),
            "a ({rows}, {cols}) matrix with stride {row_stride} does not fit {} elements",
            data.len()
        );
        Mat {
            data,
            rows,
            cols,
            row_stride,
            col_stride: 1,
        }
    }

    /// Rows from..to of a row-major view.
    pub fn rows(self, from: usize, to: usize) -> Self {
        let data = &self.data[from * self.row_stride..];
        Mat::strided(data, to - from, self.cols, self.row_stride)
    }

    /// The transposed view.
    pub fn t(self) -> Self {
        Mat {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

/// What happens to the values that stand in the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Into {
    Overwrite,
    Accumulate,
}

/// Whether a product may use the whole pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    One,
    Pool,
}

/// A row-major destination with `row_stride` elements from one row to the next.
#[derive(Debug, Clone, Copy)]
pub struct Destination {
    pub start: *mut f32,
    pub row_stride: usize,
    pub into: Into,
}

/// `out` (a.rows, b.cols) = (or +=) `scale` · a b.
pub fn matmul(out: &mut [f32], a: Mat, b: Mat, scale: f32, into: Into, threads: Threads) {
    assert_eq!(
        out.len(),
        a.rows * b.cols,
        "destination of a matrix product"
    );
    let destination = Destination {
        start: out.as_mut_ptr(),
        row_stride: b.cols,
        into,
    };
    // SAFETY: the destination is exclusively borrowed and holds a.rows × b.cols elements.
    unsafe { matmul_into(destination, a, b, scale, threads) }
}

/// The same into a block of a larger matrix.
///
/// # Safety
/// Rows 0..a.rows of the destination, b.cols wide, must be valid for writing (and initialised, for `Accumulate`), and
/// nobody else may touch them meanwhile.
pub unsafe fn matmul_into(to: Destination, a: Mat, b: Mat, scale: f32, threads: Threads) {
    assert_eq!(a.cols, b.rows, "inner sizes of a matrix product");
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::Pool => Parallelism::Rayon(0),
    };
    // SAFETY: views hold all elements that their sizes and strides reach (checked when they were made); the caller
    // vouches for the destination.
    unsafe {
        gemm::gemm(
            a.rows,
            b.cols,
            a.cols,
            to.start,
            1,
            to.row_stride as isize,
            to.into == Into::Accumulate,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// The machine's f32 peak as far as it matters here: the best of repeated 768³ products within `seconds`, in GFLOP/s, on
/// all threads of the pool.
pub fn peak_gflops(seconds: f64) -> f64 {
    const N: usize = 768;
    let a: Vec<f32> = (0..N * N).map(|i| (i % 13) as f32 * 0.1).collect();
    let mut out = vec![0.0; N * N];
    let clock = SystemClock::new();
    let mut best = f64::INFINITY;
    while clock.elapsed().as_secs_f64() < seconds || best.is_infinite() {
        let start = clock.elapsed();
        let view = Mat::new(&a, N, N);
        matmul(&mut out, view, view, 1.0, Into::Overwrite, Threads::Pool);
        best = best.min((clock.elapsed() - start).as_secs_f64());
    }
    2.0 * (N * N * N) as f64 / best / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).sin()).collect()
    }

    /// (m, n, k) products in f64, all combinations of transposition.
    #[test]
    fn products_equal_the_plain_sum_for_odd_shapes_and_transposes() {
        for (m, n, k) in [
            (1, 1, 1),
            (1, 33, 17),
            (7, 5, 3),
            (65, 31, 130),
            (2, 200, 1),
        ] {
            let (a, b) = (values(m * k, 0.7), values(k * n, 0.3));
            let (at, bt) = (transposed(&a, m, k), transposed(&b, k, n));
            let mut exact = vec![0.0_f64; m * n];
            for i in 0..m {
                for j in 0..n {
                    exact[i * n + j] = (0..k)
                        .map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j]))
                        .sum();
                }
            }
            let lefts = [Mat::new(&a, m, k), Mat::new(&at, k, m).t()];
            let rights = [Mat::new(&b, k, n), Mat::new(&bt, n, k).t()];
            for left in lefts {
                for right in rights {
                    let mut out = vec![1.0; m * n];
                    matmul(&mut out, left, right, 2.0, Into::Accumulate, Threads::Pool);
                    for (x, e) in out.iter().zip(&exact) {
                        assert!((f64::from(*x) - 1.0 - 2.0 * e).abs() < 1e-4, "{m} {n} {k}");
                    }
                }
            }
        }
    }

    fn transposed(x: &[f32], rows: usize, cols: usize) -> Vec<f32> {
        (0..rows * cols)
            .map(|i| x[(i % rows) * cols + i / rows])
            .collect()
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let (m, n, k) = (768, 384, 640);
        let (a, b) = (values(m * k, 0.7), values(k * n, 0.3));
        let product = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let mut out = vec![0.0; m * n];
            pool.unwrap().install(|| {
                let (a, b) = (Mat::new(&a, m, k), Mat::new(&b, k, n));
                matmul(&mut out, a, b, 1.0, Into::Overwrite, Threads::Pool);
            });
            out
        };
        let one = product(1);
        assert!(one == product(2) && one == product(3));
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_view_beyond_its_slice_is_refused() {
        Mat::new(&[0.0; 5], 2, 3);
    }

    #[test]
    fn the_peak_is_a_positive_number() {
        assert!(peak_gflops(0.0) > 0.1);
    }
}
