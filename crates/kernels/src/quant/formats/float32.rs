//! F32: stored as is.

use super::Format;

pub const FORMAT: Format = Format {
    name: "F32",
    word: "f32",
    ggml_id: 0,
    values: 1,
    bytes: 4,
    decode,
    encode: Some(encode),
};

fn decode(bytes: &[u8], values: &mut [f32]) {
    for (x, b) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *x = f32::from_le_bytes(*b);
    }
}

fn encode(values: &[f32], bytes: &mut [u8]) {
    for (x, b) in values.iter().zip(bytes.as_chunks_mut::<4>().0) {
        *b = x.to_le_bytes();
    }
}
