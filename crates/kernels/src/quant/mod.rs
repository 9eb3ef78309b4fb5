//! Quantized weights: the formats, and matmuls with matrices that stay quantized or are dequantized block by block. They are
//! frozen: nothing here computes their gradient.
#![allow(unsafe_code)]

mod activations;
mod dequantize;
mod floats;
mod formats;
pub mod half;
mod isa;
mod lanes;
mod layout;
mod packed;
mod repack;
mod tile;

pub use dequantize::{COLUMN_STEP, dequantizes_fast};
pub use floats::FEW;
pub use formats::{Format, Kind};
pub use packed::{PackError, Packed};

/// Values → blocks of a writable format, rows of `cols` split over all threads. Returns the first row with a value that is
/// not finite, or overflows in that format: f16, which scales use too, ends at 65504.
pub fn encode_rows(kind: Kind, values: &[f32], cols: usize, bytes: &mut [u8]) -> Option<usize> {
    use crate::threads;
    use std::sync::atomic::{AtomicUsize, Ordering};
    /// FLOPs per value of the slowest encoder, approximately.
    const COST: usize = 500;
    let row_bytes = kind.row_bytes(cols)?;
    let first = AtomicUsize::new(usize::MAX);
    let rows = values.len() / cols.max(1);
    let shared = threads::SharedSlice::new(bytes);
    threads::tasks(rows, COST * cols, |row| {
        // SAFETY: each task has its own row.
        let to = unsafe { shared.range(row * row_bytes..(row + 1) * row_bytes) };
        let from = &values[row * cols..(row + 1) * cols];
        kind.encode(from, to);
        // A NaN among finite values may become an ordinary code.
        let came = from.iter().all(|x| x.is_finite());
        if !came || kind.first_not_finite(to, row_bytes).is_some() {
            first.fetch_min(row, Ordering::Relaxed);
        }
    });
    Some(first.into_inner()).filter(|row| *row != usize::MAX)
}
