//! Q4_K: 256 codes of four bits in eight blocks of 32. Each block has a scale s and a minimum m of six bits; the whole has an
//! f16 scale of each. x = d s q − e m.

use super::super_block::{self, BLOCKS, SCALES};
use super::{Format, VALUES};
use crate::quant::half::f16_at;

pub const FORMAT: Format = Format {
    name: "Q4_K",
    word: "q4_k",
    ggml_id: 12,
    values: VALUES,
    bytes: 144,
    decode,
    encode: Some(encode),
};

/// Bytes before the codes.
const HEAD: usize = 4 + SCALES;

/// Codes of 64 adjacent values share 32 bytes: the first half in the low four bits.
pub fn codes(block: &[u8], codes: &mut [u8]) {
    for (codes, bytes) in codes
        .chunks_exact_mut(64)
        .zip(block[HEAD..].as_chunks::<32>().0)
    {
        for (i, byte) in bytes.iter().enumerate() {
            codes[i] = byte & 15;
            codes[32 + i] = byte >> 4;
        }
    }
}

fn decode(block: &[u8], values: &mut [f32]) {
    let (d, e) = (f16_at(block, 0), f16_at(block, 2));
    let mut q = [0; VALUES];
    codes(block, &mut q);
    super_block::decode(&block[4..HEAD], [d, e], &q, values);
}

fn encode(values: &[f32], block: &mut [u8]) {
    let mut q = [0; VALUES];
    super_block::encode(values, 15, &mut block[..HEAD], &mut q);
    for (codes, bytes) in q
        .chunks_exact(64)
        .zip(block[HEAD..].as_chunks_mut::<32>().0)
    {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = codes[i] | codes[32 + i] << 4;
        }
    }
}

const _: () = assert!(HEAD + BLOCKS * 16 == FORMAT.bytes);
