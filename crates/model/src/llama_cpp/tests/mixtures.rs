//! Models with experts: what each architecture holds, and what none does.

use super::*;
use crate::gguf::Gguf;
use crate::nn::{Balancing, Scoring};

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
        ("qwen35moe", experts(qwen35(), with_shared)),
        ("qwen3next", next()),
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
        changed(lfm2_moe(), |moe| moe.dense_blocks = Some(vec![1])),
        changed(lfm2_moe(), |moe| moe.balancing = Balancing::Loss {}),
        changed(lfm2_moe(), |moe| moe.scoring = Scoring::Softmax),
        changed(lfm2_moe(), |moe| moe.norm_topk = false),
        changed(next(), |moe| moe.norm_topk = false),
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
