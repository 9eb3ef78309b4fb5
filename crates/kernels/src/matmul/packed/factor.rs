//! The inputs of a matmul: matrices with any strides, and blocks of them.

use crate::pointers::ReadPtr;

/// One input: where it starts, and the elements between neighbours.
#[derive(Clone, Copy)]
pub struct Factor {
    pub start: ReadPtr,
    pub stride: usize,
    pub k_stride: usize,
}

/// A block of an input. Its *width* runs along the rows of the left input or the columns of the right one.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub start: ReadPtr,
    /// Elements between neighbors across the width.
    pub stride: usize,
    /// Elements between neighbours along k. One of the two strides is 1.
    pub k_stride: usize,
    pub width: usize,
    pub k: usize,
}

impl Factor {
    /// The block that starts at (from, k).
    pub(super) fn block(self, (from, k): (usize, usize), width: usize, depth: usize) -> Source {
        Source {
            start: self.start.add(from * self.stride + k * self.k_stride),
            stride: self.stride,
            k_stride: self.k_stride,
            width,
            k: depth,
        }
    }
}
