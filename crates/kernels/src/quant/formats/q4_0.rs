//! Q4_0: 32 codes of four bits and one f16 scale. x = d (q − 8).

use super::{Format, nibbles, pack_nibbles, signed_top};
use crate::quant::half::{f16_at, put_f16};

pub const FORMAT: Format = Format {
    name: "Q4_0",
    word: "q4_0",
    ggml_id: 2,
    values: 32,
    bytes: 18,
    decode,
    encode: Some(encode),
};

fn decode(block: &[u8], values: &mut [f32]) {
    let d = f16_at(block, 0);
    for (x, q) in values.iter_mut().zip(nibbles(&block[2..18])) {
        *x = (f32::from(q) - 8.0) * d;
    }
}

/// The value of largest magnitude becomes −8, whatever its sign.
fn encode(values: &[f32], block: &mut [u8]) {
    let d = signed_top(values) / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_f16(block, 0, d);
    pack_nibbles(&mut block[2..18], values, |x| {
        (x * inverse + 8.5).clamp(0.0, 15.0) as u8
    });
}
