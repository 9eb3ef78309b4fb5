//! Symmetric matmuls, such as Gram matrices: the part right of the diagonal is computed, the rest is mirrored.

use super::{Accumulation, Compute, Destination, Mat, matmul_into};

/// Columns computed at once. Of `n` columns (n + STRIP) / 2n of the matmul is computed.
const STRIP: usize = 128;
/// Side of the squares that are transposed at once: both fit the L1 cache.
const SQUARE: usize = 32;

/// `out` (n, n) = (or +=) `scale` · a aᵀ, where a is (n, k). Accumulation expects `out` to be symmetric.
pub fn matmul_symmetric(out: &mut [f32], a: Mat, scale: f32, into: Accumulation, compute: Compute) {
    let n = a.row_count();
    assert_eq!(out.len(), n * n, "destination of a symmetric matmul");
    for from in (0..n).step_by(STRIP) {
        let to = (from + STRIP).min(n);
        let destination = Destination {
            start: out[from..].as_mut_ptr(),
            row_stride: n,
            into,
        };
        // SAFETY: columns from..to of the first rows of `out`, which is exclusively borrowed.
        unsafe {
            matmul_into(
                destination,
                a.rows(0, to),
                a.rows(from, to).t(),
                scale,
                compute,
            )
        };
    }
    mirror(out, n);
}

/// Copies the part right of the diagonal of `out` (n, n) to the other side.
fn mirror(out: &mut [f32], n: usize) {
    for top in (0..n).step_by(SQUARE) {
        for left in (0..=top).step_by(SQUARE) {
            for i in top..(top + SQUARE).min(n) {
                for j in left..(left + SQUARE).min(i) {
                    out[i * n + j] = out[j * n + i];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::{ComputeDtype, matmul};

    /// Several strips and squares with remainders, of a matrix and of its transpose.
    #[test]
    fn a_symmetric_product_is_the_whole_product() {
        for (n, k) in [(1, 3), (33, 40), (128, 7), (300, 70)] {
            let data: Vec<f32> = (0..n * k).map(|i| (i as f32 * 0.7).sin()).collect();
            for a in [Mat::new(&data, n, k), Mat::new(&data, k, n).t()] {
                for arithmetic in [ComputeDtype::F32, ComputeDtype::Bf16] {
                    let compute = Compute::one(arithmetic);
                    let mut whole = vec![f32::NAN; n * n];
                    let mut found = vec![f32::NAN; n * n];
                    matmul(&mut whole, a, a.t(), 2.0, Accumulation::Overwrite, compute);
                    matmul_symmetric(&mut found, a, 2.0, Accumulation::Overwrite, compute);
                    matmul(&mut whole, a, a.t(), 0.5, Accumulation::Add, compute);
                    matmul_symmetric(&mut found, a, 0.5, Accumulation::Add, compute);
                    for (i, (x, y)) in found.iter().zip(&whole).enumerate() {
                        assert!((x - y).abs() < 1e-4, "({n}, {k}) {i}: {x} for {y}");
                        assert_eq!(*x, found[i % n * n + i / n], "({n}, {k}) {i}");
                    }
                }
            }
        }
    }
}
