//! Inputs and outputs of a matmul: views that are checked on construction.

use super::low_rank::LowRank;
use crate::numbers::Values;

/// A matrix to read: element (i, j) lies at i · row_stride + j · col_stride.
#[derive(Debug, Clone, Copy)]
pub struct Mat<'a> {
    pub(super) data: Values<'a>,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

impl<'a> Mat<'a> {
    /// Row-major and contiguous.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Mat::strided(data, rows, cols, cols)
    }

    /// The same for any storage dtype.
    pub fn of(data: Values<'a>, rows: usize, cols: usize) -> Self {
        Mat::in_lines(data, rows, cols, cols)
    }

    /// Row-major with a stride of `row_stride` elements.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        Mat::in_lines(Values::F32(data), rows, cols, row_stride)
    }

    fn in_lines(data: Values<'a>, rows: usize, cols: usize, row_stride: usize) -> Self {
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

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `row` of a row-major view of f32.
    pub fn row(&self, row: usize) -> &'a [f32] {
        &self.data.f32()[row * self.row_stride..][..self.cols]
    }

    /// Rows from..to.
    pub fn rows(self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.rows, "rows of a view");
        Mat {
            data: self.data.from(from * self.row_stride),
            rows: to - from,
            ..self
        }
    }

    /// Columns from..from + count of a row-major view.
    pub fn columns(self, from: usize, count: usize) -> Self {
        Mat::in_lines(self.data.from(from), self.rows, count, self.row_stride)
    }

    /// The elements row by row, unless they are f32 already.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        let Values::Bf16(_) = self.data else {
            return None;
        };
        let row = |i: usize| (0..self.cols).map(move |j| self.get(i, j));
        Some((0..self.rows).flat_map(row).collect())
    }

    /// Element (i, j).
    pub(super) fn get(&self, i: usize, j: usize) -> f32 {
        self.data.get(i * self.row_stride + j * self.col_stride)
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

/// What happens to the destination's previous values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Accumulation {
    #[default]
    Overwrite,
    Add,
}

/// A row-major destination with a stride of `row_stride` elements.
#[derive(Debug, Clone, Copy)]
pub struct Destination {
    pub start: *mut f32,
    pub row_stride: usize,
    pub into: Accumulation,
}

/// Addends of a matmul, applied when writing the destination.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plus<'a> {
    /// The destination's own values; not together with a residual, and not in bf16.
    pub into: Accumulation,
    /// As large as the destination.
    pub residual: Option<&'a [f32]>,
    /// One value per column.
    pub bias: Option<&'a [f32]>,
    pub low_rank: Option<LowRank<'a>>,
}

impl From<Accumulation> for Plus<'_> {
    fn from(into: Accumulation) -> Self {
        Plus {
            into,
            ..Plus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_view_beyond_its_slice_is_refused() {
        Mat::new(&[0.0; 5], 2, 3);
    }
}
