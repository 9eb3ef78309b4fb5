//! BF16: sixteen-bit floats.

use super::Format;
use crate::quant::half::{from_bf16, to_bf16};

pub const FORMAT: Format = Format {
    name: "BF16",
    word: "bf16",
    ggml_id: 30,
    values: 1,
    bytes: 2,
    decode,
    encode: Some(encode),
};

fn decode(bytes: &[u8], values: &mut [f32]) {
    for (x, b) in values.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *x = from_bf16(u16::from_le_bytes(*b));
    }
}

fn encode(values: &[f32], bytes: &mut [u8]) {
    for (x, b) in values.iter().zip(bytes.as_chunks_mut::<2>().0) {
        *b = to_bf16(*x).to_le_bytes();
    }
}
