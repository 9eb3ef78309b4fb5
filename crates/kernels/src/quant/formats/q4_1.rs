//! Q4_1: 32 codes of four bits, an f16 scale and an f16 minimum. x = d q + m.

use super::{Format, extent, nibbles, pack_nibbles};
use crate::quant::half::{f16_at, put_f16};

pub const FORMAT: Format = Format {
    name: "Q4_1",
    word: "q4_1",
    ggml_id: 3,
    values: 32,
    bytes: 20,
    decode,
    encode: Some(encode),
};

fn decode(block: &[u8], values: &mut [f32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (x, q) in values.iter_mut().zip(nibbles(&block[4..20])) {
        *x = f32::from(q) * d + m;
    }
}

/// The codes span the minimum to the maximum.
fn encode(values: &[f32], block: &mut [u8]) {
    let (least, greatest) = extent(values);
    let d = (greatest - least) / 15.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_f16(block, 0, d);
    put_f16(block, 2, least);
    pack_nibbles(&mut block[4..20], values, |x| {
        ((x - least) * inverse + 0.5).clamp(0.0, 15.0) as u8
    });
}
