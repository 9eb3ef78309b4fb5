//! A quantized matrix, multiplied without ever being dequantized as a whole.

use super::activations::Activations;
use super::floats::Floats;
use super::formats::Kind;
use super::isa::Isa;
use super::lanes::ROWS;
use super::layout::with_layout;
use super::repack;
use super::tile::{Job, Write};
use crate::matmul::{Compute, Mat, Plus, Threads};
use crate::threads;
use std::cell::Cell;

/// Why the bytes of a matrix are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    #[error("rows of {cols} values are not a whole number of {kind} blocks")]
    Cols { kind: &'static str, cols: usize },
    #[error("{rows} rows of {cols} values in {kind} take {expected} bytes, not {found}")]
    Bytes {
        kind: &'static str,
        rows: usize,
        cols: usize,
        expected: usize,
        found: usize,
    },
    #[error("row {row} has a non-finite value")]
    NotFinite { row: usize },
}

/// A matrix (rows, cols), row-major, whose rows may have several formats. Quantized rows are stored in panels, see `layout`;
/// matmuls with them quantize the activations to eight bits.
#[derive(Debug)]
pub struct Packed {
    cols: usize,
    rows: usize,
    parts: Vec<Part>,
}

/// Rows of one format.
#[derive(Debug)]
pub(super) struct Part {
    pub first: usize,
    pub rows: usize,
    pub body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Floats(Floats),
    Panels(Panels),
}

/// Panels of sixteen rows, without gaps.
#[derive(Debug)]
pub(super) struct Panels {
    pub kind: Kind,
    /// Units per panel.
    units: usize,
    panel_bytes: usize,
    lines: Vec<Line>,
}

/// A cache line, so that panels are aligned.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line([u8; LINE]);
const LINE: usize = 64;

impl Panels {
    fn new(kind: Kind, cols: usize, rows: &[u8], row_bytes: usize) -> Panels {
        let panel_bytes = with_layout!(kind, panel_bytes_of(cols), 0);
        let units = with_layout!(kind, units_of(cols), 0);
        let panel_rows = rows.chunks(ROWS * row_bytes.max(1));
        let total = panel_rows.len() * panel_bytes;
        let mut lines = vec![Line([0; LINE]); total.div_ceil(LINE)];
        crate::pages::prefer_huge_for(&lines);
        let bytes = &mut lines.as_flattened_bytes_mut()[..total];
        let fill = |panel: &mut [u8], rows: &[u8]| {
            with_layout!(kind, fill_of(panel, kind, rows, row_bytes), ());
        };
        let shared = threads::SharedSlice::new(bytes);
        threads::tasks(panel_rows.len(), 8 * cols * ROWS, |panel| {
            let from = panel * panel_bytes;
            // SAFETY: each task has its own panel.
            let to = unsafe { shared.range(from..from + panel_bytes) };
            let at = panel * ROWS * row_bytes;
            fill(to, &rows[at..rows.len().min(at + ROWS * row_bytes)]);
        });
        Panels {
            kind,
            units,
            panel_bytes,
            lines,
        }
    }

    pub fn panel(&self, panel: usize) -> &[u8] {
        let bytes = self.lines.as_flattened_bytes();
        &bytes[panel * self.panel_bytes..][..self.panel_bytes]
    }

    /// The first values of row `row`, a whole number of blocks.
    pub fn row(&self, row: usize, to: &mut [f32]) {
        let panel = self.panel(row / ROWS);
        with_layout!(self.kind, row_of(panel, row % ROWS, to), ());
    }
}

use repack::{fill as fill_of, panel_bytes as panel_bytes_of, row as row_of, units as units_of};

/// Lines as bytes.
trait Flattened {
    fn as_flattened_bytes(&self) -> &[u8];
    fn as_flattened_bytes_mut(&mut self) -> &mut [u8];
}

impl Flattened for [Line] {
    fn as_flattened_bytes(&self) -> &[u8] {
        debug_assert!(self.first().is_none_or(|line| line.0.len() == LINE));
        // SAFETY: lines are bytes without gaps.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(self)) }
    }
    fn as_flattened_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), size_of_val(self)) }
    }
}

thread_local! {
    /// The quantized activations; the buffer grows as needed and is kept.
    static ACTIVATIONS: Cell<Activations> = Cell::default();
}

/// Bytes of quantized activations per pass over the panels: they should stay in the L2 cache.
const CACHED: usize = 384 << 10;
/// Bytes of weights below which a matmul is not worth handing to another thread.
const WORTHWHILE: usize = 1 << 15;

impl Packed {
    /// An empty matrix of `cols` columns.
    pub fn new(cols: usize) -> Packed {
        Packed {
            cols,
            rows: 0,
            parts: Vec::new(),
        }
    }

    /// Appends `rows` rows.
    ///
    /// # Errors
    /// The bytes have the wrong size, or encode a non-finite value.
    pub fn push(&mut self, kind: Kind, rows: usize, bytes: &[u8]) -> Result<(), PackError> {
        let (name, cols) = (kind.name(), self.cols);
        let row_bytes = kind
            .row_bytes(cols)
            .ok_or(PackError::Cols { kind: name, cols })?;
        let expected = row_bytes.saturating_mul(rows);
        if expected != bytes.len() {
            return Err(PackError::Bytes {
                kind: name,
                rows,
                cols,
                expected,
                found: bytes.len(),
            });
        }
        if let Some(row) = kind.first_not_finite(bytes, row_bytes) {
            return Err(PackError::NotFinite { row });
        }
        let first = self.rows;
        self.rows += rows;
        if kind.is_float() {
            if let Some(Part {
                body: Body::Floats(floats),
                rows: held,
                ..
            }) = self.parts.last_mut()
                && floats.extend(kind, bytes)
            {
                *held += rows;
                return Ok(());
            }
            let body = Body::Floats(Floats::new(kind, cols, bytes));
            self.parts.push(Part { first, rows, body });
        } else {
            let body = Body::Panels(Panels::new(kind, cols, bytes, row_bytes));
            self.parts.push(Part { first, rows, body });
        }
        Ok(())
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether any rows are stored in blocks with a scale, not as plain numbers.
    pub fn is_quantized(&self) -> bool {
        let mut bodies = self.parts.iter().map(|part| &part.body);
        bodies.any(|body| matches!(body, Body::Panels(_)))
    }

    /// Bytes read by a matmul.
    pub fn bytes(&self) -> usize {
        let one = |part: &Part| match &part.body {
            Body::Floats(floats) => floats.bytes(),
            Body::Panels(panels) => size_of_val(panels.lines.as_slice()),
        };
        self.parts.iter().map(one).sum()
    }

    /// Row `row` as f32.
    ///
    /// # Panics
    /// If there is no such row, or `to` is not as long as a row.
    pub fn row(&self, row: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.cols, "a row of a packed matrix");
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let after = self.parts.partition_point(|part| part.first <= row);
        let part = &self.parts[after - 1];
        match &part.body {
            Body::Floats(floats) => floats.row(row - part.first, to),
            Body::Panels(panels) => panels.row(row - part.first, to),
        }
    }

    /// `y` (x.rows, rows) = `x` (x.rows, cols) · selfᵀ + addends.
    pub fn product(&self, y: &mut [f32], x: Mat, plus: Plus, compute: Compute) {
        self.product_through(Isa::best(), y, x, plus, compute);
    }

    fn product_through(&self, isa: Isa, y: &mut [f32], x: Mat, plus: Plus, compute: Compute) {
        let n = x.row_count();
        assert_eq!(x.cols(), self.cols, "inner dimensions of a matmul");
        assert_eq!(y.len(), n * self.rows, "destination of a matmul");
        if let Some(residual) = plus.residual {
            assert_eq!(residual.len(), y.len(), "residual of a matmul");
        }
        if let Some(bias) = plus.bias {
            assert_eq!(bias.len(), self.rows, "bias of a matmul");
        }
        for part in &self.parts {
            if let Body::Floats(floats) = &part.body {
                floats.product((&mut *y, self.rows, part.first), x, plus, compute);
            }
        }
        if self.parts.iter().any(|p| matches!(p.body, Body::Panels(_))) {
            let mut activations = ACTIVATIONS.take();
            activations.fill(x);
            self.panels_product(isa, y, &activations, plus, compute.threads);
            ACTIVATIONS.set(activations);
        }
    }

    /// All quantized parts, split by panels.
    fn panels_product(
        &self,
        isa: Isa,
        y: &mut [f32],
        x: &Activations,
        plus: Plus,
        threads: Threads,
    ) {
        let total: usize = self.parts.iter().map(Part::n_panels).sum();
        let tasks = match threads {
            Threads::One => 1,
            Threads::Pool if self.bytes() * x.rows() < WORTHWHILE => 1,
            Threads::Pool => threads::shares(x.rows()).min(total),
        };
        let to = threads::Shared(y.as_mut_ptr());
        let work = |task: usize| {
            let (from, end) = (total * task / tasks, total * (task + 1) / tasks);
            let mut before = 0;
            for part in &self.parts {
                let n = part.n_panels();
                let range =
                    from.clamp(before, before + n) - before..end.clamp(before, before + n) - before;
                before += n;
                if let Body::Panels(panels) = &part.body
                    && !range.is_empty()
                {
                    let write = Write {
                        // SAFETY: the part starts within the destination, which was checked.
                        to: unsafe { to.at(part.first) },
                        stride: self.rows,
                        columns: part.rows,
                        residual: plus.residual.map(|r| r[part.first..].as_ptr()),
                        bias: plus.bias.map(|b| b[part.first..].as_ptr()),
                    };
                    // SAFETY: the machine supports the ISA; panels and rows of activations exist, and tasks write disjoint
                    // columns.
                    unsafe { some_panels(isa, panels, range, x, self.cols, write) };
                }
            }
        };
        threads::fan_out(tasks, &work);
    }
}

impl Part {
    fn n_panels(&self) -> usize {
        match self.body {
            Body::Floats(_) => 0,
            Body::Panels(_) => self.rows.div_ceil(ROWS),
        }
    }
}

/// Some panels times all rows of activations: as many rows as stay in the cache, panel by panel.
///
/// # Safety
/// The machine must support the ISA; `write` must be valid for all rows of `x` and the panels' columns.
unsafe fn some_panels(
    isa: Isa,
    panels: &Panels,
    range: std::ops::Range<usize>,
    x: &Activations,
    cols: usize,
    write: Write,
) {
    let step = isa.rows();
    let cached = (CACHED / cols.max(1)).next_multiple_of(step).max(step);
    for block in (0..x.rows()).step_by(cached) {
        let end = x.rows().min(block + cached);
        // A single row reads straight through all panels.
        let at_once = if x.rows() == 1 { range.len() } else { 1 };
        for panel in range.clone().step_by(at_once) {
            let mut row = block;
            while row < end {
                let rows = (end - row).min(step);
                let (codes, heads) = x.from(row);
                let skipped = panel * ROWS;
                let at = row * write.stride + skipped;
                // SAFETY: the rows and columns of this part, guaranteed by the caller.
                unsafe {
                    let write = Write {
                        to: write.to.add(at),
                        columns: write.columns - skipped,
                        residual: write.residual.map(|r| r.add(at)),
                        bias: write.bias.map(|b| b.add(skipped)),
                        ..write
                    };
                    isa.run(&Job {
                        kind: panels.kind,
                        panels: panels.panel(panel).as_ptr(),
                        n_panels: at_once,
                        units: panels.units,
                        rows,
                        codes: codes.as_ptr(),
                        cols,
                        heads: heads.as_ptr(),
                        write,
                    });
                }
                row += rows;
            }
        }
    }
}

#[cfg(test)]
mod tests;
