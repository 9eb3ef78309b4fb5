//! A matrix kept in the blocks of a file, multiplied without ever being whole in f32.

use super::formats::Kind;
use crate::kernels::matmul::{Compute, Mat, Plus, matmul_plus};

/// What is wrong with the bytes of a matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    #[error("rows of {cols} values are no whole number of {kind}'s blocks")]
    Cols { kind: &'static str, cols: usize },
    #[error("{rows} rows of {cols} values in {kind} take {expected} bytes, not {found}")]
    Bytes {
        kind: &'static str,
        rows: usize,
        cols: usize,
        expected: usize,
        found: usize,
    },
    #[error("row {row} holds a value that is no finite number")]
    NotFinite { row: usize },
}

/// A matrix (rows, cols), row-major, whose rows may be of several formats.
#[derive(Debug)]
pub struct Packed {
    cols: usize,
    rows: usize,
    parts: Vec<Part>,
}

/// Rows of one format.
#[derive(Debug)]
struct Part {
    kind: Kind,
    first: usize,
    row_bytes: usize,
    bytes: Vec<u8>,
}

/// Rows that are widened at once.
const WIDE_ROWS: usize = 512;

impl Packed {
    /// No rows yet, of `cols` values each.
    pub fn new(cols: usize) -> Packed {
        Packed {
            cols,
            rows: 0,
            parts: Vec::new(),
        }
    }

    /// Adds `rows` rows below those that are there.
    ///
    /// # Errors
    /// The bytes are not those of so many rows, or stand for a number that is not finite.
    pub fn push(&mut self, kind: Kind, rows: usize, bytes: &[u8]) -> Result<(), PackError> {
        let name = kind.name();
        let row_bytes = kind.row_bytes(self.cols).ok_or(PackError::Cols {
            kind: name,
            cols: self.cols,
        })?;
        let expected = row_bytes.saturating_mul(rows);
        if expected != bytes.len() {
            return Err(PackError::Bytes {
                kind: name,
                rows,
                cols: self.cols,
                expected,
                found: bytes.len(),
            });
        }
        let mut values = vec![0.0; self.cols];
        for (row, bytes) in bytes.chunks_exact(row_bytes.max(1)).enumerate() {
            kind.decode(bytes, &mut values);
            if !values.iter().all(|x| x.is_finite()) {
                return Err(PackError::NotFinite { row });
            }
        }
        self.parts.push(Part {
            kind,
            first: self.rows,
            row_bytes,
            bytes: bytes.to_vec(),
        });
        self.rows += rows;
        Ok(())
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes that a product reads.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// Row number `row` as f32.
    ///
    /// # Panics
    /// When there is no such row, or `to` is not a row long.
    pub fn row(&self, row: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.cols, "a row of a packed matrix");
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let after = self.parts.partition_point(|part| part.first <= row);
        let part = &self.parts[after - 1];
        let at = (row - part.first) * part.row_bytes;
        part.kind.decode(&part.bytes[at..at + part.row_bytes], to);
    }

    /// `y` (x.rows, rows) = `x` (x.rows, cols) · selfᵀ + what is to be added.
    pub fn product(&self, y: &mut [f32], x: Mat, plus: Plus, compute: Compute) {
        let n = x.row_count();
        assert_eq!(x.cols(), self.cols, "inner sizes of a matrix product");
        assert_eq!(y.len(), n * self.rows, "destination of a matrix product");
        let mut wide = vec![0.0; WIDE_ROWS * self.cols];
        let mut out = vec![0.0; n * WIDE_ROWS];
        for first in (0..self.rows).step_by(WIDE_ROWS) {
            let rows = WIDE_ROWS.min(self.rows - first);
            for (i, row) in wide.chunks_exact_mut(self.cols).take(rows).enumerate() {
                self.row(first + i, row);
            }
            let weights = Mat::new(&wide[..rows * self.cols], rows, self.cols);
            let out = &mut out[..n * rows];
            matmul_plus(out, x, weights.t(), Plus::default(), compute);
            for (i, sums) in out.chunks_exact(rows).enumerate() {
                let at = i * self.rows + first;
                for (j, sum) in sums.iter().enumerate() {
                    let residual = plus.residual.map_or(0.0, |r| r[at + j]);
                    let bias = plus.bias.map_or(0.0, |b| b[first + j]);
                    y[at + j] = sum + residual + bias;
                }
            }
        }
    }
}
