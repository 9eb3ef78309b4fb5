//! Number formats of tensors on disk, and conversion from and to f32.

use half::{bf16, f16};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Values converted per task.
const PORTION: usize = 64 * 1024;

/// The dtype of a tensor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    #[default]
    F32,
    F16,
    Bf16,
}

impl Dtype {
    pub const ALL: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

    /// The dtype in a safetensors header; `None` for unsupported ones.
    pub fn of(dtype: safetensors::Dtype) -> Option<Dtype> {
        match dtype {
            safetensors::Dtype::F32 => Some(Dtype::F32),
            safetensors::Dtype::F16 => Some(Dtype::F16),
            safetensors::Dtype::BF16 => Some(Dtype::Bf16),
            _ => None,
        }
    }

    /// Its name after `--dtype`.
    pub fn word(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }

    /// Its name in a safetensors header.
    pub fn header_word(self) -> &'static str {
        match self {
            Dtype::F32 => "F32",
            Dtype::F16 => "F16",
            Dtype::Bf16 => "BF16",
        }
    }

    /// Its name in a `config.json`.
    pub fn torch_word(self) -> &'static str {
        match self {
            Dtype::F32 => "float32",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
        }
    }

    /// Bytes per value.
    pub fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        }
    }

    /// Reads little-endian values; `bytes` holds as many as `into`.
    pub fn widen(self, bytes: &[u8], into: &mut [f32]) {
        let portions = into
            .par_chunks_mut(PORTION)
            .zip(bytes.par_chunks(PORTION * self.size()));
        portions.for_each(|(into, bytes)| match self {
            Dtype::F32 => each(bytes, into, f32::from_le_bytes),
            Dtype::F16 => each(bytes, into, |b| f16::from_le_bytes(b).to_f32()),
            Dtype::Bf16 => each(bytes, into, |b| bf16::from_le_bytes(b).to_f32()),
        });
    }

    /// Appends values, rounded to nearest. `None` if a value is out of range: it would become infinite.
    pub fn narrow(self, values: &[f32], into: &mut Vec<u8>) -> Option<()> {
        match self {
            Dtype::F32 => into.extend(values.iter().flat_map(|x| x.to_le_bytes())),
            Dtype::F16 => {
                for &x in values {
                    let short = f16::from_f32(x);
                    if short.is_infinite() && x.is_finite() {
                        return None;
                    }
                    into.extend(short.to_le_bytes());
                }
            }
            Dtype::Bf16 => {
                for &x in values {
                    let short = bf16::from_f32(x);
                    if short.is_infinite() && x.is_finite() {
                        return None;
                    }
                    into.extend(short.to_le_bytes());
                }
            }
        }
        Some(())
    }
}

/// The dtype of a tensor as a file holds it: those of [`Dtype`], and others that are only read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    Plain(Dtype),
    /// FP8 with four bits of exponent, without infinities (Micikevicius et al. 2022, arXiv 2209.05433).
    E4m3,
    /// FP8 with five: the upper half of an f16.
    E5m2,
    /// A power of two (OCP Microscaling Formats v1.0): of scales.
    E8m0,
}

impl Stored {
    /// The dtype in a safetensors header; `None` for unsupported ones.
    pub fn of(dtype: safetensors::Dtype) -> Option<Stored> {
        match dtype {
            safetensors::Dtype::F8_E4M3 => Some(Stored::E4m3),
            safetensors::Dtype::F8_E5M2 => Some(Stored::E5m2),
            safetensors::Dtype::F8_E8M0 => Some(Stored::E8m0),
            other => Dtype::of(other).map(Stored::Plain),
        }
    }

    /// Bytes per value.
    pub fn size(self) -> usize {
        match self {
            Stored::Plain(dtype) => dtype.size(),
            Stored::E4m3 | Stored::E5m2 | Stored::E8m0 => 1,
        }
    }

    /// Reads little-endian values; `bytes` holds as many as `into`.
    pub fn widen(self, bytes: &[u8], into: &mut [f32]) {
        let one: fn(u8) -> f32 = match self {
            Stored::Plain(dtype) => return dtype.widen(bytes, into),
            Stored::E4m3 => e4m3,
            Stored::E5m2 => |b| f16::from_bits(u16::from(b) << 8).to_f32(),
            Stored::E8m0 => e8m0,
        };
        let table: [f32; 256] = std::array::from_fn(|b| one(b as u8));
        let portions = into.par_chunks_mut(PORTION).zip(bytes.par_chunks(PORTION));
        portions.for_each(|(into, bytes)| each(bytes, into, |[b]: [u8; 1]| table[usize::from(b)]));
    }
}

/// FP8 E4M3: a sign, four bits of exponent with bias 7, three of mantissa; all ones are no number.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let size = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        // Subnormal: no leading one.
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if byte >> 7 == 1 { -size } else { size }
}

/// 2^(exponent − 127), a scale of eight bits.
pub fn e8m0(exponent: u8) -> f32 {
    match exponent {
        // 2^−127 is subnormal.
        0 => f32::from_bits(1 << 22),
        u8::MAX => f32::NAN,
        exponent => f32::from_bits(u32::from(exponent) << 23),
    }
}

impl std::str::FromStr for Dtype {
    type Err = String;

    fn from_str(word: &str) -> Result<Dtype, String> {
        match word.to_ascii_lowercase().as_str() {
            "f32" | "float32" | "fp32" => Ok(Dtype::F32),
            "f16" | "float16" | "fp16" => Ok(Dtype::F16),
            "bf16" | "bfloat16" => Ok(Dtype::Bf16),
            _ => Err("f32, f16 or bf16".into()),
        }
    }
}

fn each<const N: usize>(bytes: &[u8], into: &mut [f32], f: impl Fn([u8; N]) -> f32) {
    for (value, b) in into.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = f(*b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bits_are_the_numbers_of_their_formats() {
        let read = |stored: Stored, byte: u8| {
            let mut x = [0.0];
            stored.widen(&[byte], &mut x);
            x[0]
        };
        // The largest, the smallest, the smallest normal, and one.
        for (byte, x) in [
            (0x7e, 448.0),
            (0x01, 0.001_953_125),
            (0x08, 0.015_625),
            (0x38, 1.0),
        ] {
            assert_eq!(read(Stored::E4m3, byte), x);
            assert_eq!(read(Stored::E4m3, byte | 0x80), -x);
        }
        assert!(read(Stored::E4m3, 0x7f).is_nan() && read(Stored::E4m3, 0xff).is_nan());
        for (byte, x) in [(0x7b, 57_344.0), (0x01, 1.525_878_9e-5), (0x3c, 1.0)] {
            assert_eq!(read(Stored::E5m2, byte), x);
        }
        assert_eq!(read(Stored::E5m2, 0xfc), f32::NEG_INFINITY);
        for (byte, x) in [
            (127, 1.0),
            (128, 2.0),
            (1, 2f32.powi(-126)),
            (254, 2f32.powi(127)),
        ] {
            assert_eq!(read(Stored::E8m0, byte), x);
        }
        assert_eq!(read(Stored::E8m0, 0), 2f32.powi(-126) / 2.0);
        assert!(read(Stored::E8m0, 255).is_nan());
    }

    #[test]
    fn representable_values_round_trip_and_others_are_rejected() {
        for dtype in Dtype::ALL {
            let values = [0.0, -0.0, 1.5, -3.25, f32::INFINITY, 6.103_515_6e-5];
            let mut bytes = Vec::new();
            dtype.narrow(&values, &mut bytes).unwrap();
            assert_eq!(bytes.len(), values.len() * dtype.size());
            let mut back = [1.0; 6];
            dtype.widen(&bytes, &mut back);
            assert_eq!(
                back.map(f32::to_bits),
                values.map(f32::to_bits),
                "{dtype:?}"
            );
        }
        assert!(Dtype::F16.narrow(&[70_000.0], &mut Vec::new()).is_none());
        assert!(Dtype::Bf16.narrow(&[f32::MAX], &mut Vec::new()).is_none());
        assert!(Dtype::Bf16.narrow(&[70_000.0], &mut Vec::new()).is_some());
    }

    #[test]
    fn rounding_is_to_the_nearest_and_ties_go_to_even() {
        let mut bytes = Vec::new();
        // Between 1 and 1 + 2^-7: the tie goes down, a little more goes up.
        let values = [1.0 + 2f32.powi(-8), 1.0 + 2f32.powi(-8) + 1e-6];
        Dtype::Bf16.narrow(&values, &mut bytes).unwrap();
        let mut back = [0.0; 2];
        Dtype::Bf16.widen(&bytes, &mut back);
        assert_eq!(back, [1.0, 1.0 + 2f32.powi(-7)]);
    }

    #[test]
    fn many_values_are_converted_in_their_order() {
        let values: Vec<f32> = (0..3 * PORTION + 5).map(|i| (i % 251) as f32).collect();
        let mut bytes = Vec::new();
        Dtype::F16.narrow(&values, &mut bytes).unwrap();
        let mut back = vec![0.0; values.len()];
        Dtype::F16.widen(&bytes, &mut back);
        assert!(back == values);
        assert_eq!("bfloat16".parse(), Ok(Dtype::Bf16));
        assert!("int8".parse::<Dtype>().is_err());
    }
}
