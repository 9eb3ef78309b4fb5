//! Models that have no architecture of llama.cpp, and OLMo, whose architecture lacks some of its settings.

use super::*;

#[test]
fn models_unsupported_by_llama_cpp_are_rejected() {
    let refused = |config: &ModelConfig| {
        let result = write(&random(config), Kind::F32, "", &[], &mut Vec::new());
        result.unwrap_err().to_string()
    };
    let yarn = |beta_fast| {
        ScalingConfig::Yarn(crate::nn::position::scaling::Yarn {
            beta_fast,
            ..Default::default()
        })
    };
    let qwen = |scaling: Option<ScalingConfig>, fraction| ModelConfig {
        qk_norm: true,
        ..with_rope(move |rope| {
            rope.scaling = scaling.clone();
            rope.fraction = fraction;
        })
    };
    assert!(
        write(
            &random(&qwen(None, 1.0)),
            Kind::F32,
            "",
            &[],
            &mut Vec::new()
        )
        .is_ok()
    );
    let none = [
        // Another activation.
        ModelConfig {
            mlp: MlpConfig::Relu(Default::default()),
            ..gpt2(false)
        },
        // Partial RoPE, and frequency factors, where llama.cpp supports neither.
        qwen(None, 0.5),
        qwen(Some(ScalingConfig::Llama3(Default::default())), 1.0),
        with_rope(|rope| rope.scaling = Some(yarn(16.0))),
    ];
    for config in &none {
        assert!(refused(config).contains("no architecture"), "{config:?}");
    }
    let scaled = |config| ModelConfig {
        residual_scale: Some(0.22),
        ..config
    };
    let all = |config| ModelConfig {
        embedding_scale: Some(12.0),
        logit_scale: Some(0.125),
        ..scaled(config)
    };
    let untied = ModelConfig {
        tie_embeddings: false,
        ..gemma()
    };
    for (config, setting) in [
        (scaled(gpt2(true)), "has model.residual_scale:"),
        (scaled(gemma2()), "has model.residual_scale:"),
        (scaled(starcoder2(true)), "has model.residual_scale:"),
        (all(starcoder2(true)), "residual_scale and logit_scale:"),
        (untied, "has model.tie_embeddings: false:"),
    ] {
        let error = refused(&config);
        assert!(error.contains(setting), "{error}");
    }
    // GPT-Neo, by its biases and by its windows.
    for (config, named) in [
        (
            ModelConfig {
                attention_bias: AttentionBias::Output,
                ..gpt2(true)
            },
            "model.attention_bias: output",
        ),
        (
            ModelConfig {
                attention_bias: AttentionBias::Output,
                ..llama()
            },
            "model.attention_bias: output",
        ),
        (
            ModelConfig {
                sliding_window: Some(6),
                global_every: Some(2),
                global_first: true,
                ..gpt2(true)
            },
            "model.global_first",
        ),
    ] {
        let error = refused(&config);
        assert!(error.contains(named), "{error}");
    }
    // A parallel residual in other architectures.
    for config in [llama(), gpt2(true), gemma2()] {
        let parallel = ModelConfig {
            norm_placement: NormPlacement::Pre,
            parallel_residual: true,
            ..config
        };
        let error = refused(&parallel);
        assert!(error.contains("model.parallel_residual"), "{error}");
    }
    let model = random(&llama());
    let error = write(&model, Kind::Q3K, "", &[], &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("supported for reading only"));
    let (_dir, path, _) = saved(&model, Kind::Q8_0);
    let stored = GgufModel::open(&path).unwrap().quantized().unwrap();
    let error = write(&stored, Kind::Q8_0, "", &[], &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("--dequantize"), "{error}");
}

/// The keys and tensors that llama.cpp's src/models/olmo2.cpp reads.
#[test]
fn olmo_3_is_written_as_olmo2_with_a_window() {
    let (_dir, path, _) = saved(&random(&olmo3()), Kind::F32);
    let head = crate::gguf::Gguf::open(&path).unwrap();
    let windows = [true, true, true, false, true].to_vec();
    let key = |key: &str| head.metadata.get(&format!("olmo2.{key}")).cloned();
    assert_eq!(
        key("attention.sliding_window_pattern"),
        Some(crate::gguf::Value::Array(crate::gguf::Array::Bool(windows)))
    );
    assert_eq!(
        key("attention.sliding_window"),
        Some(crate::gguf::Value::Unsigned(6))
    );
    let dims = |name: &str| {
        let tensor = head.tensors.iter().find(|tensor| tensor.name == name);
        tensor.map(|tensor| tensor.dims.clone())
    };
    for (name, width) in [
        ("attn_q_norm", 64),
        ("attn_k_norm", 32),
        ("post_attention_norm", 64),
        ("post_ffw_norm", 64),
    ] {
        assert_eq!(
            dims(&format!("blk.4.{name}.weight")),
            Some(vec![width]),
            "{name}"
        );
    }
    assert!(dims("blk.0.attn_norm.weight").is_none() && dims("blk.0.ffn_norm.weight").is_none());
    let read = GgufModel::open(&path).unwrap().config().clone();
    let rope = read.position.rope().unwrap();
    assert_eq!((read.global_every, rope.local_theta), (Some(4), Some(1e4)));
    let (_dir, path, _) = saved(&random(&olmo2()), Kind::F32);
    let read = GgufModel::open(&path).unwrap().config().clone();
    assert_eq!((read.sliding_window, read.global_every), (None, None));
}

#[test]
fn a_setting_that_olmo2_does_not_have_is_named() {
    let with = |change: fn(&mut ModelConfig)| {
        let mut config = olmo3();
        change(&mut config);
        let result = write(&random(&config), Kind::F32, "", &[], &mut Vec::new());
        result.err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(with(|_| {}), "");
    type Change = fn(&mut ModelConfig);
    let cases: [(Change, &str); 8] = [
        (|c| c.tie_embeddings = true, "tie_embeddings: false"),
        (|c| c.attention_bias = AttentionBias::All, "attention_bias"),
        (|c| c.head_dim = Some(32), "head_dim"),
        (|c| c.global_every = Some(2), "global_every: 4"),
        (
            |c| c.qk_norm_over = QkNormOver::Head,
            "qk_norm_over: all_heads",
        ),
        (
            |c| c.norm_placement = NormPlacement::Pre,
            "norm_placement: reordered",
        ),
        (|c| c.mlp = MlpConfig::GeGlu(Default::default()), "swiglu"),
        (
            |c| {
                if let PositionConfig::Rope(rope) = &mut c.position {
                    rope.local_theta = Some(5e5);
                }
            },
            "local_theta",
        ),
    ];
    for (change, part) in cases {
        let error = with(change);
        assert!(
            error.contains("no architecture") && error.contains(part),
            "{part}: {error}"
        );
    }
    // Without scaling all blocks rotate alike, and within the window it is the same model.
    let every_second = ModelConfig {
        position: llama().position,
        global_every: Some(2),
        ..olmo3()
    };
    let (_dir, path, written) = saved(&random(&every_second), Kind::F32);
    assert!(
        written.notes[0].contains("from 32 to 6 tokens"),
        "{:?}",
        written.notes
    );
    assert_eq!(
        GgufModel::open(&path).unwrap().config().sliding_window,
        None
    );
}
