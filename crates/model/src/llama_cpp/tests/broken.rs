//! Files whose keys or tensors contradict the model, and malformed ones.

use super::*;
use crate::gguf::{Array, Gguf, NewTensor, TensorInfo, TensorKind, Value};

#[test]
fn gemmas_windows_and_bases_are_read_from_files_that_have_them() {
    let (_dir, path, _) = saved(&random(&gemma3()), Kind::F32);
    let config =
        |key, value| changed(&path, set(key, value), |_| {}).map(|file| file.config().clone());
    let every = |n: usize| (1..=6).map(|at| at % n != 0).collect();
    let key = "gemma3.attention.sliding_window_pattern";
    let read = config(key, Value::Array(Array::Bool(every(3)))).unwrap();
    assert_eq!(read.global_every, Some(3));
    let read = config(key, Value::Unsigned(2)).unwrap();
    assert_eq!(read.global_every, Some(2));
    let odd = Value::Array(Array::Bool(vec![true, false, false, true, true, true]));
    assert!(
        config(key, odd)
            .unwrap_err()
            .to_string()
            .contains("every n-th")
    );
    let read = config("gemma3.rope.freq_base_swa", Value::Float(5000.0)).unwrap();
    assert_eq!(read.position.rope().unwrap().local_theta, Some(5000.0));
    let read = config("gemma3.attention.sliding_window", Value::Unsigned(0)).unwrap();
    assert_eq!(read.sliding_window, None);
}

/// A tensor of a file, to be written again.
pub(super) fn same_tensor(tensor: &TensorInfo) -> NewTensor {
    NewTensor {
        name: tensor.name.clone(),
        dims: tensor.dims.clone(),
        kind: tensor.kind,
    }
}

/// A file with modified keys and tensors, whose extension is `changed`.
pub(super) fn changed(
    path: &Path,
    keys: impl Fn(&mut Vec<(String, Value)>),
    tensors: impl Fn(&mut Vec<NewTensor>),
) -> Result<GgufModel, ModelFileError> {
    let head = Gguf::open(path).unwrap();
    let mut new_keys: Vec<(String, Value)> = head
        .metadata
        .iter()
        .map(|(k, v)| (k.to_string(), v.clone()))
        .collect();
    let mut new_tensors: Vec<NewTensor> = head.tensors.iter().map(same_tensor).collect();
    keys(&mut new_keys);
    tensors(&mut new_tensors);
    let mut bytes = Vec::new();
    crate::gguf::write(&mut bytes, &new_keys, &new_tensors, &mut |i, bytes| {
        bytes.resize(new_tensors[i].bytes().unwrap() as usize, 0);
        Ok(())
    })
    .unwrap();
    let changed = path.with_extension("changed");
    std::fs::write(&changed, bytes).unwrap();
    GgufModel::open(&changed)
}

fn set(key: &'static str, value: Value) -> impl Fn(&mut Vec<(String, Value)>) {
    move |keys| {
        keys.retain(|(k, _)| k != key);
        keys.push((key.into(), value.clone()));
    }
}

#[test]
fn inconsistent_keys_are_errors_with_their_names() {
    let (_dir, path, _) = saved(&random(&llama()), Kind::Q8_0);
    let with = |key, value| {
        let result = changed(&path, set(key, value), |_| {});
        result.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let cases = [
        (
            "general.architecture",
            Value::String("mamba".into()),
            "mamba",
        ),
        ("llama.block_count", Value::Unsigned(3), "blk.2"),
        ("llama.block_count", Value::Unsigned(1), "blk.1"),
        ("llama.block_count", Value::Unsigned(1 << 30), "block_count"),
        (
            "llama.embedding_length",
            Value::Unsigned(128),
            "token_embd.weight",
        ),
        ("llama.feed_forward_length", Value::Unsigned(64), "ffn_"),
        (
            "llama.attention.head_count",
            Value::Unsigned(0),
            "n_head: 0",
        ),
        (
            "llama.attention.head_count",
            Value::String("4".into()),
            "head_count",
        ),
        (
            "llama.attention.head_count_kv",
            Value::Unsigned(3),
            "n_kv_head",
        ),
        (
            "llama.attention.head_count_kv",
            Value::Array(Array::I32(vec![2, 4])),
            "head_count_kv",
        ),
        (
            "llama.rope.dimension_count",
            Value::Unsigned(1 << 20),
            "rotated",
        ),
        (
            "llama.rope.scaling.type",
            Value::String("longrope".into()),
            "scaling",
        ),
        (
            "llama.attention.layer_norm_rms_epsilon",
            Value::Float(f64::NAN),
            "rms_epsilon",
        ),
        ("llama.expert_count", Value::Unsigned(1 << 30), "expert"),
    ];
    for (key, value, part) in cases {
        let error = with(key, value);
        assert!(error.contains(part), "{key}: {error:?}");
        assert!(error.contains("model.changed"), "{error}");
    }
}

#[test]
fn counts_out_of_range_are_errors_before_parameters_are_listed() {
    let mixture = ModelConfig {
        moe: Some(MoeConfig {
            n_expert: 4,
            d_ff: Some(96),
            ..Default::default()
        }),
        ..llama()
    };
    let (_dir, path, _) = saved(&random(&mixture), Kind::F32);
    for (key, n, part) in [
        ("llama.expert_used_count", 0, "moe.top_k"),
        ("llama.expert_count", 4096, "moe.n_expert"),
        ("llama.context_length", 0, "seq_len"),
    ] {
        let error = changed(&path, set(key, Value::Unsigned(n)), |_| {});
        let error = error.err().unwrap().to_string();
        assert!(error.contains(part), "{key}: {error}");
    }
    // As with the other architectures: no window.
    let (_dir, path, _) = saved(&random(&gemma2()), Kind::F32);
    let key = "gemma2.attention.sliding_window";
    let file = changed(&path, set(key, Value::Unsigned(0)), |_| {}).unwrap();
    let read = file.config();
    assert_eq!((read.sliding_window, read.global_every), (None, None));
    // Many blocks with many experts each: either alone is allowed.
    let (_dir, path, _) = saved(&random(&mixture), Kind::F32);
    let keys = |keys: &mut Vec<(String, Value)>| {
        set("llama.block_count", Value::Unsigned(1000))(keys);
        set("llama.expert_count", Value::Unsigned(1024))(keys);
    };
    let many = |tensors: &mut Vec<NewTensor>| {
        for n in 0..1000 {
            let mut one = tensors[1].clone();
            one.name = format!("blk.{n}.more");
            (one.dims, one.kind) = (vec![1], TensorKind::by_id(0).unwrap());
            tensors.push(one);
        }
    };
    let error = changed(&path, keys, many).err().unwrap().to_string();
    assert!(error.contains("1024000 experts"), "{error}");
}

#[test]
fn factors_for_a_wrong_number_of_rotary_pairs_are_rejected() {
    let config = with_rope(|rope| rope.scaling = Some(ScalingConfig::Llama3(Default::default())));
    let (_dir, path, _) = saved(&random(&config), Kind::F32);
    let shorter = |tensors: &mut Vec<NewTensor>| {
        let factors = tensors.iter_mut().find(|t| t.name == "rope_freqs.weight");
        factors.unwrap().dims = vec![4];
    };
    let error = changed(&path, |_| {}, shorter).err().unwrap().to_string();
    assert!(
        error.contains("rope_freqs.weight has 4 factors for 8 rotated pairs"),
        "{error}"
    );
}

#[test]
fn inconsistent_tensors_are_errors_with_their_names() {
    let (_dir, path, _) = saved(&random(&llama()), Kind::Q8_0);
    let with = |change: &dyn Fn(&mut Vec<NewTensor>)| {
        let result = changed(&path, |_| {}, change);
        result.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let missing = with(&|t| t.retain(|t| t.name != "blk.1.ffn_up.weight"));
    assert!(
        missing.contains("blk.1.ffn_up.weight is missing"),
        "{missing}"
    );
    let extra = with(&|t| {
        let mut one = t[1].clone();
        one.name = "blk.0.attn_sinks.weight".into();
        t.push(one);
    });
    assert!(extra.contains("attn_sinks"), "{extra}");
    let shape = with(&|t| t[3].dims.reverse());
    assert!(shape.contains("expected"), "{shape}");
    let format = with(&|t| t[0].kind = TensorKind::by_id(24).unwrap());
    assert!(format.contains("I8") && format.contains("Q4_K"), "{format}");
}

#[test]
fn non_finite_weights_are_named() {
    let (_dir, path, _) = saved(&random(&llama()), Kind::Q8_0);
    let head = Gguf::open(&path).unwrap();
    for name in ["blk.1.attn_q.weight", "blk.0.attn_norm.weight"] {
        let mut bytes = std::fs::read(&path).unwrap();
        let tensor = head.tensors.iter().find(|t| t.name == name).unwrap();
        let at = (head.data_start + tensor.offset) as usize;
        // A NaN scale, or a NaN gain.
        bytes[at..at + 4].copy_from_slice(&[0xff; 4]);
        let broken = path.with_extension("broken");
        std::fs::write(&broken, bytes).unwrap();
        let file = GgufModel::open(&broken).unwrap();
        for result in [file.quantized(), file.dequantized()] {
            let error = result.err().unwrap().to_string();
            assert!(error.contains("finite"), "{error}");
        }
    }
}

#[test]
fn every_truncated_file_is_an_error() {
    let (_dir, path, _) = saved(&random(&llama()), Kind::Q4_0);
    let bytes = std::fs::read(&path).unwrap();
    let cut_path = path.with_extension("cut");
    for cut in (0..bytes.len()).step_by(bytes.len() / 97) {
        std::fs::write(&cut_path, &bytes[..cut]).unwrap();
        assert!(GgufModel::open(&cut_path).is_err(), "{cut}");
    }
}
