//! F16: sixteen-bit floats.

use super::Format;
use crate::quant::half::{from_f16, to_f16};

pub const FORMAT: Format = Format {
    name: "F16",
    word: "f16",
    ggml_id: 1,
    values: 1,
    bytes: 2,
    decode,
    encode: Some(encode),
};

fn decode(bytes: &[u8], values: &mut [f32]) {
    for (x, b) in values.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *x = from_f16(u16::from_le_bytes(*b));
    }
}

fn encode(values: &[f32], bytes: &mut [u8]) {
    for (x, b) in values.iter().zip(bytes.as_chunks_mut::<2>().0) {
        *b = to_f16(*x).to_le_bytes();
    }
}
