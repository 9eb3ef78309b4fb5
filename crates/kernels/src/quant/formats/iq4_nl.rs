//! IQ4_NL: 32 codes of four bits that select one of sixteen levels, closer together near 0 where weights are dense, and an f16
//! scale. x = d level(q).

use super::{Format, nibbles};
use crate::quant::half::f16_at;

pub const FORMAT: Format = Format {
    name: "IQ4_NL",
    word: "iq4_nl",
    ggml_id: 20,
    values: 32,
    bytes: 18,
    decode,
    encode: None,
};

/// The values of the codes.
pub const LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// x = scale · level.
pub(super) fn levels(scale: f32, bytes: &[u8], values: &mut [f32]) {
    for (x, q) in values.iter_mut().zip(nibbles(bytes)) {
        *x = scale * f32::from(LEVELS[usize::from(q)]);
    }
}

fn decode(block: &[u8], values: &mut [f32]) {
    levels(f16_at(block, 0), &block[2..], values);
}
