//! Q5_1: 32 codes of five bits, an f16 scale and an f16 minimum; the fifth bits lie together. x = d q + m.

use super::{Format, extent, fives, pack_fives};
use crate::quant::half::{f16_at, put_f16};

pub const FORMAT: Format = Format {
    name: "Q5_1",
    word: "q5_1",
    ggml_id: 7,
    values: 32,
    bytes: 24,
    decode,
    encode: Some(encode),
};

fn decode(block: &[u8], values: &mut [f32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (x, q) in values.iter_mut().zip(fives(&block[4..24])) {
        *x = f32::from(q) * d + m;
    }
}

/// The codes span the minimum to the maximum.
fn encode(values: &[f32], block: &mut [u8]) {
    let (least, greatest) = extent(values);
    let d = (greatest - least) / 31.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_f16(block, 0, d);
    put_f16(block, 2, least);
    pack_fives(&mut block[4..24], values, |x| {
        ((x - least) * inverse + 0.5).clamp(0.0, 31.0) as u8
    });
}
