//! What is computed: a matmul with its destination, and the parts that it is divided into.

use super::added::Added;
use super::factor::Factor;
use crate::numbers::Number;
use crate::pointers::{ReadPtr, WritePtr};

/// A matmul ready to be computed: a (m, k) · b (k, n).
#[derive(Clone, Copy)]
pub struct Job {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Element (i, k) is at i · stride + k · k_stride.
    pub a: Factor,
    /// Element (k, j) is at j · stride + k · k_stride.
    pub b: Factor,
    pub write: Write,
}

// SAFETY: threads read the inputs, and each writes its own rows and columns.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// A range (from, count) of rows and of columns of the output.
    ///
    /// # Safety
    /// It must lie within the output.
    pub unsafe fn part(&self, (row, m): (usize, usize), (col, n): (usize, usize)) -> Job {
        // SAFETY: the caller names a part of the destination.
        unsafe {
            let mut write = self.write.at(row, col);
            write.cols = n;
            Job {
                m,
                n,
                a: Factor {
                    start: self.a.start.add(row * self.a.stride),
                    ..self.a
                },
                b: Factor {
                    start: self.b.start.add(col * self.b.stride),
                    ..self.b
                },
                write,
                ..*self
            }
        }
    }
}

/// Destination and addends of a tile: `to` = `scale` · sum (+ `base`) (+ `bias`).
#[derive(Clone, Copy)]
pub struct Write {
    pub to: WritePtr,
    pub stride: usize,
    pub cols: usize,
    pub scale: f32,
    /// A matrix like the destination, with its stride; may be the destination itself.
    pub base: Option<(*const f32, usize)>,
    /// One value per column.
    pub bias: Option<*const f32>,
    pub low_rank: Option<Added>,
}

impl Write {
    /// The same for the tile that starts at (row, col).
    ///
    /// # Safety
    /// The position must lie within all matrices.
    pub unsafe fn at(self, row: usize, col: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Write {
                to: self.to.add(row * self.stride + col),
                base: self
                    .base
                    .map(|(base, stride)| (base.add(row * stride + col), stride)),
                bias: self.bias.map(|bias| bias.add(col)),
                low_rank: self.low_rank.map(|added| added.at(row, col)),
                ..self
            }
        }
    }

    /// Words summed at once where `most` would be best, of `all`: a bf16 destination cannot hold partial sums.
    pub fn most(&self, most: usize, all: usize) -> usize {
        match self.to {
            WritePtr::F32(_) => most,
            WritePtr::Bf16(_) => all.max(1),
        }
    }

    /// Makes the terms that follow accumulate onto what was written.
    #[inline(always)]
    pub fn accumulate(&mut self) {
        self.base = self.to.as_base().map(|base| (base, self.stride));
        self.bias = None;
        self.low_rank = None;
    }

    /// Writes one element.
    ///
    /// # Safety
    /// As for [`Write::at`].
    #[inline(always)]
    pub unsafe fn one(&self, row: usize, col: usize, sum: f32) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut x = sum * self.scale;
            if let Some((base, stride)) = self.base {
                x += *base.add(row * stride + col);
            }
            if let Some(bias) = self.bias {
                x += *bias.add(col);
            }
            if let Some(added) = self.low_rank {
                x += added.one(row, col);
            }
            match self.to.add(row * self.stride + col) {
                WritePtr::F32(to) => *to = x,
                WritePtr::Bf16(to) => *to = Number::narrow(x),
            }
        }
    }
}

/// A block of rows and a group of columns.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The packed rows.
    pub x: *const u32,
    /// The first column's weights.
    pub weights: ReadPtr,
    /// The position of both in the job.
    pub row: usize,
    pub col: usize,
    /// Prefetch distance from the weights, in elements.
    pub ahead: usize,
}

impl Part {
    /// Column `i` of the group.
    pub fn column(self, job: &Job, i: usize) -> Part {
        Part {
            weights: self.weights.add(i * job.b.stride),
            col: self.col + i,
            ..self
        }
    }
}
