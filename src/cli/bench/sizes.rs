//! The four models of the training benchmark, with their batches. `benches/peers` defines the same ones in PyTorch.

use crate::nn::mlp::{Approximate, MlpConfig};
use crate::nn::norm::NormConfig;
use crate::nn::position::PositionConfig;
use crate::nn::{AdapterConfig, ModelConfig};
use serde::Serialize;

/// Model and batch of one benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum Size {
    /// GPT-2 style, 0.8M parameters: 4 × 128, 12 × 64 tokens, vocabulary 65
    #[value(name = "S", alias = "s")]
    S,
    /// GPT-2 style, 10.8M: 6 × 384, 16 × 256 tokens, vocabulary 65
    #[value(name = "M", alias = "m")]
    M,
    /// Llama style, 27.8M: 8 × 512, 8 / 4 heads, 4 × 512 tokens, vocabulary 8,192
    #[value(name = "L", alias = "l")]
    L,
    /// GPT-2, 124M: 12 × 768, 4 × 64 tokens, vocabulary 50,257
    #[value(name = "XL", alias = "xl")]
    XL,
}

/// A model with its batch.
#[derive(Debug, Clone)]
pub struct Setup {
    pub model: ModelConfig,
    /// What trains beside frozen weights; `None`: all weights train.
    pub adapter: Option<AdapterConfig>,
    pub vocab_size: usize,
    pub batch_size: usize,
}

impl Size {
    /// Sequences are `model.seq_len` long.
    pub fn setup(self) -> Setup {
        let (model, vocab_size, batch_size) = match self {
            Size::S => (gpt2(4, 4, 128, 64), 65, 12),
            Size::M => (gpt2(6, 6, 384, 256), 65, 16),
            Size::L => (llama(), 8192, 4),
            Size::XL => (gpt2(12, 12, 768, 64), 50_257, 4),
        };
        Setup {
            model,
            adapter: None,
            vocab_size,
            batch_size,
        }
    }
}

fn gpt2(n_layer: usize, n_head: usize, d_model: usize, seq_len: usize) -> ModelConfig {
    ModelConfig {
        n_layer,
        n_head,
        d_model,
        seq_len,
        mlp: tanh_gelu(),
        bias: true,
        ..Default::default()
    }
}

fn tanh_gelu() -> MlpConfig {
    let mut mlp = MlpConfig::Gelu(Default::default());
    if let MlpConfig::Gelu(gelu) = &mut mlp {
        gelu.approximate = Approximate::Tanh;
    }
    mlp
}

fn llama() -> ModelConfig {
    ModelConfig {
        n_layer: 8,
        n_head: 8,
        n_kv_head: Some(4),
        d_model: 512,
        d_ff: Some(1408),
        seq_len: 512,
        ..llama_parts()
    }
}

fn llama_parts() -> ModelConfig {
    ModelConfig {
        position: PositionConfig::Rope(Default::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        ..Default::default()
    }
}

/// The shape of SmolLM2-135M, for decoding; its vocabulary.
pub fn smol_135m() -> (ModelConfig, usize) {
    let model = ModelConfig {
        n_layer: 30,
        n_head: 9,
        n_kv_head: Some(3),
        d_model: 576,
        d_ff: Some(1536),
        seq_len: 2048,
        ..llama_parts()
    };
    (model, 49_152)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::Model;

    #[test]
    fn sizes_have_the_parameter_counts_they_are_known_by() {
        let millions = |model: &ModelConfig, vocab_size| {
            let model = Model::new(model, vocab_size, &candle_core::Device::Cpu).unwrap();
            (model.n_params() as f64 / 1e5).round() / 10.0
        };
        let of = |size: Size| {
            let setup = size.setup();
            millions(&setup.model, setup.vocab_size)
        };
        let counts = [Size::S, Size::M, Size::L, Size::XL].map(of);
        assert_eq!(counts, [0.8, 10.8, 27.8, 123.7]);
        let (smol, vocab_size) = smol_135m();
        assert_eq!(millions(&smol, vocab_size), 134.5);
    }
}
