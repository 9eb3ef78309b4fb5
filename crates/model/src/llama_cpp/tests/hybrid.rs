//! LFM2 and Qwen 3.5: blocks without attention.

use super::*;
use crate::gguf::{Array, Gguf, NewTensor, TensorKind, Value};

fn net(change: impl Fn(&mut GatedDeltaNetConfig)) -> ModelConfig {
    let mut config = qwen35();
    if let Some(MixerConfig::GatedDeltaNet(net)) = &mut config.mixer {
        change(net);
    }
    config
}

fn refused(config: &ModelConfig) -> String {
    let result = write(&random(config), Kind::F32, "", &[], &mut Vec::new());
    result.unwrap_err().to_string()
}

/// What llama.cpp computes of neither architecture is not written as one of them, nor as another.
#[test]
fn hybrids_that_llama_cpp_does_not_compute_are_refused_by_name() {
    let short_conv = |change: fn(&mut ModelConfig)| {
        let mut config = lfm2();
        change(&mut config);
        config
    };
    let biased = short_conv(|c| {
        if let Some(MixerConfig::ShortConv(conv)) = &mut c.mixer {
            conv.bias = true;
        }
    });
    let qwen = |change: fn(&mut ModelConfig)| {
        let mut config = qwen35();
        change(&mut config);
        config
    };
    let mamba = |change: fn(&mut Mamba2Config)| {
        let mut config = granite_hybrid();
        if let Some(MixerConfig::Mamba2(net)) = &mut config.mixer {
            change(net);
        }
        config
    };
    for config in [
        mamba(|net| net.bias = true),
        mamba(|net| net.dt_max = Some(1.0)),
        mamba(|net| net.conv_len = 1),
        ModelConfig {
            position: with_rope(|rope| rope.fraction = 0.5).position,
            ..granite_hybrid()
        },
        ModelConfig {
            attention_blocks: None,
            ..granite_hybrid()
        },
        biased,
        short_conv(|c| c.qk_norm = false),
        short_conv(|c| c.head_dim = Some(32)),
        short_conv(|c| c.attention_blocks = None),
        short_conv(|c| c.attention_gate = true),
        ModelConfig {
            mixer: lfm2().mixer,
            ..gemma2()
        },
        net(|net| net.value_dim = 16),
        qwen(|c| c.attention_gate = false),
        qwen(|c| c.attention_bias = AttentionBias::All),
        qwen(|c| c.norm = NormConfig::RmsNorm(Default::default())),
    ] {
        let error = refused(&config);
        assert!(error.contains("no architecture"), "{error}: {config:?}");
    }
    let gated = ModelConfig {
        attention_gate: true,
        ..llama()
    };
    assert!(refused(&gated).contains("has model.attention_gate"));
    let mixed = ModelConfig {
        mixer: lfm2().mixer,
        attention_every: Some(2),
        ..llama()
    };
    assert!(refused(&mixed).contains("has model.mixer"));
}

/// Blocks of a head's values move as they are; of types with larger blocks `ssm_out` is rounded once more.
#[test]
fn heads_of_values_are_in_our_order_in_files_of_every_format() {
    let wide = ModelConfig {
        d_model: 256,
        d_ff: Some(256),
        ..net(|net| (net.n_key_head, net.n_value_head) = (4, 8))
    };
    let mut model = random(&wide);
    let expected = logits(&mut model);
    for (kind, limit) in [(Kind::Q8_0, 0.1), (Kind::Q4K, 0.5)] {
        let (_dir, path, written) = saved(&model, kind);
        assert_eq!(written.architecture, "qwen35");
        let file = GgufModel::open(&path).unwrap();
        let infos = file.parameters().unwrap();
        let out = infos
            .iter()
            .find(|info| info.name.ends_with("0.linear_attn.out_proj.weight"))
            .unwrap();
        assert_eq!(file.format_of(out), Some(kind.name()));
        let mut stored = file.quantized().unwrap();
        let mut dense = file.dequantized().unwrap();
        let (stored, dense) = (logits(&mut stored), logits(&mut dense));
        assert!(
            off(&stored, &expected) < limit,
            "{kind:?} {}",
            off(&stored, &expected)
        );
        assert!(
            off(&stored, &dense) < 0.1,
            "{kind:?} {}",
            off(&stored, &dense)
        );
    }
}

/// The file again, with keys changed and more tensors of one value.
pub(super) fn with(
    bytes: &[u8],
    change: impl Fn(&mut Vec<(String, Value)>),
    more: &[&str],
) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.gguf");
    std::fs::write(&path, bytes).unwrap();
    let head: Gguf = crate::gguf::open_parts(&path).unwrap().remove(0).head;
    let mut keys: Vec<(String, Value)> = head
        .metadata
        .iter()
        .map(|(k, v)| (k.into(), v.clone()))
        .collect();
    change(&mut keys);
    let mut tensors: Vec<NewTensor> = head
        .tensors
        .iter()
        .map(|info| NewTensor {
            name: info.name.clone(),
            dims: info.dims.clone(),
            kind: info.kind,
        })
        .collect();
    tensors.extend(more.iter().map(|name| NewTensor {
        name: (*name).into(),
        dims: vec![1],
        kind: TensorKind::by_id(0).unwrap(),
    }));
    let mut out = Vec::new();
    crate::gguf::write(&mut out, &keys, &tensors, &mut |index, to| {
        match head.tensors.get(index) {
            Some(info) => {
                let start = (head.data_start + info.offset) as usize;
                to.extend_from_slice(&bytes[start..start + info.bytes as usize]);
            }
            None => to.extend_from_slice(&1.0_f32.to_le_bytes()),
        }
        Ok(())
    })
    .unwrap();
    out
}

pub(super) fn opened(bytes: &[u8]) -> Result<ModelConfig, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let file = GgufModel::open(&path).map_err(|e| e.to_string())?;
    Ok(file.config().clone())
}

pub(super) fn bytes_of(config: &ModelConfig) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&random(config), Kind::F32, "", &[], &mut bytes).unwrap();
    bytes
}

pub(super) fn set(keys: &mut Vec<(String, Value)>, name: &str, value: Option<Value>) {
    keys.retain(|(key, _)| key != name);
    keys.extend(value.map(|value| (name.to_string(), value)));
}

#[test]
fn blocks_that_predict_tokens_further_ahead_are_left_out() {
    let plain = bytes_of(&qwen35());
    let ahead = |keys: &mut Vec<(String, Value)>| {
        set(keys, "qwen35.block_count", Some(Value::Unsigned(5)));
        set(
            keys,
            "qwen35.nextn_predict_layers",
            Some(Value::Unsigned(1)),
        );
    };
    let more = ["blk.4.nextn.enorm.weight", "blk.4.attn_norm.weight"];
    let read = opened(&with(&plain, ahead, &more)).unwrap();
    assert_eq!(Ok(read), opened(&plain));
    let left_out = |bytes: &[u8]| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        std::fs::write(&path, bytes).unwrap();
        GgufModel::open(&path).unwrap().left_out()
    };
    let note = left_out(&with(&plain, ahead, &more)).unwrap();
    assert!(note.contains("nextn"), "{note}");
    assert_eq!(left_out(&plain), None);
    let error = opened(&with(&plain, |_| {}, &["blk.3.nextn.enorm.weight"])).unwrap_err();
    assert!(
        error.contains("blk.3.nextn.enorm.weight does not belong"),
        "{error}"
    );
    let all = |keys: &mut Vec<(String, Value)>| {
        set(
            keys,
            "qwen35.nextn_predict_layers",
            Some(Value::Unsigned(4)),
        );
    };
    let error = opened(&with(&plain, all, &[])).unwrap_err();
    assert!(error.contains("none is left"), "{error}");
}

#[test]
fn which_blocks_have_attention_is_read_from_lists_and_numbers() {
    let lfm = bytes_of(&lfm2());
    let kv = "lfm2.attention.head_count_kv";
    let heads = |heads: &[i32]| {
        let list = Value::Array(Array::I32(heads.to_vec()));
        opened(&with(&lfm, |keys| set(keys, kv, Some(list.clone())), &[]))
    };
    assert_eq!(heads(&[0, 2, 0, 2]).unwrap().attention_every, Some(2));
    for (list, part) in [
        (&[0, 2, 0][..], "3 entries for 4 blocks"),
        (&[0, 2, 0, 1], "differs"),
        (&[0, 2, 0, -1], "not a list of integers"),
        // Tensors of another kind of block.
        (&[2, 2, 0, 2], "blk.0.attn_q.weight is missing"),
    ] {
        let error = heads(list).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    for (key, value, part) in [
        ("lfm2.attention.causal", Value::Bool(false), "encoder"),
        (
            "lfm2.attention.sliding_window",
            Value::Unsigned(8),
            "speech",
        ),
        (
            "lfm2.shortconv.l_cache",
            Value::Unsigned(4),
            "shortconv.conv",
        ),
    ] {
        let error =
            opened(&with(&lfm, |keys| set(keys, key, Some(value.clone())), &[])).unwrap_err();
        assert!(error.contains(part), "{error}");
        let is_key = key.starts_with("lfm2.attention");
        assert!(!is_key || error.contains(key), "{error}");
    }
    // As files older than the list have it, and without either key every 4th.
    let qwen = bytes_of(&qwen35());
    for gone in [
        &["qwen35.attention.recurrent_layers"][..],
        &[
            "qwen35.attention.recurrent_layers",
            "qwen35.full_attention_interval",
        ],
    ] {
        let without =
            |keys: &mut Vec<(String, Value)>| gone.iter().for_each(|key| set(keys, key, None));
        assert_eq!(opened(&with(&qwen, without, &[])), opened(&qwen));
    }
    let short = Value::Array(Array::Bool(vec![true; 3]));
    let list = |keys: &mut Vec<(String, Value)>| {
        set(
            keys,
            "qwen35.attention.recurrent_layers",
            Some(short.clone()),
        );
    };
    let error = opened(&with(&qwen, list, &[])).unwrap_err();
    assert!(error.contains("3 entries for 4 blocks"), "{error}");
    let odd = |keys: &mut Vec<(String, Value)>| {
        set(keys, "qwen35.ssm.inner_size", Some(Value::Unsigned(191)));
    };
    let error = opened(&with(&qwen, odd, &[])).unwrap_err();
    assert!(error.contains("not a multiple"), "{error}");
}
