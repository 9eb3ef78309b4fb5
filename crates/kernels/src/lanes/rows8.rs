//! A matmul of eight rows whose sums stay in registers.

use super::{LINE, Vector};

/// Rows computed by [`rows8`].
pub(crate) const ROWS: usize = 8;

/// Memory layout of an input: element (row, k) of the left one at `row · row_stride + k · col_stride`, of the right one at
/// `k · row_stride + column`.
#[derive(Clone, Copy)]
pub(crate) struct Left {
    pub start: *const f32,
    pub row_stride: usize,
    pub col_stride: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Right {
    pub start: *const f32,
    pub row_stride: usize,
}

/// Row-major f32.
#[derive(Clone, Copy)]
pub(crate) struct To {
    pub start: *mut f32,
    pub row_stride: usize,
    /// Whether to accumulate into the destination.
    pub add: bool,
}

/// `to` (8, lines · 16) = (or +=) left (8, k words) · right (k words, lines · 16). Each element is summed over k in order,
/// so the result does not depend on the number of lanes.
///
/// # Safety
/// The pointers must reach these elements, `to` exclusively, and the machine must have V's instructions.
#[inline(always)]
pub(crate) unsafe fn rows8<V: Vector>(to: To, left: Left, right: Right, lines: usize, k: usize) {
    let mut line = 0;
    // SAFETY: guaranteed by the caller; offsets stay within the 8 × lines · 16 block.
    unsafe {
        if V::LANES == LINE {
            while line + 2 <= lines {
                registers::<V, 8, 2>(to.at(0, line), left, right.at(line), k);
                line += 2;
            }
            if line < lines {
                registers::<V, 8, 1>(to.at(0, line), left, right.at(line), k);
            }
        } else {
            while line < lines {
                registers::<V, 4, 2>(to.at(0, line), left, right.at(line), k);
                registers::<V, 4, 2>(to.at(4, line), left.below(4), right.at(line), k);
                line += 1;
            }
        }
    }
}

impl To {
    #[inline(always)]
    pub(crate) unsafe fn at(self, row: usize, line: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        let start = unsafe { self.start.add(row * self.row_stride + line * LINE) };
        To { start, ..self }
    }
}

impl Left {
    #[inline(always)]
    pub(crate) unsafe fn below(self, rows: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        let start = unsafe { self.start.add(rows * self.row_stride) };
        Left { start, ..self }
    }

    /// From word `k` on.
    #[inline(always)]
    pub(super) unsafe fn from(self, k: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        let start = unsafe { self.start.add(k * self.col_stride) };
        Left { start, ..self }
    }
}

impl Right {
    /// From word `k` on.
    #[inline(always)]
    pub(super) unsafe fn from(self, k: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        let start = unsafe { self.start.add(k * self.row_stride) };
        Right { start, ..self }
    }

    #[inline(always)]
    pub(super) unsafe fn at(self, line: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        let start = unsafe { self.start.add(line * LINE) };
        Right { start, ..self }
    }
}

/// R rows and N registers of columns, all sums in registers.
#[inline(always)]
unsafe fn registers<V: Vector, const R: usize, const N: usize>(
    to: To,
    left: Left,
    right: Right,
    k: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[V::zero(); N]; R];
        if to.add {
            for (r, row) in sums.iter_mut().enumerate() {
                for (n, sum) in row.iter_mut().enumerate() {
                    *sum = V::load(to.start.add(r * to.row_stride + n * V::LANES));
                }
            }
        }
        for k in 0..k {
            let mut b = [V::zero(); N];
            for (n, b) in b.iter_mut().enumerate() {
                *b = V::load(right.start.add(k * right.row_stride + n * V::LANES));
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let at = r * left.row_stride + k * left.col_stride;
                let a = V::splat(left.start.add(at));
                for (sum, b) in row.iter_mut().zip(b) {
                    *sum = a.multiply_add(b, *sum);
                }
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (n, sum) in row.iter().enumerate() {
                sum.store(to.start.add(r * to.row_stride + n * V::LANES));
            }
        }
    }
}
