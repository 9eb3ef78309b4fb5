//! Models with experts: what each architecture holds, and what none does.

use super::broken::same_tensor;
use super::hybrid::{bytes_of, opened, set, with};
use super::*;
use crate::gguf::{Gguf, NewTensor};
use crate::nn::{Balancing, MlaConfig, Scoring};

fn experts(config: ModelConfig, change: impl Fn(&mut MoeConfig)) -> ModelConfig {
    let mut moe = MoeConfig {
        n_expert: 4,
        d_ff: Some(96),
        ..MoeConfig::default()
    };
    change(&mut moe);
    ModelConfig {
        moe: Some(moe),
        ..config
    }
}

fn with_shared(moe: &mut MoeConfig) {
    (moe.shared_d_ff, moe.shared_gate) = (Some(64), true);
}

fn qwen2_moe() -> ModelConfig {
    let config = ModelConfig {
        attention_bias: AttentionBias::Qkv,
        ..llama()
    };
    experts(config, |moe| {
        with_shared(moe);
        moe.norm_topk = false;
    })
}

fn olmoe() -> ModelConfig {
    let config = ModelConfig {
        n_kv_head: None,
        qk_norm: true,
        qk_norm_over: QkNormOver::AllHeads,
        ..llama()
    };
    experts(config, |moe| moe.norm_topk = false)
}

fn lfm2_moe() -> ModelConfig {
    experts(lfm2(), |moe| {
        moe.scoring = Scoring::Sigmoid;
        moe.balancing = Balancing::Bias { rate: 0.0 };
        moe.dense_blocks = Some(vec![0]);
    })
}

fn next() -> ModelConfig {
    ModelConfig {
        family: Some("qwen3_next".into()),
        ..experts(qwen35(), with_shared)
    }
}

/// DeepSeek-V2-Lite, and V3.
fn latent(is_third: bool) -> ModelConfig {
    let yarn = ScalingConfig::Yarn(scaling::Yarn {
        original_len: Some(8),
        mscale: Some(0.7),
        mscale_all_dim: Some(0.7),
        ..scaling::Yarn::default()
    });
    let config = with_rope(|rope| rope.scaling = Some(yarn.clone()));
    let config = experts(config, |moe| {
        moe.norm_topk = false;
        moe.shared_d_ff = Some(2 * 96);
        moe.dense_blocks = Some(vec![0]);
        if is_third {
            moe.scoring = Scoring::Sigmoid;
            moe.balancing = Balancing::Bias { rate: 0.0 };
            moe.norm_topk = true;
            moe.gate_scale = Some(2.5);
            (moe.n_group, moe.top_group) = (Some(2), Some(1));
        }
    });
    ModelConfig {
        n_kv_head: None,
        tie_embeddings: false,
        mla: Some(MlaConfig {
            kv_rank: 32,
            q_rank: is_third.then_some(64),
            nope_dim: 32,
            rope_dim: 8,
            v_dim: if is_third { 64 } else { 32 },
            ..MlaConfig::default()
        }),
        ..config
    }
}

pub(super) fn mixtures() -> Vec<(&'static str, ModelConfig)> {
    vec![
        ("qwen2moe", qwen2_moe()),
        (
            "qwen2moe",
            ModelConfig {
                attention_bias: AttentionBias::None,
                tie_embeddings: false,
                ..qwen2_moe()
            },
        ),
        ("olmoe", olmoe()),
        ("granitemoe", experts(granite(), |_| {})),
        // Without a gate, as `granitemoeshared`.
        (
            "granitemoe",
            experts(granite(), |moe| moe.shared_d_ff = Some(64)),
        ),
        ("lfm2moe", lfm2_moe()),
        (
            "granitehybrid",
            experts(granite_hybrid(), |moe| moe.shared_d_ff = Some(64)),
        ),
        ("qwen35moe", experts(qwen35(), with_shared)),
        ("qwen3next", next()),
        ("deepseek2", latent(false)),
        ("deepseek2", latent(true)),
    ]
}

#[test]
fn experts_that_llama_cpp_does_not_compute_are_refused() {
    let changed = |config: ModelConfig, change: fn(&mut MoeConfig)| {
        let mut config = config;
        change(config.moe.as_mut().unwrap());
        config
    };
    let of_llama = experts(llama(), |_| {});
    for config in [
        changed(of_llama.clone(), |moe| moe.scoring = Scoring::Sigmoid),
        changed(of_llama.clone(), |moe| moe.gate_scale = Some(2.5)),
        changed(of_llama.clone(), with_shared),
        changed(of_llama.clone(), |moe| moe.dense_blocks = Some(vec![0])),
        changed(of_llama, |moe| moe.norm_topk = false),
        changed(qwen2_moe(), |moe| moe.norm_topk = true),
        changed(qwen2_moe(), |moe| moe.shared_gate = false),
        changed(olmoe(), |moe| moe.norm_topk = true),
        ModelConfig {
            n_kv_head: Some(2),
            ..olmoe()
        },
        experts(granite(), with_shared),
        experts(granite_hybrid(), with_shared),
        changed(lfm2_moe(), |moe| moe.dense_blocks = Some(vec![1])),
        changed(lfm2_moe(), |moe| moe.balancing = Balancing::Loss {}),
        changed(lfm2_moe(), |moe| moe.scoring = Scoring::Softmax),
        changed(lfm2_moe(), |moe| moe.norm_topk = false),
        changed(next(), |moe| moe.norm_topk = false),
        changed(latent(false), |moe| moe.dense_blocks = Some(vec![1])),
        changed(latent(false), |moe| {
            moe.balancing = Balancing::Bias { rate: 0.0 }
        }),
        changed(latent(false), |moe| {
            (moe.n_group, moe.top_group) = (Some(2), Some(1))
        }),
        changed(latent(true), |moe| moe.shared_d_ff = Some(100)),
        changed(latent(true), |moe| moe.shared_d_ff = None),
        // llama.cpp takes it for a DeepSeek-V2-Lite, which has no latent vectors of queries.
        ModelConfig {
            n_layer: 27,
            ..latent(true)
        },
        changed(experts(llama(), |_| {}), |moe| {
            (moe.n_group, moe.top_group) = (Some(2), Some(1));
        }),
        changed(next(), |moe| {
            (moe.shared_d_ff, moe.shared_gate) = (None, false);
        }),
    ] {
        assert!(config.faults().is_empty(), "{:?}", config.faults());
        let result = write(&random(&config), Kind::F32, "", &[], &mut Vec::new());
        let error = result.unwrap_err().to_string();
        assert!(error.contains("no architecture"), "{error}: {config:?}");
    }
}

/// Its family is in no key: the architecture says it, and with it the names of the tensors in a folder.
#[test]
fn a_file_of_qwen3_next_is_read_as_one() {
    let (_dir, path, _) = saved(&random(&next()), Kind::F32);
    let file = GgufModel::open(&path).unwrap();
    assert_eq!(file.config().family.as_deref(), Some("qwen3_next"));
    assert_eq!(file.config().moe.as_ref().unwrap().shared_d_ff, Some(64));
    let (_dir, path, _) = saved(&random(&lfm2_moe()), Kind::Q8_0);
    let file = GgufModel::open(&path).unwrap();
    let moe = file.config().moe.clone().unwrap();
    assert_eq!(moe.scoring, Scoring::Sigmoid);
    assert_eq!(moe.balancing, Balancing::Bias { rate: 0.0 });
    assert_eq!(moe.dense_blocks, Some(vec![0]));
}

#[test]
fn experts_of_one_feature_keep_their_three_dimensions() {
    let mut narrow = qwen2_moe();
    narrow.moe.as_mut().unwrap().d_ff = Some(1);
    let mut model = random(&narrow);
    let (_dir, path, _) = saved(&model, Kind::F32);
    let head = Gguf::open(&path).unwrap();
    let dims = |name: &str| {
        let tensor = head.tensors.iter().find(|tensor| tensor.name == name);
        tensor.map(|tensor| tensor.dims.clone())
    };
    assert_eq!(dims("blk.0.ffn_gate_exps.weight"), Some(vec![64, 1, 4]));
    assert_eq!(dims("blk.0.ffn_down_exps.weight"), Some(vec![1, 64, 4]));
    assert_eq!(dims("blk.0.ffn_gate_inp_shexp.weight"), Some(vec![64]));
    let mut back = GgufModel::open(&path).unwrap().dequantized().unwrap();
    assert!(off(&logits(&mut back), &logits(&mut model)) < 1e-6);
}

/// As llama.cpp's script wrote them at first: queries, keys, values and gates in `ssm_in`, by heads of keys.
#[test]
fn earlier_files_of_qwen3_next_are_read() {
    let mut model = random(&next());
    let (_dir, path, _) = saved(&model, Kind::F32);
    let head = Gguf::open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let data = |name: &str| {
        let tensor = head.tensors.iter().find(|tensor| tensor.name == name);
        let tensor = tensor.unwrap();
        let start = (head.data_start + tensor.offset) as usize;
        bytes[start..start + tensor.bytes as usize].to_vec()
    };
    // Three heads of keys of 32 rows, and 64 rows of values for each; a row has 64 numbers.
    let (key, values) = (32 * 64 * 4, 64 * 64 * 4);
    let mut tensors: Vec<NewTensor> = Vec::new();
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for info in &head.tensors {
        if info.name.ends_with(".attn_gate.weight") {
            continue;
        }
        let mut tensor = same_tensor(info);
        let mut part = data(&info.name);
        if let Some(block) = info.name.strip_suffix(".attn_qkv.weight") {
            let (qkv, gates) = (data(&info.name), data(&format!("{block}.attn_gate.weight")));
            part.clear();
            for n in 0..3 {
                part.extend_from_slice(&qkv[n * key..][..key]);
                part.extend_from_slice(&qkv[(3 + n) * key..][..key]);
                part.extend_from_slice(&qkv[6 * key + n * values..][..values]);
                part.extend_from_slice(&gates[n * values..][..values]);
            }
            tensor.name = format!("{block}.ssm_in.weight");
            tensor.dims = vec![64, 3 * (2 * 32 + 2 * 64)];
        }
        tensors.push(tensor);
        parts.push(part);
    }
    assert!(tensors.iter().any(|t| t.name == "blk.0.ssm_in.weight"));
    let keys: Vec<_> = head
        .metadata
        .iter()
        .map(|(key, value)| (key.to_string(), value.clone()))
        .collect();
    let mut out = Vec::new();
    crate::gguf::write(&mut out, &keys, &tensors, &mut |at, bytes| {
        bytes.extend_from_slice(&parts[at]);
        Ok(())
    })
    .unwrap();
    std::fs::write(&path, out).unwrap();
    let file = GgufModel::open(&path).unwrap();
    let expected = logits(&mut model);
    assert!(off(&logits(&mut file.dequantized().unwrap()), &expected) < 5e-6);
    assert!(off(&logits(&mut file.quantized().unwrap()), &expected) < 5e-6);
}

/// llama.cpp refuses a file without them, whether or not the model has experts and latent vectors of queries.
#[test]
fn files_of_deepseek2_have_the_keys_that_llama_cpp_requires() {
    let dense = |is_third| ModelConfig {
        moe: None,
        ..latent(is_third)
    };
    for config in [latent(false), latent(true), dense(false), dense(true)] {
        let (_dir, path, _) = saved(&random(&config), Kind::F32);
        let head = Gguf::open(&path).unwrap();
        for key in [
            "attention.layer_norm_rms_epsilon",
            "attention.q_lora_rank",
            "attention.kv_lora_rank",
            "attention.key_length_mla",
            "attention.value_length_mla",
            "leading_dense_block_count",
            "expert_feed_forward_length",
            "expert_shared_count",
        ] {
            let key = format!("deepseek2.{key}");
            assert!(head.metadata.get(&key).is_some(), "{key} of {config:?}");
        }
        let q_rank = head.metadata.u64("deepseek2.attention.q_lora_rank");
        let expected = config.mla.as_ref().unwrap().q_rank.unwrap_or(0);
        assert_eq!(q_rank, Some(expected as u64));
        let file = GgufModel::open(&path).unwrap();
        assert_eq!(file.config().mla, config.mla);
        assert_eq!(file.config().moe.is_some(), config.moe.is_some());
    }
}

/// As some files of GLM-4.7-Flash: a block behind the model's, and no key for how scores are computed.
#[test]
fn a_glm_flash_has_sigmoid_scores_and_leaves_its_last_block_out() {
    let mut config = ModelConfig {
        n_layer: 47,
        n_head: 2,
        d_model: 16,
        d_ff: Some(8),
        vocab_size: Some(154_880),
        tie_embeddings: true,
        ..latent(true)
    };
    let moe = config.moe.as_mut().unwrap();
    (moe.d_ff, moe.shared_d_ff) = (Some(8), Some(8));
    let bytes = bytes_of(&config);
    let bare = |keys: &mut Vec<(String, crate::gguf::Value)>| {
        let unsigned = |n| Some(crate::gguf::Value::Unsigned(n));
        set(keys, "deepseek2.expert_gating_func", None);
        set(keys, "deepseek2.block_count", unsigned(48));
        set(keys, "deepseek2.nextn_predict_layers", unsigned(1));
    };
    let read = opened(&with(&bytes, bare, &["blk.47.nextn.enorm.weight"])).unwrap();
    assert_eq!(Ok(&read), opened(&bytes).as_ref());
    assert_eq!(read.moe.unwrap().scoring, Scoring::Sigmoid);
}

/// Models of Mistral in such files, which would be read as others that compute without it.
#[test]
fn queries_that_grow_with_positions_are_refused() {
    let bytes = bytes_of(&latent(true));
    let key = "deepseek2.attention.temperature_scale";
    let value = crate::gguf::Value::Float(0.1);
    let bytes = with(&bytes, |keys| set(keys, key, Some(value.clone())), &[]);
    let error = opened(&bytes).unwrap_err();
    assert!(error.contains(key), "{error}");
}

/// As llama.cpp's script wrote them at first: keys and values in one tensor, and the features of heads under the keys that now have
/// those of latent vectors.
#[test]
fn earlier_files_of_deepseek2_are_read() {
    use crate::gguf::Value;
    let config = latent(true);
    let mut model = random(&config);
    let (_dir, path, _) = saved(&model, Kind::F32);
    let head = Gguf::open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut tensors: Vec<NewTensor> = Vec::new();
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let values = |layer: usize| {
        let name = format!("model.layers.{layer}.self_attn.kv_b_proj.weight");
        let infos = model.params().infos();
        let info = infos.iter().find(|info| info.name == name).unwrap();
        let values = model.params().weight(info).unwrap();
        values.flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    for info in &head.tensors {
        let start = (head.data_start + info.offset) as usize;
        let mut part = bytes[start..start + info.bytes as usize].to_vec();
        let mut tensor = same_tensor(info);
        if info.name.ends_with(".attn_v_b.weight") {
            continue;
        }
        if let Some(block) = info.name.strip_suffix(".attn_k_b.weight") {
            let layer = block.strip_prefix("blk.").unwrap().parse().unwrap();
            part = values(layer).iter().flat_map(|x| x.to_le_bytes()).collect();
            tensor.name = format!("{block}.attn_kv_b.weight");
            tensor.dims = vec![32, 4 * (32 + 64)];
        }
        tensors.push(tensor);
        parts.push(part);
    }
    let keys = head.metadata.iter().filter_map(|(key, value)| {
        let value = match key.strip_prefix("deepseek2.attention.") {
            Some("key_length_mla" | "value_length_mla") => return None,
            Some("key_length") => Value::Unsigned(40),
            Some("value_length") => Value::Unsigned(64),
            Some("head_count_kv") => Value::Unsigned(4),
            _ => value.clone(),
        };
        Some((key.to_string(), value))
    });
    let keys: Vec<_> = keys.collect();
    let mut out = Vec::new();
    crate::gguf::write(&mut out, &keys, &tensors, &mut |at, bytes| {
        bytes.extend_from_slice(&parts[at]);
        Ok(())
    })
    .unwrap();
    std::fs::write(&path, out).unwrap();
    let file = GgufModel::open(&path).unwrap();
    assert_eq!(file.config().mla, config.mla);
    let expected = logits(&mut model);
    assert!(off(&logits(&mut file.dequantized().unwrap()), &expected) < 1e-6);
}

/// Keys and values are rounded once more there; the text is continued from latent vectors over packed matrices.
#[test]
fn quantized_latent_attention_gives_the_logits_of_its_values() {
    let cases = [(false, Kind::F16), (true, Kind::F16), (false, Kind::Q8_0)];
    for (is_third, kind) in cases {
        let limit = if kind == Kind::F16 { 0.005 } else { 0.1 };
        // Eight-bit activations may send a token to other experts.
        let config = ModelConfig {
            moe: None,
            ..latent(is_third)
        };
        let (_dir, path, _) = saved(&random(&config), kind);
        let file = GgufModel::open(&path).unwrap();
        let (mut stored, mut dense) = (file.quantized().unwrap(), file.dequantized().unwrap());
        let apart = off(&logits(&mut stored), &logits(&mut dense));
        assert!(apart < limit, "{kind:?}: {apart}");
        let tokens: Vec<u32> = (0..20).map(|i| i * 7 % 40).collect();
        let whole = logits(&mut stored);
        let last = stored.decode(|append| {
            let mut logits = Vec::new();
            append(&tokens[..12], &mut logits)?;
            for token in &tokens[12..] {
                append(&[*token], &mut logits)?;
            }
            Ok(logits)
        });
        let apart = off(&last.unwrap(), &whole[whole.len() - 40..]);
        assert!(apart < limit, "decode of {kind:?}: {apart}");
    }
}
