//! A matrix of weights as a forward pass reads it: f32 in memory, or packed in fewer bits. Every layer that multiplies by
//! weights takes a [`Matrix`], so a quantised model runs through the same pass as any other.

use super::matmul::{Compute, Mat, Plus, matmul_plus};
use super::quant::Packed;

/// Weights (rows, cols), row-major; rows are output features, vocabulary entries, …
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a> {
    Dense(&'a [f32]),
    /// For forward passes alone.
    Packed(&'a Packed),
}

impl<'a> Matrix<'a> {
    /// `y` (x.rows, rows) = `x` (x.rows, cols) · selfᵀ + what is to be added.
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

    /// Copies row number `row` into `to` (cols).
    pub fn row(self, row: usize, to: &mut [f32]) {
        match self {
            Matrix::Dense(values) => to.copy_from_slice(&values[row * to.len()..][..to.len()]),
            Matrix::Packed(packed) => packed.row(row, to),
        }
    }

    /// The values of a dense matrix; nothing of a packed one. For backward passes, which are refused for packed weights
    /// before they begin.
    pub fn dense(self) -> &'a [f32] {
        match self {
            Matrix::Dense(values) => values,
            Matrix::Packed(_) => &[],
        }
    }
}
