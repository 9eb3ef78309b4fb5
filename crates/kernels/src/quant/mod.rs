//! Weights in few bits: the formats, and products with matrices that stay in them. Forward only: nothing here has a
//! gradient.
#![allow(unsafe_code)]

mod activations;
mod floats;
mod formats;
pub mod half;
mod isa;
mod layout;
mod packed;
mod repack;
mod tile;

pub use formats::{Format, Kind};
pub use packed::{PackError, Packed};

/// Values → blocks of a format that can be written, rows of `cols` shared out over all threads.
pub fn encode_rows(kind: Kind, values: &[f32], cols: usize, bytes: &mut [u8]) {
    use crate::threads;
    /// Operations per value of the slowest encoder, about.
    const COST: usize = 500;
    let Some(row_bytes) = kind.row_bytes(cols) else {
        return;
    };
    let rows = values.len() / cols.max(1);
    let shared = threads::SharedSlice::new(bytes);
    threads::tasks(rows, COST * cols, |row| {
        // SAFETY: each task has a row of its own.
        let to = unsafe { shared.range(row * row_bytes..(row + 1) * row_bytes) };
        kind.encode(&values[row * cols..(row + 1) * cols], to);
    });
}
