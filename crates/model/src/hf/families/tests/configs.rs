//! Keys of `config.json` files: read, skipped, refused.

use super::*;

/// Pythia's file is of transformers 4; a quarter of each head is rotated where no key says another share.
#[test]
fn pythia_has_a_parallel_residual_and_rotates_a_quarter_of_each_head() {
    let theirs = config_of("fixtures/configs/pythia-160m.json");
    let pythia = config::read(&theirs).unwrap();
    assert_eq!(model_type(&pythia), Some("gpt_neox"));
    assert!(pythia.parallel_residual && pythia.bias && !pythia.tie_embeddings);
    let rope = pythia.position.rope().unwrap();
    assert_eq!((rope.theta, rope.fraction), (10_000.0, 0.25));
    let mut bare = theirs;
    for key in ["rotary_pct", "rotary_emb_base", "use_parallel_residual"] {
        bare.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(config::read(&bare), Ok(pythia.clone()));
    // The keys of both versions.
    let (shape, ids) = (pythia.shape(1), TokenIds::default());
    let ours = config::write(&pythia, &shape, &ids, Dtype::F32, Naming::Family);
    assert_eq!(ours["rotary_pct"], 0.25);
    let table =
        json!({"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25});
    assert_eq!(ours["rope_parameters"], table);
    assert!(ours["rope_theta"].is_null() && ours["partial_rotary_factor"].is_null());
    // The residual is part of the model.
    let sequential = ModelConfig {
        parallel_residual: false,
        ..pythia
    };
    assert_eq!(model_type(&sequential), Some("gpt_neox"));
    let parallel = ModelConfig {
        parallel_residual: true,
        ..llama()
    };
    assert_eq!(model_type(&parallel), None);
    let gpt2 = ModelConfig {
        parallel_residual: true,
        ..ModelConfig::default()
    };
    assert_eq!(model_type(&gpt2), None);
}

#[test]
fn gpt_neo_has_windows_in_every_other_block_from_the_second_on() {
    let theirs = oracle("gpt_neo");
    let read = config::read(&theirs).unwrap();
    let windows: Vec<_> = (0..4).map(|layer| read.window(layer)).collect();
    assert_eq!(windows, [None, Some(5), None, Some(5)]);
    assert_eq!(model_type(&read), Some("gpt_neo"));
    // As GPT-2's in other respects, but with the usual scale.
    let scaled = ModelConfig {
        attention_scale: None,
        ..read.clone()
    };
    assert_eq!(model_type(&scaled), None);
    // The file names no kinds: 24 blocks in turns.
    let mut large = theirs;
    large["num_layers"] = json!(24);
    for key in ["attention_types", "attention_layers", "window_size"] {
        large.as_object_mut().unwrap().remove(key);
    }
    let large = config::read(&large).unwrap();
    assert_eq!(
        (large.window(0), large.window(23)),
        (None, Some(256)),
        "{large:?}"
    );
}

/// Its config says nothing of the biases of its norms, and a quarter of each head turns where no key says otherwise.
#[test]
fn stablelm_has_biases_in_its_norms_alone() {
    let mut theirs = oracle("stablelm");
    let read = config::read(&theirs).unwrap();
    assert!(!read.bias && read.norm.bias() == Some(true));
    assert_eq!(model_type(&read), Some("stablelm"));
    let unbiased = ModelConfig {
        norm: NormConfig::LayerNorm(Default::default()),
        ..read.clone()
    };
    assert_eq!(model_type(&unbiased), None);
    let whole = ModelConfig {
        position: PositionConfig::Rope(RopeConfig::default()),
        ..read.clone()
    };
    let (shape, ids) = (whole.shape(1), TokenIds::default());
    let ours = config::write(&whole, &shape, &ids, Dtype::F32, Naming::Family);
    assert_eq!(ours["model_type"], "stablelm");
    assert_eq!(ours["rope_parameters"]["partial_rotary_factor"], 1.0);
    assert_eq!(ours["partial_rotary_factor"], 1.0);
    theirs.as_object_mut().unwrap().remove("rope_parameters");
    assert_eq!(config::read(&theirs), Ok(read));
}

/// The files of the hub, which have keys of the programs that trained the models.
#[test]
fn configs_of_the_hub_are_read() {
    let smol = config::read(&config_of("fixtures/configs/SmolLM2-135M.json")).unwrap();
    assert_eq!((smol.n_layer, smol.kv_heads()), (30, 3));
    assert_eq!(smol.position.rope().unwrap().theta, 1e5);
    let phi = config::read(&config_of("fixtures/configs/Phi-4-mini-instruct.json")).unwrap();
    let rope = phi.position.rope().unwrap();
    assert_eq!(rope.fraction, 0.75);
    assert!(matches!(&rope.scaling, Some(ScalingConfig::Longrope(_))));
    assert_eq!(model_type(&phi), Some("phi3"));
}

#[test]
fn keys_that_transformers_ignores_are_skipped() {
    let theirs = json!({"chunk_size": 262_144});
    for (family, keys) in [
        // gpt2-medium; gpt2-xl.
        (
            "gpt2",
            json!({"n_special": 0, "predict_special_tokens": true, "output_past": true}),
        ),
        // Falcon 3; the first Llama.
        ("llama", json!({"activation": "swiglu"})),
        ("llama", json!({"max_sequence_length": 2048})),
        ("llama", json!({"original_max_position_embeddings": 8192})),
        // Gemma 2B and 1.1; StarCoder2 3B.
        ("gemma", json!({"hidden_act": "gelu"})),
        ("gemma", json!({"hidden_activation": null})),
        ("gemma", json!({"hidden_activation": "gelu_pytorch_tanh"})),
        (
            "starcoder2",
            json!({"mlp_type": "default", "norm_type": "layer_norm", "layer_norm_epsilon": 1e-5, "residual_dropout": 0.1, "embedding_dropout": 0.1}),
        ),
        // Gemma 2 9B; Qwen2.5 1M; the defaults of `generate` as transformers 4 wrote them.
        ("gemma2", json!({"sliding_window_size": 5})),
        ("qwen2", json!({"dual_chunk_attention_config": theirs})),
        (
            "mistral",
            json!({"num_beams": 1, "length_penalty": 1.0, "typical_p": 1.0, "num_return_sequences": 1}),
        ),
    ] {
        let mut value = oracle(family);
        let plain = config::read(&value).unwrap();
        let map = value.as_object_mut().unwrap();
        map.extend(keys.as_object().unwrap().clone());
        assert_eq!(config::read(&value), Ok(plain), "{family} {keys}");
    }
    let yarn = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "finetuned": true});
    let mut value = oracle("llama_yarn");
    value.as_object_mut().unwrap().remove("rope_parameters");
    value["rope_scaling"] = yarn;
    assert!(config::read(&value).is_ok());
}

#[test]
fn keys_that_change_the_computation_are_never_skipped() {
    for (family, key, value, part) in [
        ("llama", "hidden_act", json!("relu"), "relu"),
        ("llama", "mlp_bias", json!(true), "mlp_bias"),
        ("llama", "rope_interleaved", json!(true), "rope_interleaved"),
        ("llama", "rms_norm_eps", json!("small"), "rms_norm_eps"),
        (
            "gpt2",
            "scale_attn_weights",
            json!(false),
            "scale_attn_weights",
        ),
        (
            "gpt2",
            "scale_attn_by_inverse_layer_idx",
            json!(true),
            "scale_attn_by_inverse_layer_idx",
        ),
        (
            "gpt2",
            "add_cross_attention",
            json!(true),
            "add_cross_attention",
        ),
        (
            "gemma2",
            "use_bidirectional_attention",
            json!(true),
            "use_bidirectional_attention",
        ),
        ("gemma2", "hidden_activation", json!("silu"), "silu"),
        (
            "qwen3_moe",
            "mlp_only_layers",
            json!([0, 1]),
            "no block has experts",
        ),
        (
            "qwen2_moe",
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            "use_sliding_window is false",
        ),
        ("qwen3_5_moe", "decoder_sparse_step", json!(2), "decoder"),
        ("olmoe", "clip_qkv", json!(8.0), "clip_qkv"),
        ("granitemoe", "logits_scaling", json!(0.0), "not above 0"),
        ("lfm2_moe", "num_dense_layers", json!(9), "no block has"),
        (
            "granite_hybrid",
            "mamba_d_head",
            json!(9),
            "are not mamba_expand",
        ),
        (
            "granite_hybrid",
            "mamba_n_groups",
            json!(3),
            "n_group 1 or 2",
        ),
        (
            "granite_hybrid",
            "position_embedding_type",
            json!("alibi"),
            "rope and nope",
        ),
        (
            "granite_hybrid",
            "normalization_function",
            json!("layernorm"),
            "rmsnorm",
        ),
        (
            "granite_hybrid_dense",
            "time_step_limit",
            json!([0.1]),
            "two numbers",
        ),
        (
            "granite_hybrid_dense",
            "shared_intermediate_size",
            json!(0),
            "no feed-forward block",
        ),
        (
            "granite_shared",
            "num_local_experts",
            json!(0),
            "experts in every",
        ),
        (
            "bamba",
            "rope_parameters",
            json!({"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}),
            "rotates 0.5",
        ),
        (
            "qwen2",
            "layer_types",
            json!(["full_attention", "linear_attention"]),
            "linear_attention",
        ),
        (
            "phi3",
            "rope_scaling",
            json!({"type": "longrope", "factor": 2.0}),
            "rope",
        ),
        (
            "mistral",
            "num_attention_heads",
            json!(null),
            "num_attention_heads is missing",
        ),
        ("phi3", "full_attn_mod", json!(2), "full_attn_mod"),
        (
            "gemma",
            "hidden_activation",
            json!("gelu"),
            "only gelu_pytorch_tanh",
        ),
        (
            "gemma",
            "hidden_act",
            json!("relu"),
            "only gelu_pytorch_tanh",
        ),
        (
            "granite",
            "residual_multiplier",
            json!(0.0),
            "residual_multiplier: 0",
        ),
        ("granite", "logits_scaling", json!(-8), "logits_scaling: -8"),
        ("granite", "hidden_act", json!("gelu"), "only silu"),
        ("starcoder2", "hidden_act", json!("tanh"), "tanh"),
        ("starcoder2", "norm_type", json!("rms_norm"), "norm_type"),
        ("starcoder2", "mlp_type", json!("gated"), "mlp_type"),
        (
            "gpt_neo",
            "attention_types",
            json!([[["global", "global", "local", "local"], 1]]),
            "every n-th block",
        ),
        (
            "gpt_neo",
            "attention_types",
            json!([[["global", "local"], 3]]),
            "6 layers",
        ),
        ("gpt_neo", "attention_types", json!([[["all"], 4]]), "kind"),
        (
            "gpt_neo",
            "attention_layers",
            json!(["local", "local", "local", "local"]),
            "attention_layers",
        ),
        ("stablelm", "qk_layernorm", json!(true), "qk_layernorm"),
        (
            "stablelm",
            "use_parallel_residual",
            json!(true),
            "use_parallel_residual",
        ),
        ("stablelm", "head_dim", json!(6), "head_dim 6"),
        ("gpt_neox", "attention_bias", json!(false), "attention_bias"),
        ("gpt_neox", "hidden_act", json!("laplace"), "laplace"),
        ("gpt_neox", "rope_theta", json!(5e5), "rotary_emb_base"),
        ("gpt_neox", "num_attention_heads", json!(5), "multiple"),
        ("phi3", "interpolate_factor", json!(4), "interpolate_factor"),
        ("llama", "activation", json!("gelu"), "swiglu"),
        (
            "gemma2",
            "sliding_window_size",
            json!(7),
            "sliding_window_size",
        ),
        ("mistral", "head_dim", json!(5), "odd"),
        ("olmo2", "hidden_act", json!("gelu"), "gelu"),
        ("olmo2", "clip_qkv", json!(8.0), "clip_qkv"),
        ("olmo2", "sliding_window", json!(8), "sliding_window"),
        (
            "olmo3",
            "rope_parameters",
            json!({"rope_type": "default", "rope_theta": 5e5}),
            "rope_parameters.rope_t",
        ),
        (
            "olmo3",
            "rope_parameters",
            json!({"sliding_attention": {"rope_type": "linear", "factor": 2.0}}),
            "without a sliding window",
        ),
        ("mixtral", "num_experts_per_tok", json!(9), "4"),
    ] {
        let mut value_of = oracle(family);
        if key == "rope_scaling" {
            value_of.as_object_mut().unwrap().remove("rope_parameters");
        }
        value_of[key] = value;
        let error = config::read(&value_of).unwrap_err();
        assert!(error.contains(part), "{family} {key}: {error}");
    }
}
