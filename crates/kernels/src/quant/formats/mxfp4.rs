//! MXFP4: 32 numbers of four bits, FP4 E2M1, and a power of two, E8M0 (OCP Microscaling Formats v1.0). x = 2^(e − 128) level(q):
//! levels are twice the numbers, so that they are integers.

use super::{Format, nibbles};

pub const FORMAT: Format = Format {
    name: "MXFP4",
    word: "mxfp4",
    ggml_id: 39,
    values: 32,
    bytes: 17,
    decode,
    encode: None,
};

/// Twice the values of the codes.
pub const LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 2^(e − 128), half of what the file's scale is; 255 is not a number.
fn scale(exponent: u8) -> f32 {
    match exponent {
        // Subnormal.
        0 | 1 => f32::from_bits(0x20_0000 << exponent),
        u8::MAX => f32::NAN,
        exponent => f32::from_bits(u32::from(exponent - 1) << 23),
    }
}

fn decode(block: &[u8], values: &mut [f32]) {
    let scale = scale(block[0]);
    for (x, q) in values.iter_mut().zip(nibbles(&block[1..])) {
        *x = scale * f32::from(LEVELS[usize::from(q)]);
    }
}
