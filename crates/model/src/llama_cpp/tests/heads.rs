//! Files with the head twice, for architectures of llama.cpp that know no tied one; and StarCoder2 with biases in its norms alone.

use super::broken::same_tensor;
use super::*;
use crate::gguf::{Gguf, NewTensor, Value};
use crate::nn::ParamInfo;

/// llama.cpp's `gptneox` and `stablelm` need `output.weight`.
#[test]
fn a_copy_of_the_embedding_that_an_architecture_needs_as_its_head_is_read_back_tied() {
    for (name, config) in [
        ("gptneox", neox(true)),
        ("stablelm", stablelm(AttentionBias::Qkv)),
    ] {
        for kind in [Kind::F32, Kind::Q8_0, Kind::Q4_0] {
            let mut model = random(&config);
            let (_dir, path, written) = saved(&model, kind);
            assert_eq!(written.architecture, name);
            let tensors = Gguf::open(&path).unwrap().tensors;
            assert!(tensors.iter().any(|tensor| tensor.name == "output.weight"));
            let file = GgufModel::open(&path).unwrap();
            assert!(file.config().tie_embeddings, "{name} {kind:?}");
            let names = |infos: &[ParamInfo]| -> Vec<String> {
                infos.iter().map(|info| info.name.clone()).collect()
            };
            let back = names(&file.parameters().unwrap());
            assert!(!back.contains(&"lm_head.weight".to_string()), "{back:?}");
            if kind == Kind::F32 {
                let mut dense = file.dequantized().unwrap();
                assert!(
                    off(&logits(&mut dense), &logits(&mut model)) < 1e-6,
                    "{name}"
                );
            }
            let untied = ModelConfig {
                tie_embeddings: false,
                ..config.clone()
            };
            let (_dir, path, _) = saved(&random(&untied), kind);
            let file = GgufModel::open(&path).unwrap();
            assert!(!file.config().tie_embeddings, "{name} {kind:?}");
        }
    }
}

/// Files of llama.cpp's script for `use_bias: false`; ours have zeros for the other biases.
#[test]
fn a_starcoder2_file_with_biases_in_its_norms_alone_is_read() {
    let mut config = starcoder2(false);
    if let NormConfig::LayerNorm(norm) = &mut config.norm {
        norm.bias = Some(true);
    }
    let mut model = random(&config);
    let expected = logits(&mut model);
    let (_dir, path, written) = saved(&model, Kind::F32);
    assert_eq!(written.architecture, "starcoder2");
    let (head, bytes) = (Gguf::open(&path).unwrap(), std::fs::read(&path).unwrap());
    let is_kept = |name: &str| !name.ends_with(".bias") || name.contains("_norm.");
    let kept: Vec<_> = head.tensors.iter().filter(|t| is_kept(&t.name)).collect();
    assert!(kept.len() < head.tensors.len());
    let tensors: Vec<NewTensor> = kept.iter().map(|t| same_tensor(t)).collect();
    let keys = head.metadata.iter();
    let keys: Vec<(String, Value)> = keys.map(|(k, v)| (k.to_string(), v.clone())).collect();
    let mut out = Vec::new();
    crate::gguf::write(&mut out, &keys, &tensors, &mut |i, filled| {
        let start = (head.data_start + kept[i].offset) as usize;
        filled.extend(&bytes[start..start + kept[i].bytes as usize]);
        Ok(())
    })
    .unwrap();
    let path = path.with_extension("norms.gguf");
    std::fs::write(&path, out).unwrap();
    let file = GgufModel::open(&path).unwrap();
    let read = file.config();
    assert!(!read.bias && read.norm.bias() == Some(true));
    assert_eq!(read.attention_bias, AttentionBias::None);
    let mut back = file.dequantized().unwrap();
    assert!(off(&logits(&mut back), &expected) < 1e-6);
}
