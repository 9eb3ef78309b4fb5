//! Published models with experts, by the keys of their files: parameters, and what is written for them.

use super::*;
use crate::nn::{Balancing, MoeConfig, Scoring, param_infos};

/// Qwen1.5-MoE-A2.7B.
fn qwen1_5_moe() -> Value {
    json!({"architectures": ["Qwen2MoeForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151_643, "decoder_sparse_step": 1,
        "eos_token_id": 151_643, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
        "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21, "model_type": "qwen2_moe",
        "moe_intermediate_size": 1408, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60,
        "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "output_router_logits": false,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632,
        "sliding_window": 32_768, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.39.0.dev0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151_936})
}

/// OLMoE-1B-7B-0924.
fn olmoe() -> Value {
    json!({"architectures": ["OlmoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "clip_qkv": null,
        "eos_token_id": 50_279, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
        "intermediate_size": 1024, "max_position_embeddings": 4096, "model_type": "olmoe", "norm_topk_prob": false,
        "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
        "num_key_value_heads": 16, "output_router_logits": false, "pad_token_id": 1, "rms_norm_eps": 1e-5,
        "rope_scaling": null, "rope_theta": 10_000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 50_304})
}

/// Granite-3.1-1b-a400m.
fn granite() -> Value {
    json!({"architectures": ["GraniteMoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.1,
        "attention_multiplier": 0.015_625, "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0,
        "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 512,
        "logits_scaling": 6.0, "max_position_embeddings": 131_072, "model_type": "granitemoe", "num_attention_heads": 16,
        "num_experts_per_tok": 8, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
        "output_router_logits": false, "pad_token_id": 0, "residual_multiplier": 0.22, "rms_norm_eps": 1e-6,
        "rope_scaling": null, "rope_theta": 1_500_000.0, "router_aux_loss_coef": 0.0, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.47.0", "use_cache": true, "vocab_size": 49_155})
}

/// LFM2-8B-A1B.
fn lfm2() -> Value {
    let types: Vec<&str> = (0..24)
        .map(|layer| match [2, 6, 10, 14, 18, 21].contains(&layer) {
            true => "full_attention",
            false => "conv",
        })
        .collect();
    json!({"architectures": ["Lfm2MoeForCausalLM"], "bos_token_id": 1, "conv_L_cache": 3, "conv_bias": false,
        "dtype": "bfloat16", "eos_token_id": 7, "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 7168,
        "layer_types": types, "max_position_embeddings": 128_000, "model_type": "lfm2_moe", "moe_intermediate_size": 1792,
        "norm_eps": 1e-5, "norm_topk_prob": true, "num_attention_heads": 32, "num_dense_layers": 2, "num_experts": 32,
        "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8, "pad_token_id": 0,
        "rope_theta": 1_000_000.0, "routed_scaling_factor": 1.0, "tie_embedding": true,
        "transformers_version": "4.56.1", "use_cache": true, "use_expert_bias": true, "vocab_size": 65_536})
}

/// Qwen3-Next-80B-A3B, with keys of transformers 4.
fn next() -> Value {
    json!({"architectures": ["Qwen3NextForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151_643, "decoder_sparse_step": 1, "eos_token_id": 151_645, "full_attention_interval": 4,
        "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5120,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_value_head_dim": 128, "max_position_embeddings": 262_144, "mlp_only_layers": [],
        "model_type": "qwen3_next", "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16,
        "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
        "output_router_logits": false, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-6, "rope_scaling": null,
        "rope_theta": 10_000_000, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.57.0.dev0", "use_cache": true,
        "use_sliding_window": false, "vocab_size": 151_936})
}

/// DeepSeek-V2-Lite.
fn deepseek_v2_lite() -> Value {
    let text = r#"{"architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "aux_loss_alpha": 0.001,
        "bos_token_id": 100000, "eos_token_id": 100001, "ep_size": 1, "first_k_dense_replace": 1, "hidden_act": "silu",
        "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 10944, "kv_lora_rank": 512,
        "max_position_embeddings": 163840, "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1,
        "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16,
        "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "pretraining_tp": 1,
        "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-6,
        "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 4096, "type": "yarn"},
        "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
        "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "torch_dtype": "bfloat16",
        "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 102400}"#;
    serde_json::from_str(text).unwrap()
}

/// Moonlight-16B-A3B.
fn moonlight() -> Value {
    let text = r#"{"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "aux_loss_alpha": 0.001, "bos_token_id": 163584, "eos_token_id": 163585, "ep_size": 1, "first_k_dense_replace": 1,
        "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 11264,
        "kv_lora_rank": 512, "max_position_embeddings": 8192, "model_type": "deepseek_v3", "moe_intermediate_size": 1408,
        "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": true,
        "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
        "num_nextn_predict_layers": 0, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "routed_scaling_factor": 2.446,
        "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1,
        "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "transformers_version": "4.48.3", "use_cache": true,
        "v_head_dim": 128, "vocab_size": 163840}"#;
    serde_json::from_str(text).unwrap()
}

/// GLM-4.7-Flash.
fn glm() -> Value {
    let text = r#"{"architectures": ["Glm4MoeLiteForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "dtype": "bfloat16",
        "eos_token_id": [154820, 154827, 154829], "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
        "intermediate_size": 10240, "kv_lora_rank": 512, "max_position_embeddings": 202752, "model_type": "glm4_moe_lite",
        "moe_intermediate_size": 1536, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 1, "norm_topk_prob": true,
        "num_attention_heads": 20, "num_experts_per_tok": 4, "num_hidden_layers": 47, "num_key_value_heads": 20,
        "num_nextn_predict_layers": 1, "pad_token_id": 154820, "partial_rotary_factor": 1.0, "q_lora_rank": 768,
        "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-5, "rope_scaling": null,
        "rope_theta": 1000000, "routed_scaling_factor": 1.8, "tie_word_embeddings": false, "topk_group": 1,
        "topk_method": "noaux_tc", "transformers_version": "5.0.0rc0", "v_head_dim": 256, "vocab_size": 154880}"#;
    serde_json::from_str(text).unwrap()
}

/// gpt-oss-20b.
fn gpt_oss() -> Value {
    let types: Vec<&str> = ["sliding_attention", "full_attention"].repeat(12);
    json!({"architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200_002,
        "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
        "initializer_range": 0.02, "intermediate_size": 2880, "layer_types": types, "max_position_embeddings": 131_072,
        "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
        "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false, "pad_token_id": 199_999,
        "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"], "quant_method": "mxfp4"},
        "rms_norm_eps": 1e-5, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
        "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta": 150_000,
        "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
        "transformers_version": "4.55.0.dev0", "use_cache": true, "vocab_size": 201_088})
}

fn n_params(config: &ModelConfig) -> usize {
    param_infos(config, 1).iter().map(|info| info.len).sum()
}

#[test]
fn published_mixtures_have_their_parameters_and_are_written_as_they_were_read() {
    for (theirs, params) in [
        (qwen1_5_moe(), 14_315_784_192),
        (olmoe(), 6_919_161_856),
        (granite(), 1_334_628_352),
        // With its biases for the choice, which are no parameters there.
        (lfm2(), 8_339_929_856 + 22 * 32),
        (next(), 79_674_391_296),
        (deepseek_v2_lite(), 15_706_484_224),
        (moonlight(), 15_960_108_544 + 26 * 64),
        (glm(), 29_943_390_976 + 46 * 64),
        (gpt_oss(), 20_914_757_184),
    ] {
        let name = theirs["model_type"].clone();
        let read = config::read(&theirs).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(n_params(&read), params, "{name}");
        assert_eq!(model_type(&read), name.as_str(), "{name}");
        let ours = config::write(
            &read,
            &read.shape(1),
            &TokenIds::default(),
            Dtype::F32,
            Naming::Family,
        );
        assert_eq!(config::read(&ours), Ok(read), "{name}");
        for key in theirs.as_object().unwrap().keys() {
            let is_same = [
                "num_experts",
                "num_local_experts",
                "num_experts_per_tok",
                "moe_intermediate_size",
                "num_dense_layers",
                "shared_expert_intermediate_size",
                "norm_topk_prob",
                "use_expert_bias",
                "n_routed_experts",
                "n_shared_experts",
                "first_k_dense_replace",
                "kv_lora_rank",
                "q_lora_rank",
                "v_head_dim",
                "topk_method",
                "routed_scaling_factor",
                "swiglu_limit",
            ]
            .contains(&key.as_str());
            assert!(!is_same || same(&ours[key], &theirs[key]), "{name}: {key}");
        }
    }
}

#[test]
fn lfm2s_experts_have_sigmoid_scores_and_biases_that_training_leaves_alone() {
    let read = config::read(&lfm2()).unwrap();
    let moe = read.moe.clone().unwrap();
    assert_eq!(moe.scoring, Scoring::Sigmoid);
    assert_eq!(moe.balancing, Balancing::Bias { rate: 0.0 });
    assert_eq!(moe.dense_blocks, Some(vec![0, 1]));
    assert_eq!((read.d_ff, moe.d_ff), (Some(7168), Some(1792)));
    assert!(moe.norm_topk && moe.gate_scale.is_none() && moe.shared_d_ff.is_none());
    // A rate of its own is of training, and no other family.
    let mut trained = read.clone();
    trained.moe.as_mut().unwrap().balancing = Balancing::Bias { rate: 0.001 };
    assert_eq!(model_type(&trained), Some("lfm2_moe"));
    // Blocks without experts other than the first ones are no LFM2.
    let mut others = read;
    others.moe.as_mut().unwrap().dense_blocks = Some(vec![0, 3]);
    assert_eq!(model_type(&others), None);
}

#[test]
fn qwen3_next_keeps_its_name_though_qwen_3_5_computes_the_same() {
    let theirs = next();
    let read = config::read(&theirs).unwrap();
    assert_eq!(read.family.as_deref(), Some("qwen3_next"));
    assert_eq!(model_type(&read), Some("qwen3_next"));
    let moe = read.moe.clone().unwrap();
    assert_eq!((moe.shared_d_ff, moe.shared_gate), (Some(512), true));
    let unnamed = ModelConfig {
        family: None,
        ..read.clone()
    };
    assert_eq!(model_type(&unnamed), Some("qwen3_5_moe_text"));
    // Without the head that predicts tokens further ahead, of which a note speaks.
    let note = left_out(&theirs, |beginning| beginning == "mtp.").unwrap();
    assert!(
        note.contains("mtp") && note.contains("qwen3_next"),
        "{note}"
    );
    // Qwen 3.5 has no blocks without experts, and always normalizes.
    for change in [
        |moe: &mut MoeConfig| moe.dense_blocks = Some(vec![1]),
        |moe: &mut MoeConfig| moe.norm_topk = false,
    ] {
        let mut changed = unnamed.clone();
        change(changed.moe.as_mut().unwrap());
        assert_eq!(model_type(&changed), Some("qwen3_next"));
    }
}

#[test]
fn dense_blocks_are_every_other_one_or_those_of_a_list() {
    let read = |keys: Value| {
        let mut value = qwen1_5_moe();
        let map = value.as_object_mut().unwrap();
        map.extend(keys.as_object().unwrap().clone());
        let config = config::read(&value).unwrap();
        let back = config::write(
            &config,
            &config.shape(1),
            &TokenIds::default(),
            Dtype::F32,
            Naming::Family,
        );
        assert_eq!(config::read(&back).as_ref(), Ok(&config));
        let experts: Vec<usize> = (0..config.n_layer)
            .filter(|layer| config.experts(*layer).is_some())
            .collect();
        (config.moe.unwrap(), experts)
    };
    let (moe, blocks) = read(json!({"decoder_sparse_step": 2}));
    assert_eq!((moe.every, moe.dense_blocks), (2, None));
    assert_eq!(blocks[..3], [1, 3, 5]);
    let (moe, blocks) = read(json!({"mlp_only_layers": [0, 3]}));
    assert_eq!((moe.every, moe.dense_blocks), (1, Some(vec![0, 3])));
    assert_eq!(blocks[..3], [1, 2, 4]);
    let (moe, blocks) = read(json!({"mlp_only_layers": [3], "decoder_sparse_step": 2}));
    assert_eq!(moe.every, 1);
    assert_eq!(blocks[..3], [1, 5, 7]);
}

/// They are f32 in transformers too, whatever the model's dtype is; near ties rounded ones choose other experts.
#[test]
fn biases_for_the_choice_are_written_exactly_in_every_dtype() {
    use super::super::super::{CONFIG, Outgoing, WEIGHTS, config_json_for, load};
    use crate::nn::Model;
    let folder = std::path::Path::new("../../tests/oracle/families/lfm2_moe");
    let mut model = load(folder).unwrap();
    let infos = model.params().infos().to_vec();
    let biases: Vec<_> = infos
        .iter()
        .filter(|info| info.is_balancing_bias())
        .collect();
    assert!(!biases.is_empty());
    let set = |weights: &mut [f32]| {
        for info in &biases {
            let own = &mut weights[info.offset..][..info.len];
            for (at, x) in own.iter_mut().enumerate() {
                *x = 0.1 + 1e-6 * at as f32;
            }
        }
    };
    model.params_mut().write_weights(set).unwrap();
    let bits = |model: &Model| -> Vec<u32> {
        let all = model.params().read_weights(<[f32]>::to_vec).unwrap();
        let own = biases
            .iter()
            .flat_map(|info| &all[info.offset..][..info.len]);
        own.map(|x| x.to_bits()).collect()
    };
    for dtype in [Dtype::Bf16, Dtype::F16] {
        let dir = tempfile::tempdir().unwrap();
        let json = config_json_for(&model, &TokenIds::default(), dtype, Naming::Family);
        std::fs::write(dir.path().join(CONFIG), json).unwrap();
        let whole = Outgoing::new(&model, Naming::Family, dtype, u64::MAX);
        let mut out = std::fs::File::create(dir.path().join(WEIGHTS)).unwrap();
        whole.write(0, &model, &mut out).unwrap();
        assert_eq!(bits(&load(dir.path()).unwrap()), bits(&model), "{dtype:?}");
        // The index counts their bytes as the files have them.
        let n_biases: usize = biases.iter().map(|info| info.len).sum();
        let shards = Outgoing::new(&model, Naming::Family, dtype, 1);
        let index: Value = serde_json::from_str(&shards.index_json().unwrap()).unwrap();
        let bytes = 2 * (shards.n_values() + n_biases);
        assert_eq!(index["metadata"]["total_size"], bytes);
    }
}

/// The published head that predicts tokens further ahead holds its experts together, wherever those of the model are.
#[test]
fn single_experts_are_read_beside_a_head_whose_experts_are_stacked() {
    use super::super::super::safetensors::{TensorFile, TensorHead, write_to};
    use super::super::super::{CONFIG, WEIGHTS, load};
    use crate::nn::Model;
    let folder = std::path::Path::new("../../tests/oracle/families/qwen3_5_moe");
    let file = TensorFile::open(&folder.join(WEIGHTS)).unwrap();
    let mut heads: Vec<TensorHead> = file
        .names()
        .map(|name| TensorHead::f32(name, file.shape(name).unwrap().to_vec()))
        .collect();
    assert!(heads.iter().any(|head| head.name.contains(".experts.0.")));
    let ahead = TensorHead::f32("mtp.layers.0.mlp.experts.gate_up_proj", vec![4, 24, 16]);
    heads.push(ahead.clone());
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(folder.join(CONFIG), dir.path().join(CONFIG)).unwrap();
    let mut out = std::fs::File::create(dir.path().join(WEIGHTS)).unwrap();
    write_to(&mut out, &heads, &mut |sink| {
        heads.iter().try_for_each(|head| match *head == ahead {
            true => sink.put(&vec![0.5; head.bytes() / 4]),
            false => sink.put(&file.read(&head.name, &head.shape).unwrap()),
        })
    })
    .unwrap();
    let all = |model: Model| model.params().read_weights(<[f32]>::to_vec).unwrap();
    assert_eq!(all(load(dir.path()).unwrap()), all(load(folder).unwrap()));
}

/// The class of a model with experts, of which no block is behind the first that has none.
#[test]
fn latent_attention_without_experts_is_written_as_a_deepseek() {
    let says = json!({"n_layer": 2, "n_head": 2, "d_model": 16, "d_ff": 24, "seq_len": 32, "vocab_size": 40, "mla": {},
        "position": {"rope": {}}, "norm": {"rmsnorm": {"eps": 1e-6}}, "mlp": {"swiglu": {}}, "tie_embeddings": false});
    let dense: ModelConfig = serde_json::from_value(says).unwrap();
    assert_eq!(model_type(&dense), Some("deepseek_v2"));
    let written = config::write(
        &dense,
        &dense.shape(40),
        &TokenIds::default(),
        Dtype::F32,
        Naming::Family,
    );
    assert_eq!(written["first_k_dense_replace"], 2);
    let read = config::read(&written).unwrap();
    assert_eq!((read.moe, read.mla), (None, dense.mla));
}
