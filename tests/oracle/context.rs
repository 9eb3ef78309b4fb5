//! A start model of 32 positions whose positions are stretched to 128, as transformers stretches those of the same weights: logits
//! and gradients of a text of 100 tokens. `context_oracle.py` made the files.

use super::{compare, mean_loss, tensors_of};
use candle_core::{Device, Tensor};
use llmtui::hf;
use llmtui::models::ModelSource;
use llmtui::nn::{Backend, Model, ModelConfig, TokenBatch};
use llmtui::spec::{SpecSources, load};
use std::collections::HashMap;

const MODELS: [&str; 2] = ["llama", "qwen3"];
const SCALING: &str = "model.position.rope.scaling";

fn folder(model: &str) -> String {
    format!(
        "{}/tests/oracle/context/{model}",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// The model of a spec that names a scaling, and nothing else, and rows of 128 tokens.
fn stretched(model: &str, scaling: &str) -> ModelConfig {
    let words = [
        format!("train.from={}", folder(model)),
        format!("{SCALING}={scaling}"),
        "model.seq_len=128".into(),
    ];
    let loaded = load("smoke", &words, &SpecSources::default());
    loaded
        .map_err(|e| e.to_string())
        .unwrap()
        .spec
        .model
        .clone()
}

/// What transformers calls it, and what a spec says.
fn scalings() -> [(&'static str, &'static str); 6] {
    [
        ("linear", "linear"),
        ("ntk", "ntk"),
        ("yarn", "yarn"),
        (
            "yarn_bounds",
            "{yarn: {beta_fast: 4, beta_slow: 0.5, attention_factor: 1.3}}",
        ),
        ("llama3", "llama3"),
        (
            "longrope",
            "{longrope: {short_factor: [1, 1, 1, 1, 1, 1, 1, 1], long_factor: [1, 1.1, 1.3, 1.7, 2.2, 2.9, 3.5, 4]}}",
        ),
    ]
}

fn values(tensors: &HashMap<String, Tensor>, name: &str) -> Vec<f32> {
    tensors[name].flatten_all().unwrap().to_vec1().unwrap()
}

fn filled(model: &str, config: &ModelConfig, backend: Backend) -> Model {
    let mut filled = Model::with_backend(config, 0, &Device::Cpu, backend).unwrap();
    let source = ModelSource::open(folder(model).as_ref()).unwrap();
    source.fill(&mut filled).unwrap();
    filled
}

#[test]
fn stretched_positions_give_the_logits_and_gradients_of_transformers() {
    for name in MODELS {
        let (_, tensors) = tensors_of(&format!("context/{name}"));
        let ids = values(&tensors, "ids");
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        let n = ids.len() - 1;
        for (kind, said) in scalings() {
            let config = stretched(name, said);
            for backend in [Backend::Fused, Backend::Composite] {
                let mut model = filled(name, &config, backend);
                let logits = model.logits(&ids[..n], 1, n).unwrap();
                let logits: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
                let at = format!("{name} {kind}");
                compare(&at, &logits, &values(&tensors, &format!("{kind}.logits")));
                let batch = TokenBatch {
                    inputs: &ids[..n],
                    targets: &ids[1..],
                    batch_size: 1,
                    seq_len: n,
                    first: None,
                    filled: None,
                    temperature: 1.0,
                };
                let (_, dlogp) = mean_loss(&model.forward(&batch).unwrap().logp);
                model.backward(&dlogp, None).unwrap();
                let mut compared = 0;
                for info in model.params().infos() {
                    let key = format!("{kind}.grad.{}", info.name);
                    if tensors.contains_key(&key) {
                        let grad = model.params().grad(info).unwrap();
                        let grad: Vec<f32> = grad.flatten_all().unwrap().to_vec1().unwrap();
                        compare(
                            &format!("{at} {}", info.name),
                            &grad,
                            &values(&tensors, &key),
                        );
                        compared += 1;
                    }
                }
                assert_eq!(compared, 3, "{at}");
            }
        }
    }
}

/// The same weights without the scaling, and with another, give other logits: the comparison sees it.
#[test]
fn other_positions_give_other_logits() {
    let (_, tensors) = tensors_of("context/llama");
    let ids = values(&tensors, "ids");
    let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
    let n = ids.len() - 1;
    let yarn = values(&tensors, "yarn.logits");
    let source = ModelSource::open(folder("llama").as_ref()).unwrap();
    let plain = ModelConfig {
        seq_len: 128,
        ..source.config().clone()
    };
    for config in [plain, stretched("llama", "linear")] {
        let mut model = filled("llama", &config, Backend::Fused);
        let logits = model.logits(&ids[..n], 1, n).unwrap();
        let logits: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
        let apart = logits.iter().zip(&yarn).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) > 0.1);
    }
}

/// What is written is read by transformers as its own config of the same model, and the other way round.
#[test]
fn configs_name_the_stretched_positions_as_transformers_does() {
    for name in MODELS {
        let (metadata, _) = tensors_of(&format!("context/{name}"));
        let configs: serde_json::Value = serde_json::from_str(&metadata["configs"]).unwrap();
        for (kind, said) in scalings() {
            let ours = stretched(name, said);
            let model = Model::new(&ours, 0, &Device::Cpu).unwrap();
            let written = hf::config_json(&model, None);
            let written: serde_json::Value = serde_json::from_str(&written).unwrap();
            if kind == "longrope" {
                // A Phi-3 alone has it, which is otherwise a Llama: others are written in our own format.
                let family = if name == "llama" { "phi3" } else { "llmtui" };
                assert_eq!(written["model_type"], family, "{name}");
                continue;
            }
            let theirs = configs[kind].as_str().unwrap();
            let theirs: serde_json::Value = serde_json::from_str(theirs).unwrap();
            assert_eq!(written["max_position_embeddings"], 128, "{name} {kind}");
            assert_eq!(written["model_type"], theirs["model_type"], "{name} {kind}");
            let table = theirs["rope_parameters"].as_object().unwrap();
            for (key, value) in table {
                let own = &written["rope_parameters"][key];
                let same = match (own.as_f64(), value.as_f64()) {
                    (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs(),
                    _ => own == value,
                };
                assert!(same, "{name} {kind} {key}: {own}, not {value}");
            }
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(hf::CONFIG), theirs.to_string()).unwrap();
            let read = hf::read_config(dir.path()).unwrap();
            assert!(!read.is_stretched_in(&ours) && !ours.is_stretched_in(&read));
        }
    }
}
