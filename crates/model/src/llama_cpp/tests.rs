//! Small models of every architecture through a file and back, and malformed files.

use super::*;
use crate::gguf::{Array, Gguf, NewTensor, TensorKind, Value};
use crate::kernels::quant::Kind;
use crate::nn::mlp::{Approximate, MlpConfig};
use crate::nn::norm::NormConfig;
use crate::nn::position::{PositionConfig, ScalingConfig, scaling};
use crate::nn::{AttentionBias, Model, ModelConfig, MoeConfig, NormPlacement};
use candle_core::Device;

fn llama() -> ModelConfig {
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

fn gpt2(bias: bool) -> ModelConfig {
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

fn gemma2() -> ModelConfig {
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

/// With a scale of scores that no key can say.
fn gemma3() -> ModelConfig {
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

fn with_rope(change: impl Fn(&mut crate::nn::position::RopeConfig)) -> ModelConfig {
    let mut config = llama();
    if let PositionConfig::Rope(rope) = &mut config.position {
        change(rope);
    }
    config
}

/// (architecture, model), as far as this program computes them.
fn models() -> Vec<(&'static str, ModelConfig)> {
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
        // Rows of queries are permuted, and the scale of scores is folded into them.
        (
            "llama",
            ModelConfig {
                attention_scale: Some(0.2),
                attention_bias: AttentionBias::All,
                ..llama()
            },
        ),
        // Another base, to a program that knows no such scaling.
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
        ("phi3", with_rope(|rope| rope.fraction = 0.5)),
        ("gemma2", gemma2()),
        ("gemma3", gemma3()),
        ("gpt2", gpt2(true)),
        ("gpt2", gpt2(false)),
    ];
    let computed = |config: &ModelConfig| config.faults().is_empty();
    all.into_iter().filter(|(_, c)| computed(c)).collect()
}

fn random(config: &ModelConfig) -> Model {
    let mut model = Model::new(config, 40, &Device::Cpu).unwrap();
    model.init(9).unwrap();
    // Biases and gains that are not all alike.
    let infos = model.params().infos().to_vec();
    model
        .params_mut()
        .write_weights(|weights| {
            for info in infos.iter().filter(|info| info.shape.len() == 1) {
                for (i, x) in weights[info.offset..][..info.len].iter_mut().enumerate() {
                    *x += 0.05 * ((i * 7 + info.offset) % 11) as f32;
                }
            }
        })
        .unwrap();
    model
}

fn saved(model: &Model, kind: Kind) -> (tempfile::TempDir, std::path::PathBuf, Written) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let mut bytes = Vec::new();
    let written = write(model, kind, "tiny", &[], &mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    (dir, path, written)
}

fn logits(model: &mut Model) -> Vec<f32> {
    let tokens: Vec<u32> = (0..20).map(|i| i * 7 % 40).collect();
    let logits = model.logits(&tokens, 1, 20).unwrap();
    logits.flatten_all().unwrap().to_vec1().unwrap()
}

fn off(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x * x);
    let off: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
    (off / b.iter().map(|b| square(*b)).sum::<f64>()).sqrt()
}

#[test]
fn every_architecture_comes_back_with_the_same_logits() {
    let models = models();
    assert_eq!(models.len(), 15);
    for (name, config) in models {
        let mut model = random(&config);
        let expected = logits(&mut model);
        let (_dir, path, written) = saved(&model, Kind::F32);
        assert_eq!(written.architecture, name);
        assert!(is_gguf(&path));
        let file = GgufModel::open(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(file.architecture(), name);
        let mut dense = file.dequantized().unwrap();
        assert!(
            off(&logits(&mut dense), &expected) < 1e-6,
            "{name}: {config:?}"
        );
        let mut stored = file.quantized().unwrap();
        assert!(off(&logits(&mut stored), &expected) < 1e-6, "{name}");
    }
}

#[test]
fn quantized_files_say_about_the_same() {
    for (_, config) in models().into_iter().take(2) {
        let mut model = random(&config);
        let expected = logits(&mut model);
        let limits = [
            (Kind::F16, 0.01),
            (Kind::Bf16, 0.05),
            (Kind::Q8_0, 0.06),
            (Kind::Q4_0, 0.7),
            (Kind::Q4_1, 0.7),
        ];
        for (kind, limit) in limits {
            let (_dir, path, _) = saved(&model, kind);
            let file = GgufModel::open(&path).unwrap();
            let mut stored = file.quantized().unwrap();
            let mut dense = file.dequantized().unwrap();
            let (stored, dense) = (logits(&mut stored), logits(&mut dense));
            assert!(
                off(&stored, &expected) < limit,
                "{kind:?} {}",
                off(&stored, &expected)
            );
            assert!(
                off(&stored, &dense) < 0.06,
                "{kind:?} {}",
                off(&stored, &dense)
            );
        }
    }
}

#[test]
fn a_dequantized_file_is_written_again_without_loss() {
    let model = random(&llama());
    for kind in [Kind::F16, Kind::Bf16] {
        let (_dir, path, _) = saved(&model, kind);
        let dense = GgufModel::open(&path).unwrap().dequantized().unwrap();
        let (_dir, again, _) = saved(&dense, kind);
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(again).unwrap());
    }
}

#[test]
fn formats_that_do_not_fit_are_replaced_aloud() {
    let model = random(&llama());
    let (_dir, path, written) = saved(&model, Kind::Q4K);
    // 64 and 96 values in a row: no super-block fits.
    assert_eq!(
        written.formats.keys().copied().collect::<Vec<_>>(),
        ["Q5_0", "Q8_0"]
    );
    // By width: the head and the rest of 64, and the projections down of 96.
    assert_eq!(written.notes.len(), 3, "{:?}", written.notes);
    let said = written.notes.join("\n");
    for part in [
        "token_embd.weight: ",
        "Q8_0 instead of Q6_K",
        "12 tensors (",
        "Q5_0 instead of Q4_K",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(GgufModel::open(&path).unwrap().quantized().is_ok());
    let odd = ModelConfig {
        d_ff: Some(90),
        ..llama()
    };
    let (_dir, path, written) = saved(&random(&odd), Kind::Q8_0);
    assert_eq!(written.formats.get("F16"), Some(&2));
    assert!(GgufModel::open(&path).unwrap().quantized().is_ok());
}

#[test]
fn models_that_llama_cpp_does_not_compute_are_refused() {
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
        // A part of each head, and factors of frequencies, where llama.cpp takes neither.
        qwen(None, 0.5),
        qwen(Some(ScalingConfig::Llama3(Default::default())), 1.0),
        with_rope(|rope| rope.scaling = Some(yarn(16.0))),
    ];
    for config in &none {
        assert!(refused(config).contains("no architecture"), "{config:?}");
    }
    let model = random(&llama());
    let error = write(&model, Kind::Q5K, "", &[], &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("supported for reading only"));
    let (_dir, path, _) = saved(&model, Kind::Q8_0);
    let stored = GgufModel::open(&path).unwrap().quantized().unwrap();
    let error = write(&stored, Kind::Q8_0, "", &[], &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("--dequantize"), "{error}");
}

#[test]
fn what_is_said_otherwise_is_told() {
    let windowed = ModelConfig {
        sliding_window: Some(20),
        ..llama()
    };
    let mut model = random(&windowed);
    let (_dir, path, written) = saved(&model, Kind::F32);
    assert!(
        written.notes[0].contains("from 32 to 20 tokens"),
        "{:?}",
        written.notes
    );
    let file = GgufModel::open(&path).unwrap();
    assert_eq!(
        (file.config().seq_len, file.config().sliding_window),
        (20, None)
    );
    // 20 tokens are what `logits` asks for.
    assert!(
        off(
            &logits(&mut file.dequantized().unwrap()),
            &logits(&mut model)
        ) < 1e-6
    );
    let erf = ModelConfig {
        mlp: MlpConfig::Gelu(Default::default()),
        ..gpt2(false)
    };
    let mut model = random(&erf);
    let (_dir, path, written) = saved(&model, Kind::F32);
    assert!(written.notes[0].contains("GELU"), "{:?}", written.notes);
    let mut tanh = GgufModel::open(&path).unwrap().dequantized().unwrap();
    let apart = off(&logits(&mut tanh), &logits(&mut model));
    assert!(apart < 1e-3, "{apart}");
    let (_dir, _, written) = saved(&random(&gemma3()), Kind::F32);
    assert!(
        written.notes[0].contains("attention scale 0.2000"),
        "{:?}",
        written.notes
    );
    let (_dir, _, written) = saved(&random(&llama()), Kind::F32);
    assert!(written.notes.is_empty());
}

#[test]
fn factors_of_frequencies_tell_the_scaling_that_they_came_from() {
    for (factor, original_len) in [(8.0, 8192), (32.0, 8192), (4.0, 64)] {
        let scaling = crate::nn::position::scaling::Llama3 {
            factor,
            original_len,
            ..Default::default()
        };
        let config = with_rope(|rope| {
            rope.theta = 500_000.0;
            rope.scaling = Some(ScalingConfig::Llama3(scaling.clone()));
        });
        let (_dir, path, _) = saved(&random(&config), Kind::F32);
        let file = GgufModel::open(&path).unwrap();
        let rope = file.config().position.rope().unwrap();
        assert_eq!(rope.scaling, Some(ScalingConfig::Llama3(scaling)));
    }
}

#[test]
fn windows_and_bases_of_gemma_are_read_where_a_file_says_them() {
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

/// A file with another set of keys and tensors.
fn changed(
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
    let mut new_tensors: Vec<NewTensor> = head
        .tensors
        .iter()
        .map(|t| NewTensor {
            name: t.name.clone(),
            dims: t.dims.clone(),
            kind: t.kind,
        })
        .collect();
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
fn keys_that_lie_are_errors_with_their_names() {
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
    // As of the other architectures: no window.
    let (_dir, path, _) = saved(&random(&gemma2()), Kind::F32);
    let key = "gemma2.attention.sliding_window";
    let file = changed(&path, set(key, Value::Unsigned(0)), |_| {}).unwrap();
    let read = file.config();
    assert_eq!((read.sliding_window, read.global_every), (None, None));
    // Each of many blocks with many experts: either alone is allowed.
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
fn factors_of_other_pairs_than_those_that_turn_are_refused() {
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
fn values_that_a_format_cannot_hold_are_refused_by_their_tensor() {
    let with = |name: &str, value: f32| {
        let mut model = random(&llama());
        let infos = model.params().infos().to_vec();
        let info = infos.iter().find(|info| info.name == name).unwrap();
        let fill = |weights: &mut [f32]| weights[info.offset + info.len - 1] = value;
        model.params_mut().write_weights(fill).unwrap();
        model
    };
    let refused = |model: &Model, kind| {
        let written = write(model, kind, "", &[], &mut Vec::new());
        written.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let name = "model.layers.1.mlp.up_proj.weight";
    let large = with(name, 70_000.0);
    let error = refused(&large, Kind::F16);
    for part in ["blk.1.ffn_up.weight", "7e4", "F16", "bf16 or f32"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(refused(&large, Kind::Bf16), "");
    assert_eq!(refused(&large, Kind::Q8_0), "", "its scale is 551");
    let error = refused(&with(name, 1e8), Kind::Q8_0);
    assert!(
        error.contains("blk.1.ffn_up.weight") && error.contains("Q8_0"),
        "{error}"
    );
    for (name, theirs) in [
        ("model.norm.weight", "output_norm.weight"),
        (name, "blk.1.ffn_up.weight"),
    ] {
        let error = refused(&with(name, f32::NAN), Kind::Q8_0);
        let expected = format!("{theirs} has a non-finite value");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn tensors_that_lie_are_errors_with_their_names() {
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
    let format = with(&|t| t[0].kind = TensorKind::by_id(20).unwrap());
    assert!(
        format.contains("IQ4_NL") && format.contains("Q4_K"),
        "{format}"
    );
}

#[test]
fn weights_that_are_non_finite_are_named() {
    let (_dir, path, _) = saved(&random(&llama()), Kind::Q8_0);
    let head = Gguf::open(&path).unwrap();
    for name in ["blk.1.attn_q.weight", "blk.0.attn_norm.weight"] {
        let mut bytes = std::fs::read(&path).unwrap();
        let tensor = head.tensors.iter().find(|t| t.name == name).unwrap();
        let at = (head.data_start + tensor.offset) as usize;
        // A scale, or a gain, that is NaN.
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
fn every_cut_of_a_file_is_an_error() {
    let (_dir, path, _) = saved(&random(&llama()), Kind::Q4_0);
    let bytes = std::fs::read(&path).unwrap();
    let cut_path = path.with_extension("cut");
    for cut in (0..bytes.len()).step_by(bytes.len() / 97) {
        std::fs::write(&cut_path, &bytes[..cut]).unwrap();
        assert!(GgufModel::open(&cut_path).is_err(), "{cut}");
    }
}
