//! A weight matrix as the forward pass sees it: f32, or quantized. Every layer that multiplies by
//! weights takes a [`Matrix`], so a quantized model runs through the same pass as any other.

use super::matmul::{Compute, Mat, Plus, matmul_plus};
use super::quant::Packed;

/// Weights (rows, cols), row-major; rows are output features, vocabulary entries, …
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a> {
    Dense(&'a [f32]),
    /// Quantized, for forward passes only.
    Packed(&'a Packed),
}

impl<'a> Matrix<'a> {
    /// `y` (x.rows, rows) = `x` (x.rows, cols) · selfᵀ + addends.
    pub fn product(self, y: &mut [f32], x: Mat, rows: usize, plus: Plus, compute: Compute) {
        match self {
            Matrix::Dense(values) => {
                let weights = Mat::new(values, rows, x.cols());
                matmul_plus(y, x, weights.t(), plus, compute);
            }
            Matrix::Packed(packed) => {
                debug_assert_eq!(packed.rows(), rows, "rows of a packed matrix");
                packed.product(y, x, plus, compute);
            }
        }
    }

    /// Copies row `row` into `to` (cols).
    pub fn row(self, row: usize, to: &mut [f32]) {
        match self {
            Matrix::Dense(values) => to.copy_from_slice(&values[row * to.len()..][..to.len()]),
            Matrix::Packed(packed) => packed.row(row, to),
        }
    }

    /// The values of a dense matrix; empty for a packed one. For backward passes, which are rejected for packed weights
    /// before they start.
    pub fn dense(self) -> &'a [f32] {
        match self {
            Matrix::Dense(values) => values,
            Matrix::Packed(_) => &[],
        }
    }
}
