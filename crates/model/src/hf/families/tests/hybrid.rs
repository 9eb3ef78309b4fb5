//! LFM2, Qwen 3.5, Granite 4 and Bamba: blocks without attention.

use super::*;
use crate::nn::mixer::{GatedDeltaNetConfig, Mamba2Config, MixerConfig, ShortConvConfig};

fn short_conv(conv_len: usize) -> Option<MixerConfig> {
    Some(MixerConfig::ShortConv(ShortConvConfig {
        conv_len,
        bias: false,
    }))
}

fn delta_net() -> Option<MixerConfig> {
    Some(MixerConfig::GatedDeltaNet(GatedDeltaNetConfig::default()))
}

fn with(config: &Value, keys: Value) -> Result<ModelConfig, String> {
    let mut value = config.clone();
    let map = value.as_object_mut().unwrap();
    map.extend(keys.as_object().unwrap().clone());
    map.retain(|_, value| value != "absent");
    config::read(&value)
}

#[test]
fn blocks_without_attention_and_gates_of_attention_are_of_these_two_families_alone() {
    let of = |change: fn(&mut ModelConfig)| {
        let mut config = ModelConfig {
            qk_norm: true,
            ..llama()
        };
        change(&mut config);
        model_type(&config)
    };
    assert_eq!(of(|c| c.mixer = short_conv(3)), Some("lfm2"));
    let some = |c: &mut ModelConfig| {
        (c.mixer, c.attention_blocks) = (short_conv(4), Some(vec![0, 3]));
    };
    assert_eq!(of(some), Some("lfm2"));
    let every = |c: &mut ModelConfig| (c.mixer, c.attention_every) = (short_conv(3), Some(2));
    assert_eq!(of(every), Some("lfm2"));
    // All blocks have attention.
    let none = |c: &mut ModelConfig| (c.mixer, c.attention_every) = (short_conv(3), Some(1));
    assert_eq!(of(none), Some("qwen3"));
    let plain = |c: &mut ModelConfig| (c.mixer, c.qk_norm) = (short_conv(3), false);
    assert_eq!(of(plain), None);
    assert_eq!(of(|c| c.mixer = delta_net()), None, "no gates");
    assert_eq!(of(|c| c.attention_gate = true), None, "gains as they are");
    let qwen = |c: &mut ModelConfig| {
        (c.mixer, c.attention_every, c.attention_gate) = (delta_net(), Some(4), true);
        if let NormConfig::RmsNorm(norm) = &mut c.norm {
            norm.unit_offset = true;
        }
    };
    assert_eq!(of(qwen), Some("qwen3_5_text"));
    for name in [
        "gpt2", "gemma2", "mistral", "qwen2", "phi3", "olmo2", "granite", "gpt_neox",
    ] {
        for change in [
            (|c: &mut ModelConfig| c.mixer = short_conv(3)) as fn(&mut ModelConfig),
            |c| (c.mixer, c.attention_every) = (delta_net(), Some(2)),
            |c| c.attention_gate = true,
        ] {
            let mut config = config::read(&oracle(name)).unwrap();
            change(&mut config);
            assert_eq!(model_type(&config), None, "{name}");
        }
    }
}

/// The keys of LFM2-350M, and of LFM2.5 as transformers 5 writes them.
#[test]
fn lfm2_is_read_from_the_keys_of_its_files() {
    let first = json!({"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "block_auto_adjust_ff_dim": true,
        "block_dim": 1024, "block_ff_dim": 6656, "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0,
        "block_multiple_of": 256, "block_norm_eps": 1e-5, "block_out_init_scale": 1.0, "block_use_swiglu": true,
        "block_use_xavier_init": true, "bos_token_id": 1, "conv_L_cache": 3, "conv_bias": false, "conv_dim": 1024,
        "conv_dim_out": 1024, "conv_use_xavier_init": true, "eos_token_id": 7, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "hidden_size": 1024, "initializer_range": 0.02, "max_position_embeddings": 128000, "norm_eps": 1e-5,
        "num_attention_heads": 16, "num_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pad_token_id": 0, "rope_theta": 1e6, "theta": 1e6, "use_cache": true, "use_pos_enc": true,
        "vocab_size": 65536});
    let lfm = config::read(&first).unwrap();
    assert_eq!(lfm.d_ff, Some(4608));
    assert_eq!(lfm.attention_blocks, Some(vec![2, 5, 8, 10, 12, 14]));
    assert_eq!(
        (lfm.mixer.clone(), lfm.attention_every),
        (short_conv(3), None)
    );
    assert!(lfm.tie_embeddings && lfm.qk_norm && lfm.norm.eps() == 1e-5);
    assert_eq!((lfm.head_width(), lfm.family.as_deref()), (64, None));
    let word = |layer: &usize| match [2, 5, 8, 10, 12, 14].contains(layer) {
        true => "full_attention",
        false => "conv",
    };
    let types: Vec<&str> = (0..16).map(|layer| word(&layer)).collect();
    let second = json!({"full_attn_idxs": null, "layer_types": types, "block_ff_dim": "absent", "intermediate_size": 6656,
        "rope_theta": "absent", "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "tie_word_embeddings": true});
    assert_eq!(with(&first, second), Ok(lfm.clone()));
    // What the class does where keys are absent.
    for (keys, d_ff) in [
        (json!({"block_auto_adjust_ff_dim": false}), 6656),
        (json!({"block_ffn_dim_multiplier": 1.3}), 5888),
        (json!({"block_multiple_of": 100}), 4500),
        (json!({"intermediate_size": 999}), 4608),
    ] {
        let read = with(&first, keys.clone()).unwrap();
        assert_eq!(read.d_ff, Some(d_ff), "{keys}");
    }
    let untied = json!({"tie_embedding": false, "tie_word_embeddings": true});
    assert!(!with(&first, untied).unwrap().tie_embeddings);
    let all = with(&first, json!({"full_attn_idxs": "absent"})).unwrap();
    assert_eq!((all.mixer, all.family.as_deref()), (None, Some("lfm2")));
    let heads = with(&first, json!({"num_key_value_heads": "absent"})).unwrap();
    assert_eq!(heads.kv_heads(), 8);
    for (keys, part) in [
        (json!({"layer_types": ["conv"]}), "1 entries for 16"),
        (
            json!({"layer_types": vec!["sliding_attention"; 16]}),
            "sliding_attention",
        ),
        (json!({"conv_dim": 512}), "conv_dim"),
        (json!({"use_pos_enc": false}), "use_pos_enc"),
        (json!({"theta": 1e4}), "theta"),
        (json!({"block_use_swiglu": false}), "block_use_swiglu"),
        (json!({"block_ff_dim": "absent"}), "block_ff_dim"),
        (json!({"block_ffn_dim_multiplier": -1.0}), "multiplier"),
        (json!({"num_experts": 4}), "num_experts"),
        (json!({"model_type": "lfm2_vl"}), "only the text models"),
    ] {
        let error = with(&first, keys.clone()).unwrap_err();
        assert!(error.contains(part), "{keys}: {error}");
    }
}

/// Qwen3.5-0.8B, as a part of a model with vision.
fn qwen() -> Value {
    let types: Vec<&str> = (1..=24)
        .map(|block| match block % 4 {
            0 => "full_attention",
            _ => "linear_attention",
        })
        .collect();
    let text = json!({"attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true, "dtype": "bfloat16",
        "eos_token_id": 248_044, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 1024,
        "initializer_range": 0.02, "intermediate_size": 3584, "layer_types": types, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
        "linear_value_head_dim": 128, "max_position_embeddings": 262_144, "mamba_ssm_dtype": "float32",
        "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false,
        "num_attention_heads": 8, "num_hidden_layers": 24, "num_key_value_heads": 2, "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-6, "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
        "partial_rotary_factor": 0.25, "rope_theta": 1e7, "rope_type": "default"}, "tie_word_embeddings": true,
        "use_cache": true, "vocab_size": 248_320});
    json!({"architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": 248_056, "model_type": "qwen3_5",
        "text_config": text, "tie_word_embeddings": true, "transformers_version": "4.57.0.dev0",
        "video_token_id": 248_057, "vision_config": {"depth": 12, "model_type": "qwen3_5"},
        "vision_end_token_id": 248_054, "vision_start_token_id": 248_053})
}

#[test]
fn the_text_model_of_qwen_3_5_is_read_without_its_vision_and_written_alone() {
    let whole = qwen();
    let read = config::read(&whole).unwrap();
    assert_eq!(
        (read.attention_every, read.attention_blocks.clone()),
        (Some(4), None)
    );
    assert!(read.attention_gate && read.tie_embeddings && read.qk_norm);
    let rope = read.position.rope().unwrap();
    assert_eq!((rope.fraction, rope.theta), (0.25, 1e7));
    let Some(MixerConfig::GatedDeltaNet(net)) = &read.mixer else {
        panic!("{read:?}");
    };
    assert_eq!((net.keys(), net.values(), net.conv_len), (2048, 2048, 4));
    let note = left_out(&whole, |_| false).unwrap();
    assert!(
        note.contains("model.visual") && note.contains("mtp"),
        "{note}"
    );
    // The text model by itself is the same, and nothing of it is left out.
    let mut text = whole["text_config"].clone();
    text["architectures"] = json!(["Qwen3_5ForCausalLM"]);
    text["mtp_num_hidden_layers"] = json!(0);
    assert_eq!(config::read(&text), Ok(read.clone()));
    assert_eq!(left_out(&text, |_| false), None);
    // Files may have more than the text model that their config.json describes.
    let note = left_out(&text, |beginning| beginning == "mtp.").unwrap();
    assert!(note.contains("mtp") && !note.contains("visual"), "{note}");
    assert_eq!(left_out(&json!({"model_type": "qwen3"}), |_| true), None);
    let (shape, ids) = (read.shape(1), TokenIds::default());
    let ours = config::write(&read, &shape, &ids, Dtype::F32, Naming::Family);
    assert_eq!(ours["model_type"], "qwen3_5_text");
    assert_eq!(
        ours["rope_parameters"]["mrope_section"],
        json!([11, 11, 10])
    );
    assert_eq!(ours["layer_types"], text["layer_types"]);
    assert_eq!(config::read(&ours), Ok(read));
}

#[test]
fn keys_of_qwen_3_5_that_are_absent_are_those_of_the_class_and_others_are_refused() {
    let text = qwen()["text_config"].clone();
    let read = config::read(&text).unwrap();
    let absent = json!({"layer_types": "absent", "full_attention_interval": "absent", "head_dim": "absent",
        "linear_conv_kernel_dim": "absent", "linear_key_head_dim": "absent", "linear_num_key_heads": "absent",
        "linear_value_head_dim": "absent", "partial_rotary_factor": "absent", "hidden_act": "absent",
        "rope_parameters": {"rope_theta": 1e7}});
    assert_eq!(with(&text, absent), Ok(read));
    let more = with(&text, json!({"linear_num_value_heads": "absent"})).unwrap();
    let Some(MixerConfig::GatedDeltaNet(net)) = &more.mixer else {
        panic!("{more:?}");
    };
    assert_eq!(net.n_value_head, 32);
    let biased = with(&text, json!({"attention_bias": true})).unwrap();
    assert_eq!(biased.attention_bias, AttentionBias::All);
    assert_eq!(model_type(&biased), Some("qwen3_5_text"));
    for (keys, part) in [
        (json!({"attn_output_gate": false}), "attn_output_gate"),
        (json!({"output_gate_type": "sigmoid"}), "output_gate_type"),
        (json!({"hidden_act": "gelu"}), "only silu"),
        (json!({"num_experts": 8}), "num_experts"),
        (json!({"linear_num_value_heads": 24}), "n_value_head 24"),
        (
            json!({"layer_types": vec!["sliding_attention"; 24]}),
            "linear_attention",
        ),
        (json!({"model_type": "qwen3_5"}), "which is missing"),
        (json!({"model_type": "qwen3_5_moe"}), "which is missing"),
    ] {
        let error = with(&text, keys.clone()).unwrap_err();
        assert!(error.contains(part), "{keys}: {error}");
    }
    let mut whole = qwen();
    whole["tie_word_embeddings"] = json!(false);
    let error = config::read(&whole).unwrap_err();
    assert!(
        error.contains("false beside true in text_config"),
        "{error}"
    );
    whole["text_config"]
        .as_object_mut()
        .unwrap()
        .remove("tie_word_embeddings");
    assert!(!config::read(&whole).unwrap().tie_embeddings);
    whole["architectures"] = json!(["Qwen3_5ForSequenceClassification"]);
    let error = config::read(&whole).unwrap_err();
    assert!(
        error.contains("Qwen3_5ForSequenceClassification"),
        "{error}"
    );
    let mut quantized = qwen();
    quantized["quantization_config"] = json!({"quant_method": "gptq"});
    assert!(
        config::read(&quantized)
            .unwrap_err()
            .contains("quantization")
    );
}

fn mamba2() -> Option<MixerConfig> {
    Some(MixerConfig::Mamba2(Mamba2Config {
        n_head: 48,
        head_dim: 64,
        state_dim: 128,
        ..Mamba2Config::default()
    }))
}

/// The keys of granite-4.0-h-tiny, and what differs in models of the same class.
#[test]
fn granite_4_is_read_from_the_keys_of_its_files() {
    let word = |layer: usize| match layer % 10 {
        5 => "attention",
        _ => "mamba",
    };
    let types: Vec<&str> = (0..40).map(word).collect();
    let tiny = json!({"architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": false,  "attention_multiplier": 0.0078125, "embedding_multiplier": 12,  "hidden_act": "silu", "hidden_size": 1536, "init_method": "mup", "intermediate_size": 512,
        "layer_types": types, "logits_scaling": 6, "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4,
        "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 48,
        "mamba_proj_bias": false, "max_position_embeddings": 131072, "model_type": "granitemoehybrid",
        "normalization_function": "rmsnorm", "num_attention_heads": 12, "num_experts_per_tok": 6, "num_hidden_layers": 40,
        "num_key_value_heads": 4, "num_local_experts": 64,  "position_embedding_type": "nope", "residual_multiplier": 0.22, "rms_norm_eps": 1e-5, "rope_scaling": null,
        "rope_theta": 10000, "router_aux_loss_coef": 0.0, "shared_intermediate_size": 1024, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "vocab_size": 100352});
    let read = config::read(&tiny).unwrap();
    assert_eq!((read.mixer.clone(), read.family.clone()), (mamba2(), None));
    assert_eq!(read.attention_blocks, Some(vec![5, 15, 25, 35]));
    assert!(matches!(read.position, PositionConfig::None(_)));
    let moe = read.moe.clone().unwrap();
    assert_eq!((moe.n_expert, moe.top_k, moe.d_ff), (64, 6, Some(512)));
    assert_eq!((moe.shared_d_ff, moe.shared_gate), (Some(1024), false));
    assert_eq!(read.attention_scale, Some(0.007_812_5));
    // The words of transformers 5, and no width of heads.
    let word = |layer: usize| match layer % 10 {
        5 => "full_attention",
        _ => "linear_attention",
    };
    let types: Vec<&str> = (0..40).map(word).collect();
    let infinite = json!([0.0, {"__float__": "Infinity"}]);
    let again = json!({"layer_types": types, "mamba_d_head": "auto", "time_step_limit": infinite});
    assert_eq!(with(&tiny, again), Ok(read.clone()));
    // Dense ones, and those without Mamba 2, which rotate.
    let dense =
        json!({"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 4096});
    let dense = with(&tiny, dense).unwrap();
    assert_eq!((dense.d_ff, dense.moe), (Some(4096), None));
    let alone = json!({"layer_types": vec!["attention"; 40], "position_embedding_type": "rope", "num_local_experts": 0,
        "shared_intermediate_size": 2048});
    let alone = with(&tiny, alone).unwrap();
    assert_eq!(alone.family.as_deref(), Some("granitemoehybrid"));
    assert!(alone.mixer.is_none() && alone.position.rope().is_some());
    let limits = with(&tiny, json!({"time_step_limit": [0.001, 0.1]})).unwrap();
    let Some(MixerConfig::Mamba2(net)) = limits.mixer else {
        panic!("no mixer")
    };
    assert_eq!((net.dt_min, net.dt_max), (0.001, Some(0.1)));
    for (keys, part) in [
        (json!({"layer_types": vec!["conv"; 40]}), "conv"),
        (json!({"layer_types": ["mamba"]}), "1 entries for 40"),
        (json!({"mamba_expand": 3}), "are not mamba_expand"),
        (json!({"time_step_limit": [-1.0, 1.0]}), "two numbers"),
    ] {
        let error = with(&tiny, keys.clone()).unwrap_err();
        assert!(error.contains(part), "{keys}: {error}");
    }
}

#[test]
fn mamba_2_is_of_three_families_with_the_widths_that_they_have() {
    let of = |change: fn(&mut ModelConfig)| {
        let mut config = ModelConfig {
            d_model: 128,
            mixer: Some(MixerConfig::Mamba2(Default::default())),
            attention_every: Some(2),
            ..llama()
        };
        change(&mut config);
        model_type(&config)
    };
    assert_eq!(of(|_| {}), Some("granitemoehybrid"));
    let nope = |c: &mut ModelConfig| c.position = PositionConfig::None(Default::default());
    assert_eq!(of(nope), Some("granitemoehybrid"));
    let half = |c: &mut ModelConfig| {
        c.position = PositionConfig::Rope(RopeConfig {
            fraction: 0.5,
            ..RopeConfig::default()
        });
    };
    assert_eq!(of(half), Some("bamba"));
    assert_eq!(of(|c| c.d_model = 96), None, "two and two thirds as wide");
    assert_eq!(of(|c| c.qk_norm = true), None);
    let shared = |c: &mut ModelConfig| {
        (c.mixer, c.attention_every) = (None, None);
        c.moe = Some(crate::nn::MoeConfig {
            shared_d_ff: Some(40),
            ..Default::default()
        });
    };
    assert_eq!(of(shared), Some("granitemoeshared"));
}
