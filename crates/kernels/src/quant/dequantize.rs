//! Quantized weights → bf16, some rows and columns at a time: for matmuls of many rows, and for gradients of inputs.

use super::floats::Floats;
use super::lanes::ROWS;
use super::packed::{Body, Packed, Panels};
use crate::numbers::{Number, Run, bf16};
use crate::simd::{Level, level};
use crate::threads;
use std::ops::Range;

/// Columns are cut only at multiples of this: the largest block of any format.
pub const COLUMN_STEP: usize = super::formats::VALUES;
/// Operations per value, for choosing the thread count.
const COST: usize = 4;

/// Whether there are instructions for it: then bf16 in tile registers is faster than eight bits in vector registers.
pub fn dequantizes_fast() -> bool {
    cfg!(all(target_arch = "x86_64", not(llmtui_portable))) && level() == Level::Amx
}

impl Packed {
    /// Rows `rows` of columns `columns` as bf16, rounded to nearest: row-major, without gaps.
    ///
    /// # Panics
    /// If there are no such rows or columns, columns are not cut at multiples of [`COLUMN_STEP`], or `to` has another size.
    pub fn dequantize(&self, rows: Range<usize>, columns: Range<usize>, to: &mut [bf16]) {
        let is_cut = |at: usize| at.is_multiple_of(COLUMN_STEP) || at == self.cols();
        assert!(
            rows.end <= self.rows() && columns.end <= self.cols(),
            "rows {rows:?} and columns {columns:?} of ({}, {})",
            self.rows(),
            self.cols()
        );
        assert!(is_cut(columns.start) && is_cut(columns.end), "{columns:?}");
        assert_eq!(to.len(), rows.len() * columns.len(), "room for a block");
        for part in self.parts() {
            let from = rows.start.max(part.first);
            let end = rows.end.min(part.first + part.rows);
            if from >= end {
                continue;
            }
            let place = |row: usize| (row - rows.start) * columns.len();
            let to = &mut to[place(from)..place(end)];
            let own = from - part.first..end - part.first;
            match &part.body {
                Body::Floats(floats) => of_floats(floats, own.start, &columns, to),
                Body::Panels(panels) => of_panels(panels, own, &columns, to),
            }
        }
    }
}

fn of_floats(floats: &Floats, first: usize, columns: &Range<usize>, to: &mut [bf16]) {
    let width = columns.len();
    threads::rows1(to, width, COST * width, |at, rows| {
        let mut buffer: Run = [0.0; _];
        for (i, row) in rows.chunks_exact_mut(width).enumerate() {
            let mut column = columns.start;
            for run in row.chunks_mut(buffer.len()) {
                floats.some_of_row(first + at + i, column, &mut buffer[..run.len()]);
                column += run.len();
                bf16::put(&buffer, run);
            }
        }
    });
}

fn of_panels(panels: &Panels, rows: Range<usize>, columns: &Range<usize>, to: &mut [bf16]) {
    let width = columns.len();
    let first = rows.start / ROWS;
    let shared = threads::SharedSlice::new(to);
    let count = rows.end.div_ceil(ROWS) - first;
    threads::tasks(count, COST * width * ROWS, |panel| {
        let start = (first + panel) * ROWS;
        let own = rows.start.max(start)..rows.end.min(start + ROWS);
        let place = |row: usize| (row - rows.start) * width;
        // SAFETY: each task has the rows of its own panel.
        let to = unsafe { shared.range(place(own.start)..place(own.end)) };
        let own = own.start - start..own.end - start;
        of_panel((panels, first + panel), own, columns, to);
    });
}

/// Some of a panel's sixteen rows.
fn of_panel(
    (panels, panel): (&Panels, usize),
    rows: Range<usize>,
    columns: &Range<usize>,
    to: &mut [bf16],
) {
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    if dequantizes_fast() {
        let panel = panels.panel(panel);
        // SAFETY: the machine has the instructions, and columns are cut at block boundaries.
        unsafe {
            use super::{isa::avx512::dequantize, layout::with_layout};
            with_layout!(panels.kind, dequantize(panel, rows, columns, to), ());
        }
        return;
    }
    let mut whole = vec![0.0; columns.end];
    for (row, to) in rows.zip(to.chunks_exact_mut(columns.len())) {
        panels.row(panel * ROWS + row, &mut whole);
        for (to, x) in to.iter_mut().zip(&whole[columns.start..]) {
            *to = Number::narrow(*x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::Kind;
    use crate::quant::formats::tests::sample_rows;

    /// Parts of several formats, one of them with rows that do not fill a panel, cut at all boundaries.
    #[test]
    fn blocks_hold_the_rounded_values_of_their_rows() {
        let cols = 3 * COLUMN_STEP;
        let mut packed = Packed::new(cols);
        let kinds = [
            Kind::Q8_0,
            Kind::F16,
            Kind::Q4_0,
            Kind::Q4_1,
            Kind::Q5_0,
            Kind::F32,
            Kind::Q5_1,
            Kind::Q4K,
            Kind::Q5K,
            Kind::Q6K,
            Kind::Bf16,
            Kind::Iq4Nl,
            Kind::Q2K,
            Kind::Q3K,
            Kind::Iq4Xs,
            Kind::Mxfp4,
        ];
        for (at, kind) in kinds.into_iter().enumerate() {
            let rows = [16, 3, 35, 5][at % 4];
            let bytes = sample_rows(kind, rows, cols, at as u32);
            packed.push(kind, rows, &bytes).unwrap();
        }
        let mut row = vec![0.0; cols];
        for rows in [0..packed.rows(), 5..40, 17..18, 60..packed.rows() - 1] {
            for columns in [0..cols, COLUMN_STEP..2 * COLUMN_STEP, 2 * COLUMN_STEP..cols] {
                let mut block = vec![bf16::from_f32(7.0); rows.len() * columns.len()];
                packed.dequantize(rows.clone(), columns.clone(), &mut block);
                for (i, found) in rows.clone().zip(block.chunks_exact(columns.len())) {
                    packed.row(i, &mut row);
                    let wanted = row[columns.clone()].iter().map(|x| bf16::from_f32(*x));
                    assert!(wanted.eq(found.iter().copied()), "row {i}, {columns:?}");
                }
            }
        }
    }
}
