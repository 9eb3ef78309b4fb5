//! Q5_0: 32 codes of five bits and one f16 scale; the fifth bits lie together. x = d (q − 16).

use super::{Format, fives, pack_fives, signed_top};
use crate::quant::half::{f16_at, put_f16};

pub const FORMAT: Format = Format {
    name: "Q5_0",
    word: "q5_0",
    ggml_id: 6,
    values: 32,
    bytes: 22,
    decode,
    encode: Some(encode),
};

fn decode(block: &[u8], values: &mut [f32]) {
    let d = f16_at(block, 0);
    for (x, q) in values.iter_mut().zip(fives(&block[2..22])) {
        *x = (f32::from(q) - 16.0) * d;
    }
}

/// The value of largest magnitude becomes −16, whatever its sign.
fn encode(values: &[f32], block: &mut [u8]) {
    let d = signed_top(values) / -16.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_f16(block, 0, d);
    pack_fives(&mut block[2..22], values, |x| {
        (x * inverse + 16.5).clamp(0.0, 31.0) as u8
    });
}
