//! File blocks → panels, and one row of a panel back to f32.

use super::activations::BLOCK;
use super::formats::{
    Kind, VALUES, fives, iq4_xs, nibbles, q2_k, q3_k, q4_k, q5_k, q6_k, super_block,
};
use super::half::word;
use super::isa::portable::Portable;
use super::lanes::{Lanes, ROWS};
use super::layout::{Codes, Layout, RowScales, RowUnit, Scales};

/// Splits one block of a file into codes and scales.
fn split(kind: Kind, block: &[u8], unit: &mut RowUnit) {
    unit.scales = RowScales::default();
    let RowUnit { codes, scales } = unit;
    let take = |codes: &mut [u8; VALUES], from: &mut dyn Iterator<Item = u8>| {
        for (code, q) in codes.iter_mut().zip(from) {
            *code = q;
        }
    };
    match kind {
        Kind::F32 | Kind::F16 | Kind::Bf16 => {}
        Kind::Q8_0 => {
            scales.scale = word(block, 0);
            // Signed bytes, stored with an offset of 128.
            take(codes, &mut block[2..34].iter().map(|q| q ^ 0x80));
        }
        Kind::Q4_0 => {
            scales.scale = word(block, 0);
            take(codes, &mut nibbles(&block[2..18]));
        }
        Kind::Q4_1 => {
            (scales.scale, scales.minimum) = (word(block, 0), word(block, 2));
            take(codes, &mut nibbles(&block[4..20]));
        }
        Kind::Q5_0 => {
            scales.scale = word(block, 0);
            take(codes, &mut fives(&block[2..22]));
        }
        Kind::Q5_1 => {
            (scales.scale, scales.minimum) = (word(block, 0), word(block, 2));
            take(codes, &mut fives(&block[4..24]));
        }
        Kind::Q4K | Kind::Q5K => {
            (scales.scale, scales.minimum) = (word(block, 0), word(block, 2));
            for b in 0..super_block::BLOCKS {
                let pair = super_block::scale_and_minimum(&block[4..4 + super_block::SCALES], b);
                (scales.parts[b], scales.part_minima[b]) = pair;
            }
            match kind {
                Kind::Q4K => q4_k::codes(block, codes),
                _ => q5_k::codes(block, codes),
            }
        }
        Kind::Q2K => {
            scales.scale = word(block, q2_k::SCALE);
            scales.minimum = word(block, q2_k::MINIMUM);
            for b in 0..scales.parts.len() {
                (scales.parts[b], scales.part_minima[b]) = q2_k::scale_and_minimum(block, b);
            }
            q2_k::codes(&block[q2_k::CODES..q2_k::SCALE], codes);
        }
        Kind::Q3K => {
            scales.scale = word(block, q3_k::SCALE);
            for (b, part) in scales.parts.iter_mut().enumerate() {
                *part = q3_k::scale(block, b).cast_unsigned();
            }
            q3_k::codes(block, codes);
        }
        Kind::Iq4Nl => {
            scales.scale = word(block, 0);
            take(codes, &mut nibbles(&block[2..18]));
        }
        Kind::Mxfp4 => {
            scales.parts[0] = block[0];
            take(codes, &mut nibbles(&block[1..17]));
        }
        Kind::Iq4Xs => {
            scales.scale = word(block, 0);
            for (b, part) in scales.parts[..8].iter_mut().enumerate() {
                *part = iq4_xs::scale(block, b).cast_unsigned();
            }
            let blocks = block[iq4_xs::CODES..].chunks_exact(iq4_xs::BLOCK_BYTES);
            take(codes, &mut blocks.flat_map(nibbles));
        }
        Kind::Q6K => {
            scales.scale = word(block, q6_k::SCALE);
            scales
                .parts
                .copy_from_slice(&block[q6_k::SCALES..q6_k::SCALE]);
            q6_k::codes(block, codes);
        }
    }
}

/// Units per row of `cols` columns.
pub(super) fn units<L: Layout>(cols: usize) -> usize {
    cols / (BLOCK * L::Scales::BLOCKS)
}

/// Bytes of one panel.
pub(super) fn panel_bytes<L: Layout>(cols: usize) -> usize {
    units::<L>(cols) * L::UNIT
}

/// Fills one zeroed panel with up to sixteen rows of a file. Missing rows stay zero.
pub(super) fn fill<L: Layout>(panel: &mut [u8], kind: Kind, rows: &[u8], row_bytes: usize) {
    let mut unit = RowUnit {
        codes: [0; VALUES],
        scales: RowScales::default(),
    };
    for (row, bytes) in rows.chunks_exact(row_bytes).take(ROWS).enumerate() {
        let blocks = bytes.chunks_exact(kind.format().bytes);
        for (block, to) in blocks.zip(panel.chunks_exact_mut(L::UNIT)) {
            split(kind, block, &mut unit);
            let (head, codes) = to.split_at_mut(L::Scales::BYTES);
            L::Scales::put(head, row, &unit.scales);
            let codes = codes.chunks_exact_mut(L::Codes::BYTES);
            for (to, from) in codes.zip(unit.codes.as_chunks::<BLOCK>().0) {
                for (column, code) in from.iter().enumerate() {
                    L::Codes::put(to, row, column, *code);
                }
            }
        }
    }
}

/// Row `row` of a panel as f32.
pub(super) fn row<L: Layout>(panel: &[u8], row: usize, to: &mut [f32]) {
    let mut blocks = to.as_chunks_mut::<BLOCK>().0.iter_mut();
    for unit in panel.chunks_exact(L::UNIT) {
        let (head, codes) = unit.split_at(L::Scales::BYTES);
        let codes = codes.chunks_exact(L::Codes::BYTES);
        for ((block, codes), to) in codes.enumerate().zip(blocks.by_ref()) {
            let part_len = BLOCK / L::Scales::PARTS;
            for (part, to) in to.chunks_exact_mut(part_len).enumerate() {
                let head = head.as_ptr();
                // SAFETY: the portable ISA needs no special instructions, and the header is complete.
                let minimum = unsafe { L::Scales::minimum::<Portable>(head, block, part) }[row];
                // SAFETY: as above.
                let scale = unsafe { L::Scales::scale::<Portable>(head, block, part) };
                for (i, x) in to.iter_mut().enumerate() {
                    let code = L::Codes::get(codes, row, part * part_len + i);
                    let code = i32::from(code) - L::OFFSET;
                    *x = scale[row] * code as f32;
                    if L::Scales::MINIMUM {
                        *x += minimum;
                    }
                }
            }
        }
    }
}

const _: () = assert!(size_of::<<Portable as Lanes>::Bytes>() == 4 * ROWS);
