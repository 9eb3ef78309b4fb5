//! The dtype in which a model computes: requested by the spec, limited by the machine.

use crate::kernels::matmul::{ComputeDtype, bf16_available};
use crate::kernels::numbers::Storage;
use serde::{Deserialize, Serialize};

/// Compute dtype of matmuls, which are nearly all the arithmetic. Weights, gradients, moments and everything
/// between matmuls are f32 under each of them.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// bf16 where the processor multiplies it faster than f32, else f32.
    #[default]
    Auto,
    /// 24 bits of significand.
    F32,
    /// Factors rounded to 8 bits of significand on their way into a matmul, sums in f32.
    Bf16,
}

/// bf16 was asked for where it would be slower than f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this processor multiplies bf16 no faster than f32 (it needs AMX, or AVX-512 with bf16 by AMD)"
)]
pub struct PrecisionError;

impl PrecisionError {
    /// What to do about it.
    pub const HINT: &'static str =
        "write precision: auto, which takes the best the machine has, or precision: f32";
}

impl Precision {
    /// The dtype for this machine.
    ///
    /// # Errors
    /// bf16 on a processor without it: numbers would be the same, but slower than f32.
    pub fn resolve(self) -> Result<ComputeDtype, PrecisionError> {
        self.resolve_with(bf16_available())
    }

    fn resolve_with(self, bf16_available: bool) -> Result<ComputeDtype, PrecisionError> {
        match (self, bf16_available) {
            (Precision::F32, _) | (Precision::Auto, false) => Ok(ComputeDtype::F32),
            (Precision::Auto | Precision::Bf16, true) => Ok(ComputeDtype::Bf16),
            (Precision::Bf16, false) => Err(PrecisionError),
        }
    }
}

/// The name of a compute dtype in specs, logs and tables.
pub fn compute_dtype_name(arithmetic: ComputeDtype) -> &'static str {
    match arithmetic {
        ComputeDtype::F32 => "f32",
        ComputeDtype::Bf16 => "bf16",
    }
}

/// The dtype of the KV cache, as asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvPrecision {
    /// As a training pass keeps keys and values: bf16 with matmuls in bf16, else f32. For log-probabilities that are held against
    /// those of such a pass: rollouts, and scores of tasks.
    #[default]
    #[serde(skip)]
    AsTrained,
    /// For chats: bf16 before quantized weights too, which round activations to eight bits anyway.
    Auto,
    F32,
    /// Half the memory, and half the bytes that decoding a token of a long text reads.
    Bf16,
}

impl KvPrecision {
    /// What a user may choose.
    pub const WORDS: [&'static str; 3] = ["auto", "f32", "bf16"];

    pub fn by_word(word: &str) -> Option<KvPrecision> {
        serde_json::from_value(word.into()).ok()
    }

    pub fn word(self) -> &'static str {
        match self {
            KvPrecision::AsTrained => "as trained",
            KvPrecision::Auto => "auto",
            KvPrecision::F32 => "f32",
            KvPrecision::Bf16 => "bf16",
        }
    }

    /// The dtype for a model with matmuls of `arithmetic`: the only place that decides.
    pub fn resolve(self, arithmetic: ComputeDtype, is_quantized: bool) -> Storage {
        match self {
            KvPrecision::F32 => Storage::F32,
            KvPrecision::Bf16 => Storage::Bf16,
            KvPrecision::Auto if is_quantized => Storage::Bf16,
            KvPrecision::Auto | KvPrecision::AsTrained => match arithmetic {
                ComputeDtype::Bf16 => Storage::Bf16,
                ComputeDtype::F32 => Storage::F32,
            },
        }
    }
}

/// The name of a storage dtype.
pub fn storage_name(storage: Storage) -> &'static str {
    match storage {
        Storage::F32 => "f32",
        Storage::Bf16 => "bf16",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kv_cache_is_f32_unless_activations_are_rounded_or_it_is_asked_for() {
        use ComputeDtype::{Bf16, F32};
        let auto = |arithmetic, quantized| KvPrecision::Auto.resolve(arithmetic, quantized);
        assert_eq!(auto(F32, false), Storage::F32);
        for (arithmetic, quantized) in [(F32, true), (Bf16, false), (Bf16, true)] {
            assert_eq!(auto(arithmetic, quantized), Storage::Bf16);
        }
        let trained = |arithmetic| KvPrecision::AsTrained.resolve(arithmetic, true);
        assert_eq!((trained(F32), trained(Bf16)), (Storage::F32, Storage::Bf16));
        for (arithmetic, quantized) in [(F32, true), (Bf16, false), (F32, false)] {
            for (word, storage) in [("f32", Storage::F32), ("bf16", Storage::Bf16)] {
                let asked = KvPrecision::by_word(word).unwrap();
                assert_eq!(asked.resolve(arithmetic, quantized), storage);
                assert_eq!((asked.word(), storage_name(storage)), (word, word));
            }
        }
        for word in ["f16", "as trained", "astrained"] {
            assert_eq!(KvPrecision::by_word(word), None);
        }
    }

    #[test]
    fn auto_uses_what_is_available_and_bf16_is_never_replaced_silently() {
        use Precision::{Auto, Bf16, F32};
        let with = [Auto, F32, Bf16].map(|p| p.resolve_with(true));
        assert_eq!(
            with,
            [
                Ok(ComputeDtype::Bf16),
                Ok(ComputeDtype::F32),
                Ok(ComputeDtype::Bf16)
            ]
        );
        let without = [Auto, F32, Bf16].map(|p| p.resolve_with(false));
        assert_eq!(
            without,
            [
                Ok(ComputeDtype::F32),
                Ok(ComputeDtype::F32),
                Err(PrecisionError)
            ]
        );
    }

    #[test]
    fn specs_write_it_in_lower_case() {
        let read = |word: &str| serde_json::from_value::<Precision>(word.into());
        assert_eq!(read("bf16").unwrap(), Precision::Bf16);
        assert!(read("fp16").is_err());
    }
}
