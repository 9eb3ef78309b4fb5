//! Training runs of PyTorch, repeated: step-0 logits and gradients, and the loss of each of 300 steps. Wrong variants must
//! fail the same comparison, to prove that it detects them.
//!
//! `tests/oracle/train_oracle.py` made the fixtures and documents how.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "oracle/context.rs"]
mod context;
#[path = "oracle/distill.rs"]
mod distill;
#[path = "oracle/health.rs"]
mod health;
#[path = "oracle/optimizers.rs"]
mod optimizers;
#[path = "oracle/peft.rs"]
mod peft;
#[path = "oracle/peft_experts.rs"]
mod peft_experts;
#[path = "oracle/peft_patterns.rs"]
mod peft_patterns;
#[path = "oracle/peft_renamed.rs"]
mod peft_renamed;
#[path = "oracle/preference.rs"]
mod preference;
#[path = "oracle/preference_losses.rs"]
mod preference_losses;
#[path = "oracle/reward.rs"]
mod reward;

use candle_core::{Device, Tensor};
use llmtui::kernels::matmul::ComputeDtype;
use llmtui::nn::norm::NormConfig;
use llmtui::nn::{AdapterConfig, Backend, Model, ModelConfig, TokenBatch};
use llmtui::optim::schedule::ScheduleConfig;
use llmtui::optim::{OptimizerConfig, clip_scale};
use safetensors::SafeTensors;
use std::collections::HashMap;
use std::path::Path;

/// Largest difference of a loss, a logit or a gradient.
const TOLERANCE: f64 = 1e-5;

#[derive(Debug, Clone, serde::Deserialize)]
struct Train {
    steps: u64,
    batch_size: usize,
    vocab_size: usize,
    lr: f64,
    min_lr: f64,
    warmup_steps: u64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    clip_norm: f64,
    stride: usize,
}

struct Fixture {
    model: ModelConfig,
    train: Train,
    tensors: HashMap<String, Tensor>,
}

/// Metadata and tensors of a fixture.
fn tensors_of(name: &str) -> (HashMap<String, String>, HashMap<String, Tensor>) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/");
    let bytes = std::fs::read(format!("{folder}{name}.safetensors")).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap();
    (header.metadata().clone().unwrap(), tensors)
}

impl Fixture {
    fn load(name: &str) -> Fixture {
        let (metadata, tensors) = tensors_of(name);
        Fixture {
            model: serde_json::from_str(&metadata["model"]).unwrap(),
            train: serde_json::from_str(&metadata["train"]).unwrap(),
            tensors,
        }
    }

    fn values<T: candle_core::WithDType>(&self, name: &str) -> Vec<T> {
        let tensor = &self.tensors[name];
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    /// The model with PyTorch's initial weights.
    fn start(&self, backend: Backend) -> Model {
        let vocab_size = self.train.vocab_size;
        let mut model =
            Model::with_backend(&self.model, vocab_size, &Device::Cpu, backend).unwrap();
        let infos = model.params().infos().to_vec();
        let fill = |weights: &mut [f32]| {
            for info in &infos {
                let name = format!("weight.{}", info.name);
                assert_eq!(self.tensors[&name].dims(), info.shape, "{name}");
                let part = &mut weights[info.offset..info.offset + info.len];
                part.copy_from_slice(&self.values::<f32>(&name));
            }
        };
        model.params_mut().write_weights(fill).unwrap();
        model
    }

    /// Inputs and targets of a step: windows of the stream, each `stride` after the previous one.
    fn batch(&self, stream: &[u32], step: u64) -> (Vec<u32>, Vec<u32>) {
        let (rows, seq_len) = (self.train.batch_size, self.model.seq_len);
        let window = |row: usize, shift: usize| {
            let start = (step as usize * rows + row) * self.train.stride % (stream.len() - seq_len);
            &stream[start + shift..start + shift + seq_len]
        };
        let all = |shift| {
            (0..rows)
                .flat_map(|row| window(row, shift).to_vec())
                .collect()
        };
        (all(0), all(1))
    }
}

/// Results of a run.
#[derive(Debug, Default)]
struct Record {
    losses: Vec<f64>,
    norms: Vec<f64>,
    final_norm: f64,
}

/// Trains as the fixture specifies, for `steps` steps.
fn train(fixture: &Fixture, backend: Backend, steps: u64) -> Record {
    train_in(fixture, backend, ComputeDtype::F32, steps)
}

fn train_in(fixture: &Fixture, backend: Backend, arithmetic: ComputeDtype, steps: u64) -> Record {
    let settings = &fixture.train;
    let mut model = fixture.start(backend);
    model.set_compute_dtype(arithmetic).unwrap();
    let optimizer = OptimizerConfig::AdamW(
        serde_json::from_value(serde_json::json!({
            "lr": settings.lr, "beta1": settings.beta1, "beta2": settings.beta2,
            "eps": settings.eps, "weight_decay": settings.weight_decay,
        }))
        .unwrap(),
    );
    let schedule: ScheduleConfig = serde_json::from_value(serde_json::json!({
        "cosine": { "warmup_steps": settings.warmup_steps, "min_lr": settings.min_lr },
    }))
    .unwrap();
    let mut rule = optimizer.build(model.params()).unwrap();
    let stream = fixture.values::<u32>("tokens");
    let mut record = Record::default();
    for step in 0..steps {
        let (inputs, targets) = fixture.batch(&stream, step);
        let batch = TokenBatch {
            inputs: &inputs,
            targets: &targets,
            batch_size: settings.batch_size,
            seq_len: fixture.model.seq_len,
            first: None,
            filled: None,
            temperature: 1.0,
        };
        model.params_mut().zero_grads().unwrap();
        let (loss, dlogp) = mean_loss(&model.forward(&batch).unwrap().logp);
        model.backward(&dlogp, None).unwrap();
        let norm = model.params().grad_norm().unwrap();
        let lr = schedule.lr_at(step, settings.steps, settings.lr);
        let scale = clip_scale(norm, settings.clip_norm);
        rule.step(model.params_mut(), lr, scale).unwrap();
        record.losses.push(loss);
        record.norms.push(norm);
    }
    let squares = |w: &[f32]| w.iter().map(|&w| f64::from(w).powi(2)).sum::<f64>();
    record.final_norm = model.params().read_weights(squares).unwrap().sqrt();
    record
}

/// Mean negative log-probability, and its gradient.
fn mean_loss(logp: &Tensor) -> (f64, Tensor) {
    let values: Vec<f32> = logp.flatten_all().unwrap().to_vec1().unwrap();
    let n = values.len();
    let sum: f64 = values.iter().map(|&x| f64::from(x)).sum();
    let dlogp = Tensor::full(-1.0 / n as f32, logp.shape(), &Device::Cpu).unwrap();
    (-sum / n as f64, dlogp)
}

/// The largest difference from PyTorch's losses.
fn distance(fixture: &Fixture, record: &Record) -> f64 {
    let exact = fixture.values::<f64>("loss");
    let pairs = record.losses.iter().zip(&exact);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn assert_start_agrees(fixture: &Fixture, backend: Backend) {
    let mut model = fixture.start(backend);
    let stream = fixture.values::<u32>("tokens");
    let (inputs, targets) = fixture.batch(&stream, 0);
    let (rows, seq_len) = (fixture.train.batch_size, fixture.model.seq_len);
    let logits = model.logits(&inputs, rows, seq_len).unwrap();
    let logits: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
    compare("logits", &logits, &fixture.values::<f32>("logits"));
    let batch = TokenBatch {
        inputs: &inputs,
        targets: &targets,
        batch_size: rows,
        seq_len,
        first: None,
        filled: None,
        temperature: 1.0,
    };
    let (_, dlogp) = mean_loss(&model.forward(&batch).unwrap().logp);
    model.backward(&dlogp, None).unwrap();
    for info in model.params().infos() {
        let grad = model.params().grad(info).unwrap();
        let grad: Vec<f32> = grad.flatten_all().unwrap().to_vec1().unwrap();
        let name = format!("grad.{}", info.name);
        compare(&name, &grad, &fixture.values::<f32>(&name));
    }
}

/// The rounding of a sum grows with its largest terms, so small values next to large ones are compared at their scale: orders of
/// summation differ between programs.
fn compare(name: &str, values: &[f32], exact: &[f32]) {
    assert_eq!(values.len(), exact.len(), "{name}");
    let largest = exact.iter().fold(1.0_f32, |top, x| top.max(x.abs()));
    let tolerance = TOLERANCE * f64::from(largest);
    for (i, (a, b)) in values.iter().zip(exact).enumerate() {
        let error = f64::from((a - b).abs());
        assert!(error <= tolerance, "{name}[{i}]: {a}, PyTorch has {b}");
    }
}

fn assert_run_agrees(name: &str) {
    let fixture = Fixture::load(name);
    assert_start_agrees(&fixture, Backend::Fused);
    assert_start_agrees(&fixture, Backend::Composite);
    let record = train(&fixture, Backend::Fused, fixture.train.steps);
    let distance = distance(&fixture, &record);
    assert!(
        distance <= TOLERANCE,
        "{name}: losses differ by {distance:e}"
    );
    let clip = fixture.train.clip_norm;
    let clipped = record.norms.iter().filter(|&&norm| norm > clip).count();
    assert!(
        (10..290).contains(&clipped),
        "{name}: clipped {clipped} of 300"
    );
    let torch_clipped = fixture.values::<f64>("norm");
    let torch_clipped = torch_clipped.iter().filter(|&&norm| norm > clip).count();
    assert_eq!(
        clipped, torch_clipped,
        "{name}: steps in which clipping acts"
    );
    let exact = fixture.values::<f64>("final_norm")[0];
    assert!((record.final_norm / exact - 1.0).abs() < 1e-5);
}

#[test]
fn a_gpt2_style_model_trains_as_in_pytorch() {
    assert_run_agrees("gpt2");
}

#[test]
fn a_llama_style_model_trains_as_in_pytorch() {
    assert_run_agrees("llama");
}

/// The name of a mistake, and a function that makes it.
type Mistake = (&'static str, fn(&mut Fixture));

const MISTAKES: [Mistake; 7] = [
    ("learning rate × 1.0001", |f| {
        f.train.lr *= 1.0001;
        f.train.min_lr *= 1.0001;
    }),
    ("another beta2", |f| f.train.beta2 = 0.98),
    ("no clipping", |f| f.train.clip_norm = 0.0),
    ("another eps", |f| f.train.eps = 1e-8),
    ("no weight decay", |f| f.train.weight_decay = 0.0),
    ("another norm eps", |f| {
        let eps = serde_json::json!({ "eps": 2e-5 });
        f.model.norm = match f.model.norm {
            NormConfig::LayerNorm(_) => NormConfig::LayerNorm(serde_json::from_value(eps).unwrap()),
            NormConfig::RmsNorm(_) => NormConfig::RmsNorm(serde_json::from_value(eps).unwrap()),
        };
    }),
    ("another data order", |f| f.train.stride = 41),
];

#[test]
fn every_mistake_is_detected() {
    for name in ["gpt2", "llama"] {
        for (what, make) in MISTAKES {
            let mut fixture = Fixture::load(name);
            make(&mut fixture);
            let record = train(&fixture, Backend::Fused, fixture.train.steps);
            let distance = distance(&fixture, &record);
            println!("{name}: {what}: losses differ by {distance:e}");
            assert!(
                distance > 2.0 * TOLERANCE,
                "{name}: {what} goes unseen: losses differ by {distance:e} only"
            );
        }
    }
}

/// Largest difference of a loss from PyTorch's f32 losses with bf16 matmuls: two such roundings differ by 2⁻⁹ of an
/// input, and 300 steps of updates accumulate it.
const BF16_LOSS: f64 = 2e-3;
/// Mean of the same differences, in absolute value: errors must not be biased.
const BF16_MEAN_LOSS: f64 = 2e-4;
/// Least cosine between the gradients of the first step in f32 and bf16, per tensor and in total.
const BF16_COSINE: (f64, f64) = (0.999, 0.9999);

#[test]
fn bf16_matmuls_stay_close_to_pytorchs_f32() {
    for name in ["gpt2", "llama"] {
        let fixture = Fixture::load(name);
        let record = train_in(
            &fixture,
            Backend::Fused,
            ComputeDtype::Bf16,
            fixture.train.steps,
        );
        let exact = fixture.values::<f64>("loss");
        let errors: Vec<f64> = record
            .losses
            .iter()
            .zip(&exact)
            .map(|(a, b)| a - b)
            .collect();
        let largest = errors.iter().fold(0.0_f64, |max, e| max.max(e.abs()));
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        println!("{name}: losses differ by {largest:.2e} at most, {mean:+.2e} in the mean");
        assert!(largest <= BF16_LOSS, "{name}: {largest}");
        assert!(mean.abs() <= BF16_MEAN_LOSS, "{name}: {mean}");
        assert!(largest > TOLERANCE, "{name}: is this bf16 at all?");
    }
}

#[test]
fn bf16_gradients_have_the_direction_of_f32_gradients() {
    for name in ["gpt2", "llama"] {
        let fixture = Fixture::load(name);
        let [exact, rounded] =
            [ComputeDtype::F32, ComputeDtype::Bf16].map(|a| first_gradient(&fixture, a));
        let whole = cosine(&exact, &rounded);
        println!("{name}: cosine {whole:.6}");
        assert!(whole >= BF16_COSINE.1, "{name}: {whole}");
        for info in fixture.start(Backend::Fused).params().infos() {
            let range = info.offset..info.offset + info.len;
            let cosine = cosine(&exact[range.clone()], &rounded[range]);
            assert!(cosine >= BF16_COSINE.0, "{name}: {}: {cosine}", info.name);
        }
    }
}

fn first_gradient(fixture: &Fixture, arithmetic: ComputeDtype) -> Vec<f32> {
    let mut model = fixture.start(Backend::Fused);
    model.set_compute_dtype(arithmetic).unwrap();
    let (inputs, targets) = fixture.batch(&fixture.values::<u32>("tokens"), 0);
    let batch = TokenBatch {
        inputs: &inputs,
        targets: &targets,
        batch_size: fixture.train.batch_size,
        seq_len: fixture.model.seq_len,
        first: None,
        filled: None,
        temperature: 1.0,
    };
    let (_, dlogp) = mean_loss(&model.forward(&batch).unwrap().logp);
    model.backward(&dlogp, None).unwrap();
    model.params().read_grads(<[f32]>::to_vec).unwrap()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// One decoder per model option, made by `tests/oracle/options_oracle.py`.
#[test]
fn every_option_computes_what_pytorch_and_transformers_do() {
    let of = |file: &str, least: usize| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle");
        assert_options_agree(&Path::new(folder).join(file), least);
    };
    of("options.safetensors", 17);
    of("options_scales.safetensors", 6);
}

fn assert_options_agree(path: &Path, least: usize) {
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let models = &header.metadata().clone().unwrap()["models"];
    let models: HashMap<String, ModelConfig> = serde_json::from_str(models).unwrap();
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap();
    assert!(models.len() >= least);
    for (name, config) in &models {
        for backend in [Backend::Fused, Backend::Composite] {
            assert_option_agrees(name, config, backend, &tensors);
        }
    }
}

fn assert_option_agrees(
    name: &str,
    config: &ModelConfig,
    backend: Backend,
    tensors: &HashMap<String, Tensor>,
) {
    let floats =
        |name: String| -> Vec<f32> { tensors[&name].flatten_all().unwrap().to_vec1().unwrap() };
    let ids = |name: &str| -> Vec<u32> { tensors[name].flatten_all().unwrap().to_vec1().unwrap() };
    let (inputs, targets) = (ids("tokens"), ids("targets"));
    let mut model = Model::with_backend(config, 11, &Device::Cpu, backend).unwrap();
    let infos = model.params().infos().to_vec();
    let fill = |weights: &mut [f32]| {
        for info in &infos {
            let part = &mut weights[info.offset..info.offset + info.len];
            part.copy_from_slice(&floats(format!("{name}/weight.{}", info.name)));
        }
    };
    model.params_mut().write_weights(fill).unwrap();
    let logits = model.logits(&inputs, 2, 12).unwrap();
    let logits: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
    let what = format!("{name} on {backend:?}");
    compare(
        &format!("logits of {what}"),
        &logits,
        &floats(format!("{name}/logits")),
    );
    let batch = TokenBatch::plain(&inputs, &targets, 2, 12);
    let (_, dlogp) = mean_loss(&model.forward(&batch).unwrap().logp);
    model.backward(&dlogp, None).unwrap();
    for info in model.params().infos() {
        let grad = model.params().grad(info).unwrap();
        let grad: Vec<f32> = grad.flatten_all().unwrap().to_vec1().unwrap();
        let exact = floats(format!("{name}/grad.{}", info.name));
        compare(
            &format!("gradient by {} of {what}", info.name),
            &grad,
            &exact,
        );
    }
}

#[derive(serde::Deserialize)]
struct Adapted {
    model: ModelConfig,
    adapter: AdapterConfig,
}

/// Frozen decoders with LoRA, made by `tests/oracle/lora_oracle.py`.
#[test]
fn adapters_have_pytorchs_gradients() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/lora.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let cases = header.metadata().clone().unwrap();
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap();
    assert_eq!(cases.len(), 3);
    for (name, case) in &cases {
        let case: Adapted = serde_json::from_str(case).unwrap();
        for backend in [Backend::Fused, Backend::Composite] {
            assert_adapters_agree(name, &case, backend, &tensors);
        }
    }
}

fn assert_adapters_agree(
    name: &str,
    case: &Adapted,
    backend: Backend,
    tensors: &HashMap<String, Tensor>,
) {
    let floats = |name: String| -> Vec<f32> {
        let tensor = tensors.get(&name).unwrap_or_else(|| panic!("no {name}"));
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    };
    let ids = |name: &str| -> Vec<u32> { tensors[name].flatten_all().unwrap().to_vec1().unwrap() };
    let (inputs, targets) = (ids("tokens"), ids("targets"));
    let mut model = Model::with_backend(&case.model, 11, &Device::Cpu, backend).unwrap();
    model.adapt(&case.adapter).unwrap();
    let infos = model.params().infos().to_vec();
    let fill = |weights: &mut [f32]| {
        for info in &infos {
            let part = &mut weights[info.offset..info.offset + info.len];
            part.copy_from_slice(&floats(format!("{name}/weight.{}", info.name)));
        }
    };
    model.params_mut().write_weights(fill).unwrap();
    let logits = model.logits(&inputs, 2, 10).unwrap();
    let logits: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
    let what = format!("{name} on {backend:?}");
    let exact = floats(format!("{name}/logits"));
    compare(&format!("logits of {what}"), &logits, &exact);
    let batch = TokenBatch::plain(&inputs, &targets, 2, 10);
    let (_, dlogp) = mean_loss(&model.forward(&batch).unwrap().logp);
    model.backward(&dlogp, None).unwrap();
    let found: Vec<&str> = model.params().trainable().map(|i| &*i.name).collect();
    let prefix = format!("{name}/grad.");
    let theirs = tensors.keys().filter(|key| key.starts_with(&prefix));
    assert_eq!(found.len(), theirs.count(), "{what}: {found:?}");
    for info in model.params().trainable() {
        let grad = model.params().grad(info).unwrap();
        let grad: Vec<f32> = grad.flatten_all().unwrap().to_vec1().unwrap();
        let exact = floats(format!("{name}/grad.{}", info.name));
        let what = format!("gradient with respect to {} of {what}", info.name);
        compare(&what, &grad, &exact);
    }
}
