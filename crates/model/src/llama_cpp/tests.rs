//! Small models of every architecture, written to a file and read back.

mod broken;
mod heads;
mod hybrid;
mod mixtures;
mod models;
mod parts;
mod refused;

use super::*;
use crate::kernels::quant::Kind;
use crate::nn::mixer::{GatedDeltaNetConfig, Mamba2Config, MixerConfig};
use crate::nn::mlp::{Approximate, MlpConfig};
use crate::nn::norm::NormConfig;
use crate::nn::position::{PositionConfig, ScalingConfig, scaling};
use crate::nn::{AttentionBias, Model, ModelConfig, MoeConfig, NormPlacement, QkNormOver};
use candle_core::Device;
use models::*;

fn random(config: &ModelConfig) -> Model {
    let mut model = Model::new(config, 40, &Device::Cpu).unwrap();
    model.init(9).unwrap();
    // Varied biases and gains.
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

/// Other architectures than DeepSeek's have no key for them.
#[test]
fn weights_of_yarn_are_in_the_factor_of_the_file() {
    let config = with_rope(|rope| {
        rope.scaling = Some(ScalingConfig::Yarn(scaling::Yarn {
            original_len: Some(8),
            mscale: Some(0.5),
            mscale_all_dim: Some(1.5),
            ..scaling::Yarn::default()
        }));
    });
    let mut model = random(&config);
    let expected = logits(&mut model);
    let (_dir, path, _) = saved(&model, Kind::F32);
    let file = GgufModel::open(&path).unwrap();
    assert!(off(&logits(&mut file.dequantized().unwrap()), &expected) < 1e-5);
}

#[test]
fn every_architecture_round_trips_with_the_same_logits() {
    let models = models();
    assert_eq!(models.len(), 46);
    for (name, config) in models {
        // Decay rates are stored as exponentials, which are rounded.
        let has_decay = ["qwen35", "qwen35moe", "qwen3next", "granitehybrid"].contains(&name);
        let limit = if has_decay { 5e-6 } else { 1e-6 };
        let mut model = random(&config);
        let expected = logits(&mut model);
        let (_dir, path, written) = saved(&model, Kind::F32);
        assert_eq!(written.architecture, name);
        assert!(is_gguf(&path));
        let file = GgufModel::open(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(file.architecture(), name);
        let mut dense = file.dequantized().unwrap();
        assert!(
            off(&logits(&mut dense), &expected) < limit,
            "{name}: {config:?}"
        );
        let mut stored = file.quantized().unwrap();
        assert!(off(&logits(&mut stored), &expected) < limit, "{name}");
    }
}

#[test]
fn quantized_files_give_similar_logits() {
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
fn a_dequantized_file_is_rewritten_without_loss() {
    let model = random(&llama());
    for kind in [Kind::F16, Kind::Bf16] {
        let (_dir, path, _) = saved(&model, kind);
        let dense = GgufModel::open(&path).unwrap().dequantized().unwrap();
        let (_dir, again, _) = saved(&dense, kind);
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(again).unwrap());
    }
}

#[test]
fn formats_that_do_not_fit_are_replaced_with_a_note() {
    let model = random(&llama());
    let (_dir, path, written) = saved(&model, Kind::Q4K);
    // Rows of 64 and 96 values: no super-block fits.
    assert_eq!(
        written.formats.keys().copied().collect::<Vec<_>>(),
        ["Q5_0", "Q8_0"]
    );
    // By row length: the head and most others 64, the down projections 96.
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

/// llama.cpp's converter names `<|im_end|>` of Qwen2.5 Instruct alone, and answers ran on behind `<|endoftext|>`.
#[test]
fn answers_end_at_the_tokens_of_the_keys_and_at_those_known_by_their_text() {
    use crate::gguf::{Array, Value};
    let texts = ["a", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "</s>"].map(String::from);
    let keys = [
        (
            "tokenizer.ggml.tokens".to_string(),
            Value::Array(Array::Strings(texts.to_vec())),
        ),
        ("tokenizer.ggml.eos_token_id".into(), Value::Unsigned(3)),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let mut bytes = Vec::new();
    write(&random(&llama()), Kind::F32, "", &keys, &mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let file = GgufModel::open(&path).unwrap();
    assert_eq!(file.special_tokens().ends, [3]);
    assert_eq!(file.answer_ends(), [3, 1]);
}

/// llama.cpp leaves every 4th block of a `smollm3` without positions, whatever the file says, and knows no other such model.
#[test]
fn blocks_without_positions_are_written_as_smollm3_or_refused_by_name() {
    let written = |config: &ModelConfig| {
        let name = |written: Written| written.architecture;
        write(&random(config), Kind::F32, "", &[], &mut Vec::new()).map(name)
    };
    assert_eq!(written(&smollm3(4)).unwrap(), "smollm3");
    let windowed = ModelConfig {
        sliding_window: Some(20),
        ..smollm3(4)
    };
    assert_eq!(written(&windowed).unwrap(), "smollm3", "within its window");
    let like = |other: ModelConfig| {
        let n_layer = other.n_layer;
        let mut config = ModelConfig {
            n_layer: n_layer.max(4),
            ..other
        };
        if let PositionConfig::Rope(rope) = &mut config.position {
            rope.nope_every = Some(4);
        }
        config
    };
    let normed = ModelConfig {
        qk_norm: true,
        ..llama()
    };
    let biased = ModelConfig {
        attention_bias: AttentionBias::Qkv,
        ..llama()
    };
    let scaled = with_rope(|rope| rope.scaling = Some(ScalingConfig::Llama3(Default::default())));
    let partial = with_rope(|rope| rope.fraction = 0.5);
    let refused = [normed, biased, scaled, partial, gemma2(), gemma3()].map(like);
    for config in refused.iter().chain(&[smollm3(3), smollm3(8)]) {
        let error = written(config).unwrap_err().to_string();
        assert!(
            error.contains("nope_every is") && error.contains("every 4th"),
            "{error}: {config:?}"
        );
    }
    let (_dir, path, _) = saved(&random(&smollm3(4)), Kind::F32);
    let file = GgufModel::open(&path).unwrap();
    assert_eq!(file.config().position, smollm3(4).position);
    // Without a 4th block all rotate: the number is in llama.cpp's code, not in the file.
    let few = ModelConfig {
        n_layer: 3,
        ..llama()
    };
    assert_eq!(written(&few).unwrap(), "llama");
}

#[test]
fn converted_features_are_noted() {
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
    // `logits` uses 20 tokens.
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
fn frequency_factors_identify_their_scaling() {
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

/// Factors do not determine all parameters: unrecognized ones are used as they are, with the same logits.
#[test]
fn factors_of_an_unusual_scaling_are_read_as_divisors() {
    let scaling = crate::nn::position::scaling::Llama3 {
        factor: 4.0,
        high_freq_factor: 2.0,
        original_len: 32,
        ..Default::default()
    };
    let config = with_rope(|rope| rope.scaling = Some(ScalingConfig::Llama3(scaling.clone())));
    let mut model = random(&config);
    let (_dir, path, _) = saved(&model, Kind::F32);
    let file = GgufModel::open(&path).unwrap();
    let rope = file.config().position.rope().unwrap().clone();
    assert!(matches!(rope.scaling, Some(ScalingConfig::Longrope(_))));
    let mut back = file.dequantized().unwrap();
    assert!(off(&logits(&mut back), &logits(&mut model)) < 1e-5);
}

#[test]
fn values_out_of_range_for_a_format_are_rejected_with_their_tensor() {
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
