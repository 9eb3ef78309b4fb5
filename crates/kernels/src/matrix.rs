//! A weight matrix of a layer: f32, or quantized. Every layer that multiplies by weights takes a [`Matrix`], so a quantized
//! model runs through the same pass as any other, and its backward reaches the trainable parameters.

use super::aligned::Aligned;
use super::matmul::{
    Accumulation, Compute, ComputeDtype, Lines, Mat, Plus, Produced, matmul, matmul_in_blocks,
    matmul_plus,
};
use super::numbers::ValuesMut;
use super::quant::{self, Packed};
use super::threads;

/// Rows of a packed matrix that are dequantized at once: 4 MiB for 4,096 columns.
const PANEL: usize = 256;
/// Operations per dequantized value, for choosing the thread count.
const DECODING: usize = 4;
/// Rows from which on dequantizing a packed matrix takes less time than eight-bit matmuls.
const MANY: usize = 64;
/// Blocks are cut at multiples of this many rows: whole panels.
const ROWS: usize = 16;

/// Whether matmuls of many rows use a packed matrix as bf16: that is faster in tile registers, and activations are rounded to
/// bf16 instead of eight bits.
fn is_dequantized(compute: Compute) -> bool {
    compute.arithmetic == ComputeDtype::Bf16 && quant::dequantizes_fast()
}

/// Weights (rows, cols), row-major; rows are output features, vocabulary entries, …
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a> {
    Dense(&'a [f32]),
    /// Quantized, hence frozen: it has no gradient of its own.
    Packed(&'a Packed),
}

impl<'a> Matrix<'a> {
    /// `y` (x.rows, rows) = `x` (x.rows, cols) · selfᵀ + addends.
    pub fn product(self, y: ValuesMut, x: Mat, rows: usize, plus: Plus, compute: Compute) {
        match self {
            Matrix::Dense(values) => {
                let weights = Mat::new(values, rows, x.cols());
                matmul_plus(y, x, weights.t(), plus, compute);
            }
            Matrix::Packed(packed) => {
                debug_assert_eq!(packed.rows(), rows, "rows of a packed matrix");
                if x.row_count() >= MANY && is_dequantized(compute) {
                    let make = |rows, to: &mut [_]| packed.dequantize(rows, 0..x.cols(), to);
                    let weights = Produced {
                        n: rows,
                        step: ROWS,
                        lines: Lines::Columns,
                        make: &make,
                    };
                    return matmul_in_blocks(y, x, weights, plus, compute);
                }
                let wide = x.to_f32();
                let x = wide
                    .as_ref()
                    .map_or(x, |wide| Mat::new(wide, x.row_count(), x.cols()));
                y.write_f32(|y| {
                    let others = Plus {
                        low_rank: None,
                        ..plus
                    };
                    packed.product(y, x, others, compute);
                    if let Some(low_rank) = plus.low_rank {
                        low_rank.add_to(y, rows);
                    }
                });
            }
        }
    }

    /// `dx` (dy.rows, cols) = `dy` (dy.rows, rows) · self + addends. A packed matrix is dequantized a part at a time; the rounding
    /// of activations to eight bits counts as the identity.
    pub fn input_gradient(self, dx: ValuesMut, dy: Mat, cols: usize, plus: Plus, compute: Compute) {
        match self {
            Matrix::Dense(values) => {
                let weights = Mat::new(values, dy.cols(), cols);
                matmul_plus(dx, dy, weights, plus, compute);
            }
            Matrix::Packed(packed) if is_dequantized(compute) => {
                let make = |columns, to: &mut [_]| packed.dequantize(0..dy.cols(), columns, to);
                let weights = Produced {
                    n: cols,
                    step: quant::COLUMN_STEP,
                    lines: Lines::Rows,
                    make: &make,
                };
                matmul_in_blocks(dx, dy, weights, plus, compute);
            }
            Matrix::Packed(packed) => dx.write_f32(|dx| {
                packed_gradient(packed, dx, dy, cols, plus.into, compute);
                if let Some(low_rank) = plus.low_rank {
                    low_rank.add_to(dx, cols);
                }
            }),
        }
    }

    /// Copies row `row` into `to` (cols).
    pub fn row(self, row: usize, to: &mut [f32]) {
        match self {
            Matrix::Dense(values) => to.copy_from_slice(&values[row * to.len()..][..to.len()]),
            Matrix::Packed(packed) => packed.row(row, to),
        }
    }

    /// The values of a dense matrix; empty for a packed one.
    pub fn dense(self) -> &'a [f32] {
        match self {
            Matrix::Dense(values) => values,
            Matrix::Packed(_) => &[],
        }
    }
}

/// [`Matrix::input_gradient`] of a packed matrix.
fn packed_gradient(
    packed: &Packed,
    dx: &mut [f32],
    dy: Mat,
    cols: usize,
    into: Accumulation,
    compute: Compute,
) {
    debug_assert_eq!(packed.rows(), dy.cols(), "rows of a packed matrix");
    let mut panel = Aligned::zeros(PANEL.min(dy.cols()) * cols);
    for first in (0..dy.cols()).step_by(PANEL) {
        let rows = PANEL.min(dy.cols() - first);
        let panel = &mut panel[..rows * cols];
        threads::rows1(panel, cols, DECODING * cols, |at, panel| {
            for (i, row) in panel.chunks_exact_mut(cols).enumerate() {
                packed.row(first + at + i, row);
            }
        });
        let into = if first == 0 { into } else { Accumulation::Add };
        let (dy, weights) = (dy.columns(first, rows), Mat::new(panel, rows, cols));
        matmul(dx, dy, weights, 1.0, into, compute);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, normal};
    use crate::quant::Kind;

    #[test]
    fn packed_matrices_give_the_gradient_of_their_dequantized_values() {
        let (n, rows, cols) = (7, 2 * PANEL + 35, 64);
        let values = normal(rows * cols, 0);
        let dy = normal(n * rows, 1);
        let before = normal(n * cols, 2);
        for kind in [Kind::F32, Kind::Q8_0, Kind::Q4_0] {
            let mut bytes = vec![0; kind.row_bytes(cols).unwrap() * rows];
            kind.encode(&values, &mut bytes);
            let mut packed = Packed::new(cols);
            packed.push(kind, rows, &bytes).unwrap();
            let mut dense = vec![0.0; rows * cols];
            kind.decode(&bytes, &mut dense);
            for into in [Accumulation::Overwrite, Accumulation::Add] {
                let run = |matrix: Matrix| {
                    let mut dx = before.clone();
                    let dy = Mat::new(&dy, n, rows);
                    let compute = Compute::pool(ComputeDtype::F32);
                    matrix.input_gradient(ValuesMut::F32(&mut dx), dy, cols, into.into(), compute);
                    dx
                };
                let exact = run(Matrix::Dense(&dense));
                let exact: Vec<f64> = exact.iter().map(|x| f64::from(*x)).collect();
                assert_close("dx", &run(Matrix::Packed(&packed)), &exact, 1e-5);
            }
        }
    }
}
