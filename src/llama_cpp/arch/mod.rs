//! Architectures as llama.cpp names them: one file each. An architecture knows its keys and which of our models it
//! computes.

mod choice;
mod common;
mod gemma;
mod gpt2;
mod llama;
mod phi3;
mod qwen;

use super::keys::Keys;
use crate::gguf::Value;
use crate::nn::{ModelConfig, ModelShape};

pub(super) use choice::{Chosen, of};

/// What the tensors of a file tell of a model beyond its keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Tokens of the embedding.
    pub vocab_size: usize,
    /// The head is a tensor of its own.
    pub has_head: bool,
    /// Queries, keys and values have biases.
    pub has_qkv_bias: bool,
    /// The projection out of attention has one.
    pub has_out_bias: bool,
    /// Feed-forward blocks have biases.
    pub has_mlp_bias: bool,
    /// `rope_freqs.weight`: what each frequency is divided by.
    pub rope_factors: Option<Vec<f32>>,
}

/// How the rows of queries and keys lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rotated {
    /// Feature j of a head turns with j + half, as ours.
    Halves,
    /// With its neighbour: rows of each head are shuffled.
    Neighbours,
}

/// Keys without the architecture's name in front.
pub(super) type OwnKeys = Vec<(&'static str, Value)>;

/// One architecture.
pub(super) trait Architecture: Sync {
    /// The word in `general.architecture`.
    fn name(&self) -> &'static str;

    /// The model that keys and tensors describe.
    ///
    /// # Errors
    /// A key that is missing or wrong, or asks for what is not computed here.
    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String>;

    /// The keys of a model, without the architecture's name in front; none where it computes another.
    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys>;

    /// What the architecture multiplies scores by; no file says it.
    fn attention_scale(&self, _: &ModelConfig, shape: &ModelShape) -> f64 {
        (shape.head_dim as f64).powf(-0.5)
    }

    /// What llama.cpp computes a little otherwise.
    fn notes(&self, _: &ModelConfig) -> Vec<String> {
        Vec::new()
    }

    fn rotated(&self) -> Rotated {
        Rotated::Halves
    }

    /// Queries, keys and values are one tensor, and gate and up projection another.
    fn is_fused(&self) -> bool {
        false
    }

    /// Biases are always there, zeros where a model has none.
    fn needs_biases(&self) -> bool {
        false
    }
}

/// All; where several could write a model, the first does: Phi-3's fused tensors hold what Llama's hold apart, and a part of
/// each head that is not rotated besides.
const ALL: &[&dyn Architecture] = &[
    &gpt2::Gpt2,
    &llama::Llama,
    &qwen::Qwen2,
    &qwen::Qwen3,
    &qwen::Qwen3Moe,
    &gemma::Gemma2,
    &gemma::Gemma3,
    &phi3::Phi3,
];

/// The architecture of a file.
///
/// # Errors
/// It is not known; says which are.
pub(super) fn named(name: &str) -> Result<&'static dyn Architecture, String> {
    ALL.iter()
        .copied()
        .find(|a| a.name() == name)
        .ok_or_else(|| {
            let known: Vec<&str> = ALL.iter().map(|a| a.name()).collect();
            format!(
                "general.architecture is {name:?}; known are {}",
                known.join(", ")
            )
        })
}
