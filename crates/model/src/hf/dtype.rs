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
