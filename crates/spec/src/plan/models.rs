//! Reference models by name, to plan with before anything is downloaded. Dimensions are those of the
//! published `config.json` files; nothing here reads a disk.

use super::arch::Arch;
use crate::nn::mixer::{GatedDeltaNetConfig, Mamba2Config, MixerConfig, ShortConvConfig};
use crate::nn::mlp::MlpConfig;
use crate::nn::norm::NormConfig;
use crate::nn::position::scaling::{Llama3, Yarn};
use crate::nn::position::{PositionConfig, RopeConfig, ScalingConfig};
use crate::nn::{
    AttentionBias, Balancing, MlaConfig, ModelConfig, MoeConfig, NormPlacement, QkNormOver, Scoring,
};
use std::sync::LazyLock;

/// A published model.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceModel {
    pub name: &'static str,
    pub arch: Arch,
}

fn gpt2(n_layer: usize, d_model: usize, n_head: usize) -> ModelConfig {
    ModelConfig {
        n_layer,
        d_model,
        n_head,
        seq_len: 1024,
        vocab_size: Some(50_257),
        bias: true,
        ..ModelConfig::default()
    }
}

/// A context of 2,048 tokens, a parallel residual, biases, RoPE on a quarter of each head, an untied head.
fn pythia(n_layer: usize, d_model: usize, n_head: usize) -> ModelConfig {
    ModelConfig {
        seq_len: 2048,
        vocab_size: Some(50_304),
        position: PositionConfig::Rope(RopeConfig {
            fraction: 0.25,
            ..RopeConfig::default()
        }),
        parallel_residual: true,
        tie_embeddings: false,
        ..gpt2(n_layer, d_model, n_head)
    }
}

/// Llama-like: RoPE, RMSNorm, gated feed-forward, no biases, untied head.
/// `sizes` are n_layer, d_model, n_head, n_kv_head, d_ff, vocab_size, context length.
fn llama(sizes: [usize; 7]) -> ModelConfig {
    let [
        n_layer,
        d_model,
        n_head,
        n_kv_head,
        d_ff,
        vocab_size,
        seq_len,
    ] = sizes;
    ModelConfig {
        n_layer,
        d_model,
        n_head,
        n_kv_head: Some(n_kv_head),
        d_ff: Some(d_ff),
        vocab_size: Some(vocab_size),
        seq_len,
        position: PositionConfig::Rope(Default::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        tie_embeddings: false,
        ..ModelConfig::default()
    }
}

/// Llama 3's positions, stretched from 8,192 tokens by this factor.
fn stretched(factor: f64, model: ModelConfig) -> ModelConfig {
    let scaling = Llama3 {
        factor,
        ..Llama3::default()
    };
    ModelConfig {
        position: PositionConfig::Rope(RopeConfig {
            theta: 500_000.0,
            scaling: Some(ScalingConfig::Llama3(scaling)),
            ..RopeConfig::default()
        }),
        ..model
    }
}

fn tied(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        tie_embeddings: true,
        ..model
    }
}

fn qwen2(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        attention_bias: AttentionBias::Qkv,
        ..model
    }
}

/// Heads of 128 features at any width, QK-norm.
fn qwen3(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        head_dim: Some(128),
        qk_norm: true,
        ..model
    }
}

/// No position encoding in every 4th block, a tied head.
fn smollm3(model: ModelConfig) -> ModelConfig {
    let rope = RopeConfig {
        theta: 5_000_000.0,
        nope_every: Some(4),
        ..RopeConfig::default()
    };
    tied(ModelConfig {
        position: PositionConfig::Rope(rope),
        ..model
    })
}

/// Its four scales.
fn granite(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        embedding_scale: Some(12.0),
        attention_scale: Some(0.015_625),
        residual_scale: Some(0.22),
        logit_scale: Some(0.125),
        ..model
    }
}

/// Norms of what is added, QK-norm over all heads.
fn olmo2(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        norm_placement: NormPlacement::Reordered,
        qk_norm: true,
        qk_norm_over: QkNormOver::AllHeads,
        ..model
    }
}

/// The first Gemma: heads of 256 features, embeddings times √d_model.
fn gemma(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        head_dim: Some(256),
        embedding_scale: Some((model.d_model as f64).sqrt()),
        mlp: MlpConfig::GeGlu(Default::default()),
        ..model
    }
}

/// LayerNorm, a feed-forward block without a gate, biases everywhere.
fn starcoder2(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        norm: NormConfig::LayerNorm(Default::default()),
        mlp: MlpConfig::Gelu(Default::default()),
        bias: true,
        sliding_window: Some(4096),
        ..model
    }
}

/// A window in three of four blocks.
fn olmo3(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        sliding_window: Some(4096),
        global_every: Some(4),
        ..olmo2(model)
    }
}

/// Short convolutions in all blocks but these, QK-norm, a tied head.
fn lfm2(model: ModelConfig) -> ModelConfig {
    let rope = RopeConfig {
        theta: 1_000_000.0,
        ..RopeConfig::default()
    };
    tied(ModelConfig {
        mixer: Some(MixerConfig::ShortConv(ShortConvConfig::default())),
        attention_blocks: Some(vec![2, 5, 8, 10, 12, 14]),
        position: PositionConfig::Rope(rope),
        qk_norm: true,
        ..model
    })
}

/// The text model: delta nets with 16 heads of keys and so many of values in three of four blocks, gated attention with heads of 256
/// features in the others.
fn qwen3_5(model: ModelConfig, n_value_head: usize) -> ModelConfig {
    let rope = RopeConfig {
        theta: 10_000_000.0,
        fraction: 0.25,
        ..RopeConfig::default()
    };
    let net = GatedDeltaNetConfig {
        n_key_head: 16,
        n_value_head,
        key_dim: 128,
        value_dim: 128,
        conv_len: 4,
    };
    ModelConfig {
        head_dim: Some(256),
        qk_norm: true,
        attention_gate: true,
        mixer: Some(MixerConfig::GatedDeltaNet(net)),
        attention_every: Some(4),
        position: PositionConfig::Rope(rope),
        ..model
    }
}

/// The same with experts, and a shared one as wide as each; `n_value_head` is of the delta nets.
fn qwen3_5_moe(
    model: ModelConfig,
    n_value_head: usize,
    [n_expert, top_k]: [usize; 2],
) -> ModelConfig {
    shared(experts(qwen3_5(model, n_value_head), n_expert, top_k))
}

/// A shared expert as wide as the others, with a gate.
fn shared(mut model: ModelConfig) -> ModelConfig {
    let width = model.d_ff;
    if let Some(moe) = &mut model.moe {
        (moe.shared_d_ff, moe.shared_gate) = (width, true);
    }
    model
}

/// The first: its shared expert is four times as wide as the others, whose weights are not normalized.
fn qwen1_5_moe(model: ModelConfig) -> ModelConfig {
    let mut model = qwen2(experts(model, 60, 4));
    if let Some(moe) = &mut model.moe {
        (moe.shared_d_ff, moe.shared_gate, moe.norm_topk) = (Some(5632), true, false);
    }
    model
}

/// QK-norm over all heads, weights of experts that are not normalized.
fn olmoe(model: ModelConfig) -> ModelConfig {
    let mut model = experts(model, 64, 8);
    if let Some(moe) = &mut model.moe {
        moe.norm_topk = false;
    }
    ModelConfig {
        qk_norm: true,
        qk_norm_over: QkNormOver::AllHeads,
        ..model
    }
}

/// Its scales, a head that is tied, experts.
fn granite_moe(model: ModelConfig, [n_expert, top_k]: [usize; 2]) -> ModelConfig {
    tied(ModelConfig {
        embedding_scale: Some(12.0),
        attention_scale: Some(0.015_625),
        residual_scale: Some(0.22),
        logit_scale: Some(1.0 / 6.0),
        ..experts(model, n_expert, top_k)
    })
}

/// Mamba 2 in all blocks but four, attention without positions in those, a tied head; twice as wide inside as the model.
fn granite_hybrid(model: ModelConfig, n_head: usize) -> ModelConfig {
    let net = Mamba2Config {
        n_head,
        head_dim: 2 * model.d_model / n_head,
        state_dim: 128,
        ..Mamba2Config::default()
    };
    tied(ModelConfig {
        mixer: Some(MixerConfig::Mamba2(net)),
        attention_blocks: Some(match model.n_layer {
            32 => vec![10, 13, 17, 27],
            _ => vec![5, 15, 25, 35],
        }),
        position: PositionConfig::None(Default::default()),
        ..granite(model)
    })
}

/// The same with experts, and a shared one of width `shared`.
fn granite_hybrid_moe(
    model: ModelConfig,
    n_head: usize,
    [n_expert, top_k, shared]: [usize; 3],
) -> ModelConfig {
    let mut model = granite_hybrid(experts(model, n_expert, top_k), n_head);
    if let Some(moe) = &mut model.moe {
        moe.shared_d_ff = Some(shared);
    }
    model
}

/// Sigmoid scores with biases for the choice, and no experts in the first two blocks, whose feed-forward blocks are `d_ff` wide.
fn lfm2_moe(model: ModelConfig, d_ff: usize, [n_expert, top_k]: [usize; 2]) -> ModelConfig {
    let mut model = experts(lfm2(model), n_expert, top_k);
    if let Some(moe) = &mut model.moe {
        moe.d_ff = model.d_ff.replace(d_ff);
        moe.scoring = Scoring::Sigmoid;
        moe.balancing = Balancing::Bias { rate: 0.0 };
        moe.dense_blocks = Some(vec![0, 1]);
    }
    ModelConfig {
        attention_blocks: Some(vec![2, 6, 10, 14, 18, 21]),
        ..model
    }
}

/// Latent attention, one shared expert of so many times an expert's width, and so many first blocks of `d_ff` without experts.
/// `sizes` are q_rank (0: none), nope_dim, v_dim.
fn deepseek(
    model: ModelConfig,
    [q_rank, nope_dim, v_dim]: [usize; 3],
    [n_expert, top_k, n_shared]: [usize; 3],
    (n_dense, d_ff): (usize, usize),
) -> ModelConfig {
    let width = model.d_ff.unwrap_or(0);
    let mut model = experts(model, n_expert, top_k);
    if let Some(moe) = &mut model.moe {
        moe.d_ff = model.d_ff.replace(d_ff);
        moe.shared_d_ff = Some(n_shared * width);
        moe.dense_blocks = Some((0..n_dense).collect());
        moe.norm_topk = false;
    }
    ModelConfig {
        n_kv_head: None,
        mla: Some(MlaConfig {
            kv_rank: 512,
            q_rank: Some(q_rank).filter(|rank| *rank > 0),
            nope_dim,
            rope_dim: 64,
            v_dim,
            ..MlaConfig::default()
        }),
        ..model
    }
}

/// Sigmoid scores with biases for the choice, in so many groups of which a token reaches some.
fn deepseek_v3(mut model: ModelConfig, groups: Option<[usize; 2]>, scale: f64) -> ModelConfig {
    if let Some(moe) = &mut model.moe {
        moe.scoring = Scoring::Sigmoid;
        moe.balancing = Balancing::Bias { rate: 0.0 };
        moe.norm_topk = true;
        moe.gate_scale = Some(scale);
        (moe.n_group, moe.top_group) = (groups.map(|of| of[0]), groups.map(|of| of[1]));
    }
    model
}

/// Attention with sinks and biases, windows in every other block; experts with biases and clamped SwiGLU.
fn gpt_oss(n_layer: usize, n_expert: usize) -> ModelConfig {
    let sizes = [n_layer, 2880, 64, 8, 2880, 201_088, 131_072];
    let mut model = experts(llama(sizes), n_expert, 4);
    if let Some(moe) = &mut model.moe {
        moe.bias = true;
    }
    let yarn = Yarn {
        factor: 32.0,
        original_len: Some(4096),
        truncate: false,
        ..Yarn::default()
    };
    let rope = RopeConfig {
        theta: 150_000.0,
        scaling: Some(ScalingConfig::Yarn(yarn)),
        ..RopeConfig::default()
    };
    ModelConfig {
        head_dim: Some(64),
        position: PositionConfig::Rope(rope),
        attention_bias: AttentionBias::All,
        attention_sinks: true,
        sliding_window: Some(128),
        global_every: Some(2),
        mlp: MlpConfig::ClampedSwiGlu(Default::default()),
        ..model
    }
}

/// `d_ff` is the width inside one expert.
fn experts(model: ModelConfig, n_expert: usize, top_k: usize) -> ModelConfig {
    let moe = MoeConfig {
        n_expert,
        top_k,
        ..MoeConfig::default()
    };
    ModelConfig {
        moe: Some(moe),
        ..model
    }
}

/// Every model a plan can name, by family.
#[rustfmt::skip]
pub static MODELS: LazyLock<Vec<ReferenceModel>> = LazyLock::new(|| [
    ("gpt2", gpt2(12, 768, 12)),
    ("gpt2-medium", gpt2(24, 1024, 16)),
    ("gpt2-large", gpt2(36, 1280, 20)),
    ("gpt2-xl", gpt2(48, 1600, 25)),
    ("llama-2-7b", llama([32, 4096, 32, 32, 11_008, 32_000, 4096])),
    ("llama-2-13b", llama([40, 5120, 40, 40, 13_824, 32_000, 4096])),
    ("llama-2-70b", llama([80, 8192, 64, 8, 28_672, 32_000, 4096])),
    ("llama-3.1-8b", stretched(8.0, llama([32, 4096, 32, 8, 14_336, 128_256, 131_072]))),
    ("llama-3.1-70b", stretched(8.0, llama([80, 8192, 64, 8, 28_672, 128_256, 131_072]))),
    ("llama-3.1-405b", stretched(8.0, llama([126, 16_384, 128, 8, 53_248, 128_256, 131_072]))),
    ("llama-3.2-1b", stretched(32.0, tied(llama([16, 2048, 32, 8, 8192, 128_256, 131_072])))),
    ("llama-3.2-3b", stretched(32.0, tied(llama([28, 3072, 24, 8, 8192, 128_256, 131_072])))),
    ("granite-3.3-2b", tied(granite(llama([40, 2048, 32, 8, 8192, 49_159, 131_072])))),
    ("granite-4.0-350m", tied(granite(llama([28, 1024, 16, 4, 2048, 100_352, 32_768])))),
    ("granite-4.0-1b", tied(granite(llama([40, 2048, 16, 4, 4096, 100_352, 131_072])))),
    ("granite-4.0-micro", tied(granite(llama([40, 2560, 40, 8, 8192, 100_352, 131_072])))),
    ("granite-4.0-h-350m", granite_hybrid(llama([32, 768, 12, 4, 2048, 100_352, 32_768]), 48)),
    ("granite-4.0-h-1b", granite_hybrid(llama([40, 1536, 12, 4, 4096, 100_352, 131_072]), 48)),
    ("granite-4.0-h-micro", granite_hybrid(llama([40, 2048, 32, 8, 8192, 100_352, 131_072]), 64)),
    ("granite-4.0-h-tiny", granite_hybrid_moe(llama([40, 1536, 12, 4, 512, 100_352, 131_072]), 48, [64, 6, 1024])),
    ("granite-4.0-h-small", granite_hybrid_moe(llama([40, 4096, 32, 8, 768, 100_352, 131_072]), 128, [72, 10, 1536])),
    ("gemma-2b", tied(gemma(llama([18, 2048, 8, 1, 16_384, 256_000, 8192])))),
    ("starcoder2-3b", tied(starcoder2(llama([30, 3072, 24, 2, 12_288, 49_152, 16_384])))),
    ("mistral-7b", llama([32, 4096, 32, 8, 14_336, 32_000, 32_768])),
    ("mixtral-8x7b", experts(llama([32, 4096, 32, 8, 14_336, 32_000, 32_768]), 8, 2)),
    ("olmoe-1b-7b", olmoe(llama([16, 2048, 16, 16, 1024, 50_304, 4096]))),
    ("granite-3.1-1b-a400m", granite_moe(llama([24, 1024, 16, 8, 512, 49_155, 131_072]), [32, 8])),
    ("granite-3.1-3b-a800m", granite_moe(llama([32, 1536, 24, 8, 512, 49_155, 131_072]), [40, 8])),
    ("mixtral-8x22b", experts(llama([56, 6144, 48, 8, 16_384, 32_768, 65_536]), 8, 2)),
    ("pythia-160m", pythia(12, 768, 12)),
    ("pythia-1.4b", pythia(24, 2048, 16)),
    ("qwen2.5-0.5b", tied(qwen2(llama([24, 896, 14, 2, 4864, 151_936, 32_768])))),
    ("qwen2.5-1.5b", tied(qwen2(llama([28, 1536, 12, 2, 8960, 151_936, 131_072])))),
    ("qwen2.5-3b", tied(qwen2(llama([36, 2048, 16, 2, 11_008, 151_936, 32_768])))),
    ("qwen2.5-7b", qwen2(llama([28, 3584, 28, 4, 18_944, 152_064, 131_072]))),
    ("qwen2.5-14b", qwen2(llama([48, 5120, 40, 8, 13_824, 152_064, 131_072]))),
    ("qwen2.5-32b", qwen2(llama([64, 5120, 40, 8, 27_648, 152_064, 131_072]))),
    ("qwen2.5-72b", qwen2(llama([80, 8192, 64, 8, 29_568, 152_064, 131_072]))),
    ("qwen3-0.6b", tied(qwen3(llama([28, 1024, 16, 8, 3072, 151_936, 40_960])))),
    ("qwen3-1.7b", tied(qwen3(llama([28, 2048, 16, 8, 6144, 151_936, 40_960])))),
    ("qwen3-4b", tied(qwen3(llama([36, 2560, 32, 8, 9728, 151_936, 40_960])))),
    ("qwen3-8b", qwen3(llama([36, 4096, 32, 8, 12_288, 151_936, 40_960]))),
    ("qwen1.5-moe-a2.7b", qwen1_5_moe(llama([24, 2048, 16, 16, 1408, 151_936, 8192]))),
    ("qwen3-30b-a3b", experts(qwen3(llama([48, 2048, 32, 4, 768, 151_936, 40_960])), 128, 8)),
    ("qwen3-next-80b-a3b", qwen3_5_moe(llama([48, 2048, 16, 2, 512, 151_936, 262_144]), 32, [512, 10])),
    ("qwen3.5-35b-a3b", qwen3_5_moe(llama([40, 2048, 16, 2, 512, 248_320, 262_144]), 32, [256, 8])),
    ("qwen3.5-0.8b", tied(qwen3_5(llama([24, 1024, 8, 2, 3584, 248_320, 262_144]), 16))),
    ("qwen3.5-2b", tied(qwen3_5(llama([24, 2048, 8, 2, 6144, 248_320, 262_144]), 16))),
    ("qwen3.5-4b", tied(qwen3_5(llama([32, 2560, 16, 4, 9216, 248_320, 262_144]), 32))),
    ("qwen3.5-9b", qwen3_5(llama([32, 4096, 16, 4, 12_288, 248_320, 262_144]), 32)),
    ("lfm2-350m", lfm2(llama([16, 1024, 16, 8, 4608, 65_536, 128_000]))),
    ("lfm2-700m", lfm2(llama([16, 1536, 24, 8, 6912, 65_536, 128_000]))),
    ("lfm2-1.2b", lfm2(llama([16, 2048, 32, 8, 8192, 65_536, 128_000]))),
    ("lfm2-8b-a1b", lfm2_moe(llama([24, 2048, 32, 8, 1792, 65_536, 128_000]), 7168, [32, 4])),
    ("deepseek-v2-lite", deepseek(llama([27, 2048, 16, 16, 1408, 102_400, 163_840]), [0, 128, 128], [64, 6, 2], (1, 10_944))),
    ("deepseek-v3", deepseek_v3(deepseek(llama([61, 7168, 128, 128, 2048, 129_280, 163_840]), [1536, 128, 128], [256, 8, 1], (3, 18_432)), Some([8, 4]), 2.5)),
    ("moonlight-16b-a3b", deepseek_v3(deepseek(llama([27, 2048, 16, 16, 1408, 163_840, 8192]), [0, 128, 128], [64, 6, 2], (1, 11_264)), None, 2.446)),
    ("glm-4.7-flash", deepseek_v3(deepseek(llama([47, 2048, 20, 20, 1536, 154_880, 202_752]), [768, 192, 256], [64, 4, 1], (1, 10_240)), None, 1.8)),
    ("gpt-oss-20b", gpt_oss(24, 32)),
    ("gpt-oss-120b", gpt_oss(36, 128)),
    ("olmo-2-1b", olmo2(llama([16, 2048, 16, 16, 8192, 100_352, 4096]))),
    ("olmo-2-7b", olmo2(llama([32, 4096, 32, 32, 11_008, 100_352, 4096]))),
    ("olmo-2-13b", olmo2(llama([40, 5120, 40, 40, 13_824, 100_352, 4096]))),
    ("olmo-2-32b", olmo2(llama([64, 5120, 40, 8, 27_648, 100_352, 4096]))),
    ("olmo-3-7b", olmo3(llama([32, 4096, 32, 32, 11_008, 100_278, 65_536]))),
    ("smollm2-135m", tied(llama([30, 576, 9, 3, 1536, 49_152, 8192]))),
    ("smollm2-360m", tied(llama([32, 960, 15, 5, 2560, 49_152, 8192]))),
    ("smollm3-3b", smollm3(llama([36, 2048, 16, 4, 11_008, 128_256, 65_536]))),
    ("tinyllama-1.1b", llama([22, 2048, 32, 4, 5632, 32_000, 2048])),
]
.map(|(name, config)| ReferenceModel { name, arch: Arch::of(&config, 0) })
.into());

/// A model by its name, case-insensitive, with or without the owner before a slash.
pub fn find(name: &str) -> Option<&'static ReferenceModel> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let plain = plain(name);
    MODELS.iter().find(|model| self::plain(model.name) == plain)
}

/// Case, underscores, suffixes of tuned variants and OLMo's months are ignored: `Meta-Llama-3.1-8B-Instruct` is `llama-3.1-8b`,
/// `OLMo-2-1124-7B` is `olmo-2-7b`.
fn plain(name: &str) -> String {
    let mut name = name.to_lowercase().replace('_', "-");
    if name.starts_with("olmo-") {
        let is_month = |part: &&str| part.len() == 4 && part.bytes().all(|b| b.is_ascii_digit());
        let parts: Vec<&str> = name.split('-').filter(|part| !is_month(part)).collect();
        name = parts.join("-");
    }
    let name = name.strip_prefix("meta-").unwrap_or(&name);
    let end = [
        "-instruct",
        "-chat",
        "-base",
        "-hf",
        "-deduped",
        "-v0.1",
        "-v0.3",
    ];
    let mut name = name.to_string();
    while let Some(short) = end.iter().find_map(|e| name.strip_suffix(e)) {
        name = short.to_string();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_are_exact() {
        let published = [
            ("gpt2", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
            ("qwen2.5-0.5b", 494_032_768),
            ("pythia-160m", 162_322_944),
            ("pythia-1.4b", 1_414_647_808),
            ("llama-2-7b", 6_738_415_616),
            ("llama-2-13b", 13_015_864_320),
            ("llama-3.1-8b", 8_030_261_248),
            ("llama-3.1-70b", 70_553_706_496),
            ("llama-3.1-405b", 405_853_388_800),
            ("llama-3.2-1b", 1_235_814_400),
            ("mistral-7b", 7_241_732_096),
            ("qwen3-8b", 8_190_735_360),
            ("qwen3-0.6b", 596_049_920),
            ("mixtral-8x7b", 46_702_792_704),
            ("granite-3.3-2b", 2_533_539_840),
            ("granite-4.0-350m", 352_379_904),
            ("granite-4.0-1b", 1_631_750_144),
            ("granite-4.0-micro", 3_402_836_480),
            ("granite-4.0-h-350m", 340_332_224),
            ("granite-4.0-h-1b", 1_461_538_368),
            ("granite-4.0-h-micro", 3_191_396_096),
            ("granite-4.0-h-tiny", 6_939_037_248),
            ("granite-4.0-h-small", 32_207_337_984),
            ("gemma-2b", 2_506_172_416),
            ("starcoder2-3b", 3_030_371_328),
            ("smollm2-135m", 134_515_008),
            ("smollm3-3b", 3_075_098_624),
            ("tinyllama-1.1b", 1_100_048_384),
            ("lfm2-350m", 354_483_968),
            ("lfm2-700m", 742_489_344),
            ("lfm2-1.2b", 1_170_340_608),
            ("olmoe-1b-7b", 6_919_161_856),
            ("granite-3.1-1b-a400m", 1_334_628_352),
            ("granite-3.1-3b-a800m", 3_298_793_472),
            ("qwen1.5-moe-a2.7b", 14_315_784_192),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("qwen3-next-80b-a3b", 79_674_391_296),
            ("qwen3.5-35b-a3b", 34_660_610_688),
            // With its biases for the choice of experts.
            ("lfm2-8b-a1b", 8_339_930_560),
            ("deepseek-v2-lite", 15_706_484_224),
            ("deepseek-v3", 671_026_404_352 + 58 * 256),
            ("moonlight-16b-a3b", 15_960_108_544 + 26 * 64),
            ("glm-4.7-flash", 29_943_390_976 + 46 * 64),
            ("gpt-oss-20b", 20_914_757_184),
            ("gpt-oss-120b", 116_829_156_672),
            ("olmo-2-1b", 1_484_916_736),
            ("olmo-2-7b", 7_298_617_344),
            ("olmo-3-7b", 7_298_011_136),
        ];
        for (name, params) in published {
            assert_eq!(find(name).unwrap().arch.n_params(), params, "{name}");
        }
    }

    #[test]
    fn names_are_found_as_people_write_them() {
        for name in [
            "Llama-3.1-8B",
            "meta-llama/Meta-Llama-3.1-8B-Instruct",
            "llama_3.1_8b",
        ] {
            assert_eq!(find(name).map(|m| m.name), Some("llama-3.1-8b"), "{name}");
        }
        assert_eq!(
            find("Mixtral-8x7B-Instruct-v0.1").map(|m| m.name),
            Some("mixtral-8x7b")
        );
        for name in ["allenai/OLMo-2-0425-1B", "OLMo-2-0425-1B-Instruct"] {
            assert_eq!(find(name).map(|m| m.name), Some("olmo-2-1b"), "{name}");
        }
        assert!(find("llama-9b").is_none());
    }

    #[test]
    fn keys_and_values_of_a_token_take_the_published_room() {
        let kv = |name| find(name).unwrap().arch.kv_bytes_per_token(2);
        assert_eq!(kv("llama-2-7b"), 524_288);
        assert_eq!(kv("llama-3.1-8b"), 131_072);
        assert_eq!(kv("llama-3.1-70b"), 327_680);
        assert_eq!(kv("qwen2.5-0.5b"), 12_288);
        assert_eq!(kv("qwen3-8b"), 147_456);
        // 512 numbers of a latent vector and a key of 64, in bf16.
        assert_eq!(kv("deepseek-v3"), 61 * 2 * 576);
        // 8B at 128,000 tokens: 15.62 GiB (Llama 3.1's own announcement).
        assert!((131_072.0 * 128_000.0 / 1_073_741_824.0 - 15.625_f64).abs() < 1e-9);
    }
}
