//! Q3_K: 256 codes of three bits in sixteen blocks of 16, each with a scale s of six bits; the whole has an f16 scale.
//! x = d (s − 32) (q − 4).

use super::{Format, VALUES, q2_k};
use crate::quant::half::f16_at;

pub const FORMAT: Format = Format {
    name: "Q3_K",
    word: "q3_k",
    ggml_id: 11,
    values: VALUES,
    bytes: 110,
    decode,
    encode: None,
};

/// Values per scale.
const BLOCK: usize = 16;
/// Offsets of the low two bits (the third ones are at 0), the scales, and the overall scale.
const LOW: usize = 32;
const SCALES: usize = LOW + 64;
pub const SCALE: usize = SCALES + 12;

/// The scale of block `b`, −32 to 31. Blocks 0 to 7 have the low four bits of a byte each, the others the high ones; the top
/// two bits of blocks b, b + 4, b + 8 and b + 12 share a byte.
pub fn scale(block: &[u8], b: usize) -> i8 {
    let bytes = &block[SCALES..SCALE];
    let low = bytes[b % 8] >> (b / 8 * 4) & 15;
    let high = bytes[8 + b % 4] >> (b / 4 * 2) & 3;
    (low | high << 4).cast_signed() - 32
}

/// The low bits lie as in Q2_K; the third bit of value i is bit i / 32 of byte i % 32.
pub fn codes(block: &[u8], codes: &mut [u8]) {
    q2_k::codes(&block[LOW..SCALES], codes);
    for (i, q) in codes.iter_mut().enumerate() {
        *q |= (block[i % 32] >> (i / 32) & 1) << 2;
    }
}

fn decode(block: &[u8], values: &mut [f32]) {
    let d = f16_at(block, SCALE);
    let mut q = [0; VALUES];
    codes(block, &mut q);
    let blocks = values.chunks_exact_mut(BLOCK).zip(q.chunks_exact(BLOCK));
    for (b, (values, q)) in blocks.enumerate() {
        let scale = d * f32::from(scale(block, b));
        for (x, &q) in values.iter_mut().zip(q) {
            *x = scale * (f32::from(q) - 4.0);
        }
    }
}

const _: () = assert!(SCALE + 2 == FORMAT.bytes);
