//! Models of each architecture.

use super::*;

pub(super) fn llama() -> ModelConfig {
    ModelConfig {
        n_layer: 2,
        n_head: 4,
        n_kv_head: Some(2),
        d_model: 64,
        d_ff: Some(96),
        seq_len: 32,
        vocab_size: Some(40),
        position: PositionConfig::Rope(Default::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        init_std: 0.2,
        ..Default::default()
    }
}

pub(super) fn gpt2(bias: bool) -> ModelConfig {
    let mut mlp = MlpConfig::Gelu(Default::default());
    if let MlpConfig::Gelu(gelu) = &mut mlp {
        gelu.approximate = Approximate::Tanh;
    }
    ModelConfig {
        n_layer: 2,
        d_model: 64,
        seq_len: 32,
        d_ff: Some(128),
        vocab_size: Some(40),
        init_std: 0.2,
        mlp,
        bias,
        ..Default::default()
    }
}

pub(super) fn gemma2() -> ModelConfig {
    let mut mlp = MlpConfig::GeGlu(Default::default());
    if let MlpConfig::GeGlu(gate) = &mut mlp {
        gate.approximate = Approximate::Tanh;
    }
    let mut norm = NormConfig::RmsNorm(Default::default());
    if let NormConfig::RmsNorm(rms) = &mut norm {
        rms.unit_offset = true;
    }
    ModelConfig {
        norm,
        norm_placement: NormPlacement::Both,
        mlp,
        embedding_scale: Some(8.0),
        sliding_window: Some(6),
        global_every: Some(2),
        attention_softcap: Some(20.0),
        logit_softcap: Some(10.0),
        ..llama()
    }
}

pub(super) fn gemma() -> ModelConfig {
    ModelConfig {
        norm_placement: NormPlacement::Pre,
        sliding_window: None,
        global_every: None,
        attention_softcap: None,
        logit_softcap: None,
        ..gemma2()
    }
}

pub(super) fn granite() -> ModelConfig {
    ModelConfig {
        attention_scale: Some(0.0625),
        embedding_scale: Some(12.0),
        residual_scale: Some(0.22),
        logit_scale: Some(0.125),
        ..llama()
    }
}

pub(super) fn starcoder2(bias: bool) -> ModelConfig {
    ModelConfig {
        n_kv_head: Some(2),
        position: PositionConfig::Rope(Default::default()),
        ..gpt2(bias)
    }
}

/// With an attention scale that no key can express.
pub(super) fn gemma3() -> ModelConfig {
    let local = with_rope(|rope| {
        rope.local_theta = Some(10_000.0);
        rope.theta = 1e6;
    });
    ModelConfig {
        n_layer: 6,
        position: local.position,
        global_every: Some(6),
        qk_norm: true,
        attention_softcap: None,
        attention_scale: Some(0.2),
        ..gemma2()
    }
}

pub(super) fn olmo2() -> ModelConfig {
    ModelConfig {
        norm_placement: NormPlacement::Reordered,
        qk_norm: true,
        qk_norm_over: QkNormOver::AllHeads,
        tie_embeddings: false,
        ..llama()
    }
}

/// With a scaling that leaves out blocks with a window.
pub(super) fn olmo3() -> ModelConfig {
    let scaled = with_rope(|rope| {
        rope.local_theta = Some(rope.theta);
        rope.scaling = Some(ScalingConfig::Yarn(scaling::Yarn {
            original_len: Some(8),
            ..Default::default()
        }));
    });
    ModelConfig {
        n_layer: 5,
        position: scaled.position,
        sliding_window: Some(6),
        global_every: Some(4),
        ..olmo2()
    }
}

pub(super) fn with_rope(change: impl Fn(&mut crate::nn::position::RopeConfig)) -> ModelConfig {
    let mut config = llama();
    if let PositionConfig::Rope(rope) = &mut config.position {
        change(rope);
    }
    config
}

/// Eight blocks, every n-th of them without positions.
pub(super) fn smollm3(n: usize) -> ModelConfig {
    let position = with_rope(|rope| rope.nope_every = Some(n)).position;
    ModelConfig {
        n_layer: 8,
        position,
        ..llama()
    }
}

/// With a parallel residual, or without.
pub(super) fn neox(parallel_residual: bool) -> ModelConfig {
    let rope = with_rope(|rope| {
        rope.fraction = 0.25;
        rope.theta = 5000.0;
    });
    ModelConfig {
        position: rope.position,
        parallel_residual,
        ..gpt2(true)
    }
}

/// With LayerNorms whose biases are the only ones, or with those of queries, keys and values.
pub(super) fn stablelm(attention_bias: AttentionBias) -> ModelConfig {
    let mut norm = NormConfig::LayerNorm(Default::default());
    if let NormConfig::LayerNorm(norm) = &mut norm {
        norm.bias = Some(true);
    }
    ModelConfig {
        norm,
        attention_bias,
        ..with_rope(|rope| rope.fraction = 0.25)
    }
}

/// Convolutions in place of attention in the first block and the third.
pub(super) fn lfm2() -> ModelConfig {
    ModelConfig {
        n_layer: 4,
        qk_norm: true,
        mixer: Some(MixerConfig::ShortConv(Default::default())),
        attention_blocks: Some(vec![1, 3]),
        ..llama()
    }
}

/// Three blocks of four without attention, two heads of values for each of keys.
pub(super) fn qwen35() -> ModelConfig {
    let mut config = ModelConfig {
        n_layer: 4,
        qk_norm: true,
        attention_gate: true,
        mixer: Some(MixerConfig::GatedDeltaNet(GatedDeltaNetConfig {
            n_key_head: 3,
            n_value_head: 6,
            key_dim: 32,
            value_dim: 32,
            conv_len: 4,
        })),
        attention_every: Some(4),
        ..with_rope(|rope| rope.fraction = 0.25)
    };
    if let NormConfig::RmsNorm(norm) = &mut config.norm {
        norm.unit_offset = true;
    }
    config
}

/// Mamba 2 in the first block and the third, in two groups; attention without positions.
pub(super) fn granite_hybrid() -> ModelConfig {
    ModelConfig {
        n_layer: 4,
        position: PositionConfig::None(Default::default()),
        mixer: Some(MixerConfig::Mamba2(Mamba2Config {
            n_head: 4,
            head_dim: 32,
            state_dim: 20,
            n_group: 2,
            ..Mamba2Config::default()
        })),
        attention_blocks: Some(vec![1, 3]),
        ..granite()
    }
}

/// (architecture, model), for everything that this program supports.
pub(super) fn models() -> Vec<(&'static str, ModelConfig)> {
    let all = vec![
        ("llama", llama()),
        (
            "llama",
            ModelConfig {
                tie_embeddings: false,
                attention_bias: AttentionBias::All,
                head_dim: Some(32),
                ..llama()
            },
        ),
        (
            "llama",
            with_rope(|rope| rope.scaling = Some(ScalingConfig::Llama3(Default::default()))),
        ),
        // Rows of queries are permuted, and the attention scale is folded into them.
        (
            "llama",
            ModelConfig {
                attention_scale: Some(0.2),
                attention_bias: AttentionBias::All,
                ..llama()
            },
        ),
        // For a program without such scaling, a different base.
        (
            "llama",
            with_rope(|rope| rope.scaling = Some(ScalingConfig::Ntk(Default::default()))),
        ),
        (
            "llama",
            with_rope(|rope| {
                rope.scaling = Some(ScalingConfig::Yarn(scaling::Yarn {
                    factor: 3.0,
                    attention_factor: Some(1.3),
                    ..Default::default()
                }));
            }),
        ),
        (
            "llama",
            with_rope(|rope| rope.scaling = Some(ScalingConfig::Linear(Default::default()))),
        ),
        (
            "llama",
            ModelConfig {
                moe: Some(MoeConfig {
                    n_expert: 4,
                    d_ff: Some(96),
                    ..Default::default()
                }),
                ..llama()
            },
        ),
        (
            "qwen2",
            ModelConfig {
                attention_bias: AttentionBias::Qkv,
                ..llama()
            },
        ),
        (
            "qwen3",
            ModelConfig {
                qk_norm: true,
                ..llama()
            },
        ),
        ("smollm3", smollm3(4)),
        ("phi3", with_rope(|rope| rope.fraction = 0.5)),
        ("granite", granite()),
        (
            "granite",
            ModelConfig {
                embedding_scale: Some(3.0),
                logit_scale: Some(1.0 / 6.0),
                tie_embeddings: false,
                attention_bias: AttentionBias::All,
                ..llama()
            },
        ),
        ("gemma", gemma()),
        ("starcoder2", starcoder2(true)),
        ("starcoder2", starcoder2(false)),
        ("gemma2", gemma2()),
        ("gemma3", gemma3()),
        ("olmo2", olmo2()),
        // A scale that is folded into the gains of queries.
        (
            "olmo2",
            ModelConfig {
                attention_scale: Some(0.2),
                ..olmo2()
            },
        ),
        ("olmo2", olmo3()),
        ("gpt2", gpt2(true)),
        ("gpt2", gpt2(false)),
        ("stablelm", stablelm(AttentionBias::None)),
        (
            "stablelm",
            ModelConfig {
                tie_embeddings: false,
                ..stablelm(AttentionBias::Qkv)
            },
        ),
        ("gptneox", neox(true)),
        (
            "gptneox",
            ModelConfig {
                tie_embeddings: false,
                attention_scale: Some(0.2),
                ..neox(false)
            },
        ),
        (
            "gptneox",
            ModelConfig {
                bias: false,
                ..neox(true)
            },
        ),
        ("lfm2", lfm2()),
        ("granitehybrid", granite_hybrid()),
        (
            "granitehybrid",
            ModelConfig {
                position: granite().position,
                attention_bias: AttentionBias::All,
                tie_embeddings: false,
                ..granite_hybrid()
            },
        ),
        // A scale that is folded into the gains of queries, and a head of its own.
        (
            "lfm2",
            ModelConfig {
                attention_blocks: None,
                attention_every: Some(2),
                attention_scale: Some(0.2),
                tie_embeddings: false,
                ..lfm2()
            },
        ),
        ("qwen35", qwen35()),
        (
            "qwen35",
            ModelConfig {
                attention_every: None,
                attention_blocks: Some(vec![0, 2]),
                attention_scale: Some(0.2),
                mixer: Some(MixerConfig::GatedDeltaNet(Default::default())),
                ..qwen35()
            },
        ),
    ];
    let computed = |config: &ModelConfig| config.faults().is_empty();
    let all = all.into_iter().chain(super::mixtures::mixtures());
    all.filter(|(_, c)| computed(c)).collect()
}
