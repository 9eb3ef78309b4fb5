//! Q5_K: as Q4_K with codes of five bits; the fifth bits lie together, those of block b as bit b. x = d s q − e m.

use super::super_block::{self, SCALES};
use super::{Format, VALUES};
use crate::quant::half::f16_at;

pub const FORMAT: Format = Format {
    name: "Q5_K",
    word: "q5_k",
    ggml_id: 13,
    values: VALUES,
    bytes: 176,
    decode,
    encode: Some(encode),
};

const FIFTH: usize = 4 + SCALES;
const LOW: usize = FIFTH + 32;

pub fn codes(block: &[u8], codes: &mut [u8]) {
    let fifth = &block[FIFTH..LOW];
    let low = block[LOW..].as_chunks::<32>().0;
    for (pair, (codes, bytes)) in codes.chunks_exact_mut(64).zip(low).enumerate() {
        for (i, byte) in bytes.iter().enumerate() {
            codes[i] = byte & 15 | (fifth[i] >> (2 * pair) & 1) << 4;
            codes[32 + i] = byte >> 4 | (fifth[i] >> (2 * pair + 1) & 1) << 4;
        }
    }
}

fn decode(block: &[u8], values: &mut [f32]) {
    let (d, e) = (f16_at(block, 0), f16_at(block, 2));
    let mut q = [0; VALUES];
    codes(block, &mut q);
    super_block::decode(&block[4..FIFTH], [d, e], &q, values);
}

fn encode(values: &[f32], block: &mut [u8]) {
    let mut q = [0; VALUES];
    super_block::encode(values, 31, &mut block[..FIFTH], &mut q);
    let (head, low) = block.split_at_mut(LOW);
    let fifth = &mut head[FIFTH..];
    fifth.fill(0);
    let pairs = q.chunks_exact(64).zip(low.as_chunks_mut::<32>().0);
    for (pair, (codes, bytes)) in pairs.enumerate() {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = codes[i] & 15 | (codes[32 + i] & 15) << 4;
            fifth[i] |= (codes[i] >> 4) << (2 * pair) | (codes[32 + i] >> 4) << (2 * pair + 1);
        }
    }
}
