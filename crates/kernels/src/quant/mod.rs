//! Quantized weights: the formats, and matmuls with matrices that stay quantized or are dequantized block by block. They
//! are frozen: nothing here has a gradient.
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
pub use formats::{Format, Kind};
pub use packed::{PackError, Packed};

/// Values → blocks of a writable format, rows of `cols` split over all threads.
pub fn encode_rows(kind: Kind, values: &[f32], cols: usize, bytes: &mut [u8]) {
    use crate::threads;
    /// FLOPs per value of the slowest encoder, approximately.
    const COST: usize = 500;
    let Some(row_bytes) = kind.row_bytes(cols) else {
        return;
    };
    let rows = values.len() / cols.max(1);
    let shared = threads::SharedSlice::new(bytes);
    threads::tasks(rows, COST * cols, |row| {
        // SAFETY: each task has its own row.
        let to = unsafe { shared.range(row * row_bytes..(row + 1) * row_bytes) };
        kind.encode(&values[row * cols..(row + 1) * cols], to);
    });
}
