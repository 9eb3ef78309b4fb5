//! Encoders against decoders, and blocks worked out by hand. `tests/gguf_formats.rs` compares the decoders
//! with those of another program.

use super::*;
use crate::check::normal;
use crate::quant::half;

/// The largest relative RMS error that a format may have on normal random numbers.
fn tolerance(kind: Kind) -> f64 {
    match kind {
        Kind::F32 => 0.0,
        Kind::F16 => 3e-4,
        Kind::Bf16 => 3e-3,
        Kind::Q8_0 => 6e-3,
        Kind::Q6K => 0.025,
        Kind::Q5_0 | Kind::Q5_1 => 0.045,
        Kind::Q5K => 0.037,
        Kind::Q4K => 0.075,
        Kind::Q4_0 | Kind::Q4_1 => 0.1,
        Kind::Q2K | Kind::Q3K | Kind::Iq4Nl | Kind::Iq4Xs | Kind::Mxfp4 => {
            unreachable!("not written")
        }
    }
}

/// Bytes of `rows` rows: encoded if the format is writable, else random codes with plausible scales.
pub(in crate::quant) fn sample_rows(kind: Kind, rows: usize, cols: usize, lane: u32) -> Vec<u8> {
    let values = normal(rows * cols, lane);
    let mut bytes = vec![0; rows * kind.row_bytes(cols).unwrap()];
    if kind.encode(&values, &mut bytes) {
        return bytes;
    }
    for (i, (byte, x)) in bytes.iter_mut().zip(values.iter().cycle()).enumerate() {
        *byte = (x.to_bits() >> 9) as u8 ^ i as u8;
    }
    // Where a block has its f16 scales.
    let scales: &[usize] = match kind {
        Kind::Q2K => &[80, 82],
        Kind::Q3K => &[108],
        _ => &[0],
    };
    for (at, block) in bytes.chunks_exact_mut(kind.format().bytes).enumerate() {
        if kind == Kind::Mxfp4 {
            // Powers of two, the smallest normal scale among them.
            block[0] = [120, 123, 2, 119][at % 4];
            continue;
        }
        for &at in scales {
            half::put_f16(block, at, 0.003);
        }
    }
    bytes
}

fn round_trip(kind: Kind, values: &[f32]) -> Vec<f32> {
    let mut bytes = vec![0xaa; kind.row_bytes(values.len()).unwrap()];
    assert!(kind.encode(values, &mut bytes), "{}", kind.name());
    let mut back = vec![f32::NAN; values.len()];
    kind.decode(&bytes, &mut back);
    back
}

#[test]
fn round_trips_stay_within_each_formats_error_bound() {
    let values = normal(4096, 1);
    let norm = |v: &[f32]| v.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    let mut worst = Vec::new();
    for &kind in Kind::ALL.iter().filter(|kind| kind.writable()) {
        let back = round_trip(kind, &values);
        let off: Vec<f32> = back.iter().zip(&values).map(|(a, b)| a - b).collect();
        let share = norm(&off) / norm(&values);
        assert!(share <= tolerance(kind), "{}: {share}", kind.name());
        worst.push((kind, share));
    }
    let lost = |kind| worst.iter().find(|(k, _)| *k == kind).unwrap().1;
    assert!(lost(Kind::Q4K) < lost(Kind::Q4_0), "{worst:?}");
    assert!(lost(Kind::Q5K) < lost(Kind::Q4K), "{worst:?}");
    assert!(lost(Kind::Q6K) < lost(Kind::Q5_0), "{worst:?}");
}

#[test]
fn zeros_and_constants_round_trip() {
    for &kind in Kind::ALL.iter().filter(|kind| kind.writable()) {
        assert_eq!(round_trip(kind, &[0.0; 256]), [0.0; 256], "{}", kind.name());
        for constant in [0.75, -0.75] {
            for x in round_trip(kind, &[constant; 256]) {
                assert!((x - constant).abs() < 0.01, "{}: {x}", kind.name());
            }
        }
    }
}

#[test]
fn re_encoding_decoded_values_is_lossless() {
    // Values that a format can represent are found again: encoding is a projection.
    for kind in [Kind::Q8_0, Kind::Q4_0, Kind::F16, Kind::Bf16] {
        let once = round_trip(kind, &normal(512, 2));
        let twice = round_trip(kind, &once);
        for (a, b) in once.iter().zip(&twice) {
            assert!(
                (a - b).abs() <= 2e-3 * a.abs().max(0.1),
                "{}: {a} {b}",
                kind.name()
            );
        }
    }
}

#[test]
fn blocks_decode_as_the_layout_defines() {
    let one = half::to_f16(1.0).to_le_bytes();
    let two = half::to_f16(2.0).to_le_bytes();
    let mut values = [0.0; 32];
    // Byte 3 holds value 3 in its low bits and value 19 in its high ones.
    let mut q4_1 = [0; 20];
    q4_1[..2].copy_from_slice(&two);
    q4_1[2..4].copy_from_slice(&one);
    q4_1[4 + 3] = 0x5a;
    Kind::Q4_1.decode(&q4_1, &mut values);
    assert_eq!((values[3], values[19], values[0]), (21.0, 11.0, 1.0));
    // Bit 19 of the fifth bits is value 19's.
    let mut q5_0 = [0; 22];
    q5_0[..2].copy_from_slice(&one);
    q5_0[2..6].copy_from_slice(&(1_u32 << 19).to_le_bytes());
    q5_0[6 + 3] = 0x5a;
    Kind::Q5_0.decode(&q5_0, &mut values);
    assert_eq!((values[3], values[19], values[0]), (-6.0, 5.0, -16.0));
}

#[test]
fn six_bit_scales_round_trip() {
    let mut bytes = [0; super_block::SCALES];
    let pair = |b: usize| ((7 * b + 5) as u8 % 64, (63 - 3 * b) as u8);
    for b in 0..8 {
        super_block::put(&mut bytes, b, pair(b));
    }
    for b in 0..8 {
        assert_eq!(super_block::scale_and_minimum(&bytes, b), pair(b), "{b}");
    }
}

#[test]
fn rows_of_partial_blocks_have_no_size() {
    assert_eq!(Kind::Q8_0.row_bytes(64), Some(68));
    assert_eq!(Kind::Q8_0.row_bytes(65), None);
    assert_eq!(Kind::Q4K.row_bytes(576), None);
    assert_eq!(Kind::F16.row_bytes(65), Some(130));
    let names: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|k| k.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    for &kind in Kind::ALL {
        assert_eq!(Kind::by_ggml_id(kind.format().ggml_id), Some(kind));
        assert_eq!(Kind::by_word(kind.format().word), Some(kind));
    }
}
