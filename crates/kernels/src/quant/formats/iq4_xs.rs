//! IQ4_XS: 256 codes of four bits for the levels of IQ4_NL in eight blocks of 32, each with a scale s of six bits; the whole
//! has an f16 scale. x = d (s − 32) level(q).

use super::{Format, VALUES, iq4_nl};
use crate::quant::half::{f16_at, word};

pub const FORMAT: Format = Format {
    name: "IQ4_XS",
    word: "iq4_xs",
    ggml_id: 23,
    values: VALUES,
    bytes: 136,
    decode,
    encode: None,
};

/// Values per scale, and bytes of their codes.
const BLOCK: usize = 32;
pub const BLOCK_BYTES: usize = BLOCK / 2;
/// Offsets of the scales' high two bits, in one word, of their low four bits, and of the codes.
const HIGH: usize = 2;
const LOW: usize = HIGH + 2;
pub const CODES: usize = LOW + 4;

/// The scale of block `b`, −32 to 31.
pub fn scale(block: &[u8], b: usize) -> i8 {
    let low = block[LOW + b / 2] >> (b % 2 * 4) & 15;
    let high = (word(block, HIGH) >> (2 * b) & 3) as u8;
    (low | high << 4).cast_signed() - 32
}

fn decode(block: &[u8], values: &mut [f32]) {
    let d = f16_at(block, 0);
    let codes = block[CODES..].chunks_exact(BLOCK_BYTES);
    for (b, (values, codes)) in values.chunks_exact_mut(BLOCK).zip(codes).enumerate() {
        iq4_nl::levels(d * f32::from(scale(block, b)), codes, values);
    }
}

const _: () = assert!(CODES + VALUES / 2 == FORMAT.bytes);
