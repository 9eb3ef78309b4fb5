//! llama.cpp's architectures, one file each. An architecture defines its keys and which of our models it
//! can represent.

mod choice;
mod common;
mod deepseek2;
mod gemma;
mod gpt2;
mod gpt_oss;
mod gptneox;
mod granite;
mod granitehybrid;
mod lfm2;
mod llama;
mod olmo2;
mod olmoe;
mod phi3;
mod qwen;
mod qwen35;
mod smollm3;
mod stablelm;
mod starcoder2;

use super::keys::Keys;
use crate::gguf::Value;
use crate::nn::{ModelConfig, ModelShape};

pub(super) use choice::{Chosen, obstacle, of};
pub(super) use olmo2::reason;

/// Facts from a file's tensors that its keys do not contain.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// The head is a separate tensor, and not the copy of the embedding that some architectures need.
    pub has_head: bool,
    /// Queries, keys and values have biases.
    pub has_qkv_bias: bool,
    /// The attention output projection has a bias.
    pub has_out_bias: bool,
    /// Feed-forward blocks have biases.
    pub has_mlp_bias: bool,
    /// A convolution of Mamba 2 has biases.
    pub has_conv_bias: bool,
    /// `rope_freqs.weight`: divisors of the frequencies.
    pub rope_factors: Option<Vec<f32>>,
}

/// Row layout of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rotated {
    /// Feature j is paired with j + half, as in ours.
    Halves,
    /// Pairs are adjacent: the rows of each head are permuted.
    Neighbours,
}

/// Keys without the architecture's prefix.
pub(super) type OwnKeys = Vec<(&'static str, Value)>;

/// One architecture.
pub(super) trait Architecture: Sync {
    /// The value of `general.architecture`.
    fn name(&self) -> &'static str;

    /// The model config from keys and tensors.
    ///
    /// # Errors
    /// A key that is missing, invalid or unsupported.
    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String>;

    /// The keys of a model, without the architecture's prefix; `None` if it computes another model.
    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys>;

    /// The architecture's attention scale, which files do not contain.
    fn attention_scale(&self, _: &ModelConfig, shape: &ModelShape) -> f64 {
        (shape.head_dim as f64).powf(-0.5)
    }

    /// Small numerical differences of llama.cpp.
    fn notes(&self, _: &ModelConfig) -> Vec<String> {
        Vec::new()
    }

    fn rotated(&self) -> Rotated {
        Rotated::Halves
    }

    /// Whether it has blocks without attention, or gates of attention: a model with either has no other architecture.
    fn is_hybrid(&self) -> bool {
        false
    }

    /// Whether it has latent attention: a model with it has no other architecture.
    fn is_latent(&self) -> bool {
        false
    }

    /// Whether its attention has sinks: a model with them has no other architecture. Nor has one whose router and experts have
    /// biases.
    fn has_sinks(&self) -> bool {
        false
    }

    /// Whether a delta net's heads of values are in our order, and its projections b and a one tensor, whose rows take turns by heads
    /// of keys; otherwise heads of values are tiled.
    fn is_grouped(&self) -> bool {
        false
    }

    /// Its name of a part of a model that most architectures name otherwise.
    fn own_name(&self, _part: &str) -> Option<&'static str> {
        None
    }

    /// Whether a tensor belongs to a part that is not read, behind the blocks of the model.
    fn leaves_out(&self, _tensor: &str, _n_layer: usize) -> bool {
        false
    }

    /// Queries, keys and values are one tensor, and the gate and up projections another.
    fn is_fused(&self) -> bool {
        false
    }

    /// The head is always a tensor of its own, a copy of the embeddings for a model that ties the two.
    fn needs_head(&self) -> bool {
        false
    }

    /// Biases are always present, zeros for a model without them.
    fn needs_biases(&self) -> bool {
        false
    }
}

/// All architectures; if several could write a model, the first one does: Phi-3's fused tensors can represent Llama's, plus
/// partial RoPE.
const ALL: &[&dyn Architecture] = &[
    &gpt2::Gpt2,
    &gptneox::GptNeoX,
    &llama::Llama,
    &smollm3::SmolLm3,
    &granite::GRANITE,
    &granite::GRANITE_MOE,
    &qwen::Qwen2,
    &qwen::Qwen2Moe,
    &qwen::Qwen3,
    &qwen::Qwen3Moe,
    &gemma::Gemma,
    &gemma::Gemma2,
    &gemma::Gemma3,
    &olmo2::Olmo2,
    &olmoe::Olmoe,
    &phi3::Phi3,
    &starcoder2::Starcoder2,
    &stablelm::StableLm,
    &lfm2::LFM2,
    &lfm2::LFM2_MOE,
    &granitehybrid::GraniteHybrid,
    &qwen35::QWEN35,
    // Of models that both could hold those that name its family.
    &qwen35::QWEN3_NEXT,
    &qwen35::QWEN35_MOE,
    &deepseek2::DeepSeek2,
    &gpt_oss::GptOss,
];

/// The architecture of a file.
///
/// # Errors
/// Unknown; lists the known ones.
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
