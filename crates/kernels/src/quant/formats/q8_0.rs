//! Q8_0: 32 signed bytes and one f16 scale. x = d q.

use super::Format;
use crate::quant::half::{f16_at, put_f16};

pub const FORMAT: Format = Format {
    name: "Q8_0",
    word: "q8_0",
    ggml_id: 8,
    values: 32,
    bytes: 34,
    decode,
    encode: Some(encode),
};

fn decode(block: &[u8], values: &mut [f32]) {
    let d = f16_at(block, 0);
    for (x, q) in values.iter_mut().zip(&block[2..]) {
        *x = f32::from(q.cast_signed()) * d;
    }
}

/// The largest magnitude becomes ±127.
fn encode(values: &[f32], block: &mut [u8]) {
    let top = values.iter().fold(0.0_f32, |top, x| top.max(x.abs()));
    let d = top / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_f16(block, 0, d);
    for (q, x) in block[2..].iter_mut().zip(values) {
        *q = ((x * inverse).round() as i8).cast_unsigned();
    }
}
