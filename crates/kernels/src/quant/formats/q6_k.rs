//! Q6_K: 256 codes of six bits in sixteen blocks of 16, each with a scale s of one signed byte; the whole has an f16 scale.
//! x = d s (q − 32).

use super::{Format, VALUES, best_scale};
use crate::quant::half::{f16_at, put_f16};

pub const FORMAT: Format = Format {
    name: "Q6_K",
    word: "q6_k",
    ggml_id: 14,
    values: VALUES,
    bytes: 210,
    decode,
    encode: Some(encode),
};

/// Offsets of the high two bits (the low four bits are at 0), the scales, and the overall scale.
const HIGH: usize = 128;
pub const SCALES: usize = HIGH + 64;
pub const SCALE: usize = SCALES + 16;
/// Values per scale.
const BLOCK: usize = 16;

/// Bit positions of value `i`: byte and shift of the low four, byte and shift of the high two.
fn places(i: usize) -> [usize; 4] {
    let (half, i) = (i / 128, i % 128);
    let (quarter, i) = (i / 32, i % 32);
    [
        half * 64 + quarter % 2 * 32 + i,
        quarter / 2 * 4,
        HIGH + half * 32 + i,
        quarter * 2,
    ]
}

pub fn codes(block: &[u8], codes: &mut [u8]) {
    for (i, q) in codes.iter_mut().enumerate() {
        let [low, low_shift, high, high_shift] = places(i);
        *q = block[low] >> low_shift & 15 | (block[high] >> high_shift & 3) << 4;
    }
}

fn decode(block: &[u8], values: &mut [f32]) {
    let d = f16_at(block, SCALE);
    let mut q = [0; VALUES];
    codes(block, &mut q);
    for (b, (values, q)) in values
        .chunks_exact_mut(BLOCK)
        .zip(q.chunks_exact(BLOCK))
        .enumerate()
    {
        let scale = d * f32::from(block[SCALES + b].cast_signed());
        for (x, &q) in values.iter_mut().zip(q) {
            *x = scale * (f32::from(q) - 32.0);
        }
    }
}

fn encode(values: &[f32], block: &mut [u8]) {
    let mut scales = [0.0_f32; VALUES / BLOCK];
    for (scale, values) in scales.iter_mut().zip(values.chunks_exact(BLOCK)) {
        *scale = best_scale(values, 32);
    }
    let top = super::signed_top(&scales);
    block.fill(0);
    // The scale of largest magnitude becomes −128.
    let d = put_f16(block, SCALE, top / -128.0);
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    for (b, (scale, values)) in scales.iter().zip(values.chunks_exact(BLOCK)).enumerate() {
        let s = (scale * inverse).round().clamp(-128.0, 127.0) as i8;
        block[SCALES + b] = s.cast_unsigned();
        let step = d * f32::from(s);
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        for (i, x) in values.iter().enumerate() {
            let q = (x * inverse).round_ties_even().clamp(-32.0, 31.0) as i8 + 32;
            let q = q.cast_unsigned();
            let [low, low_shift, high, high_shift] = places(b * BLOCK + i);
            block[low] |= (q & 15) << low_shift;
            block[high] |= (q >> 4) << high_shift;
        }
    }
}
