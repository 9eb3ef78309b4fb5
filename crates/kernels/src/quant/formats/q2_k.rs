//! Q2_K: 256 codes of two bits in sixteen blocks of 16. Each block has a scale s and a minimum m of four bits; the whole has
//! an f16 scale of each. x = d s q − e m.

use super::{Format, VALUES};
use crate::quant::half::f16_at;

pub const FORMAT: Format = Format {
    name: "Q2_K",
    word: "q2_k",
    ggml_id: 10,
    values: VALUES,
    bytes: 84,
    decode,
    encode: None,
};

/// Values per scale.
const BLOCK: usize = 16;
/// Offset of the codes: scales and minima share a byte each.
pub const CODES: usize = VALUES / BLOCK;
/// Offsets of the overall scales.
pub const SCALE: usize = CODES + 64;
pub const MINIMUM: usize = SCALE + 2;

/// Scale and minimum of block `b`.
pub fn scale_and_minimum(block: &[u8], b: usize) -> (u8, u8) {
    (block[b] & 15, block[b] >> 4)
}

/// Codes of 128 adjacent values share 32 bytes, each quarter two bits of them, the lowest first.
pub fn codes(bytes: &[u8], codes: &mut [u8]) {
    let halves = codes.chunks_exact_mut(128);
    for (half, bytes) in halves.zip(bytes.as_chunks::<32>().0) {
        for (i, q) in half.iter_mut().enumerate() {
            *q = bytes[i % 32] >> (2 * (i / 32)) & 3;
        }
    }
}

fn decode(block: &[u8], values: &mut [f32]) {
    let (d, e) = (f16_at(block, SCALE), f16_at(block, MINIMUM));
    let mut q = [0; VALUES];
    codes(&block[CODES..SCALE], &mut q);
    let blocks = values.chunks_exact_mut(BLOCK).zip(q.chunks_exact(BLOCK));
    for (b, (values, q)) in blocks.enumerate() {
        let (scale, minimum) = scale_and_minimum(block, b);
        let (scale, minimum) = (d * f32::from(scale), e * f32::from(minimum));
        for (x, &q) in values.iter_mut().zip(q) {
            *x = scale * f32::from(q) - minimum;
        }
    }
}

const _: () = assert!(MINIMUM + 2 == FORMAT.bytes);
