//! DPO against PyTorch: losses, readings and gradients of five updates. `tests/oracle/dpo_oracle.py` made the fixture.

use super::{TOLERANCE, tensors_of};
use candle_core::{Device, Tensor};
use llmtui::data::{Batch, Origin, Unit};
use llmtui::engine::roles::{Models, Reference};
use llmtui::engine::update::{At, Rates, apply, gradients};
use llmtui::methods::MethodConfig;
use llmtui::nn::{Backend, Model, ModelConfig};
use llmtui::optim::OptimizerConfig;
use std::collections::HashMap;

#[derive(Debug, serde::Deserialize)]
struct Run {
    vocab_size: usize,
    steps: u64,
    beta: f64,
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    clip_norm: f64,
}

fn values<T: candle_core::WithDType>(tensors: &HashMap<String, Tensor>, name: &str) -> Vec<T> {
    tensors[name].flatten_all().unwrap().to_vec1().unwrap()
}

/// Pairs row by row, chosen and rejected alternating.
fn batch(tensors: &HashMap<String, Tensor>, step: u64) -> Batch {
    let part = |name: &str| values::<u32>(tensors, &format!("{name}.{step}"));
    let (rows, seq_len) = tensors[&format!("inputs.{step}")].dims2().unwrap();
    let origin = |row: usize| Origin {
        held_out: false,
        source: 0,
        start: (step << 8) + row as u64,
    };
    Batch {
        inputs: part("inputs"),
        targets: part("targets"),
        mask: part("mask").iter().map(|counts| *counts == 1).collect(),
        batch_size: rows,
        seq_len,
        unit: Unit::Pair,
        sequence: (0..rows * seq_len).map(|i| (i / seq_len) as u32).collect(),
        origins: (0..rows).map(origin).collect(),
        ..Batch::default()
    }
}

/// Trains as the fixture specifies, in micro-batches of `pairs` pairs; returns the largest difference of a loss.
fn run(backend: Backend, beta: f64, pairs: usize) -> f64 {
    let (metadata, tensors) = tensors_of("dpo");
    let settings: Run = serde_json::from_str(&metadata["train"]).unwrap();
    let names: Vec<String> = serde_json::from_str(&metadata["readings"]).unwrap();
    let config: ModelConfig = serde_json::from_str(&metadata["model"]).unwrap();
    let cpu = Device::Cpu;
    let mut model = Model::with_backend(&config, settings.vocab_size, &cpu, backend).unwrap();
    let infos = model.params().infos().to_vec();
    let fill = |weights: &mut [f32]| {
        for info in &infos {
            let given = values::<f32>(&tensors, &format!("weight.{}", info.name));
            weights[info.offset..info.offset + info.len].copy_from_slice(&given);
        }
    };
    model.params_mut().write_weights(fill).unwrap();
    let method: MethodConfig =
        serde_json::from_value(serde_json::json!({"dpo": {"beta": beta}})).unwrap();
    let optimizer: OptimizerConfig = serde_json::from_value(serde_json::json!({"adamw": {
        "lr": settings.lr, "beta1": settings.beta1, "beta2": settings.beta2,
        "eps": settings.eps, "weight_decay": settings.weight_decay,
    }}))
    .unwrap();
    let mut rule = optimizer.build(model.params()).unwrap();
    let reference = Reference::Frozen(Box::new(model.frozen_copy().unwrap()));
    let mut models = Models {
        reference,
        ..Models::alone(model)
    };
    let losses = values::<f64>(&tensors, "loss");
    let readings = values::<f64>(&tensors, "readings");
    let mut distance = 0.0_f64;
    for step in 0..settings.steps {
        let mut batch = batch(&tensors, step);
        models.add_reference(&mut batch).unwrap();
        let batches = split(&batch, pairs);
        let found = gradients(&*method, &mut models.policy, &batches, At::default()).unwrap();
        let off = (found.loss - losses[step as usize]).abs();
        distance = distance.max(off);
        if beta == settings.beta {
            for (i, name) in names.iter().enumerate() {
                let exact = readings[step as usize * names.len() + i];
                let mean = found.readings.mean(name).unwrap();
                assert!((mean - exact).abs() <= TOLERANCE, "{name}: {mean}, {exact}");
            }
            if step == 0 || step == 4 {
                for info in &infos {
                    let grad = models.policy.params().grad(info).unwrap();
                    let grad: Vec<f32> = grad.flatten_all().unwrap().to_vec1().unwrap();
                    let name = format!("grad.{step}.{}", info.name);
                    super::compare(&name, &grad, &values::<f32>(&tensors, &name));
                }
            }
        }
        let rates = Rates {
            lr: settings.lr,
            clip_norm: settings.clip_norm,
        };
        apply(&mut models.policy, &mut *rule, found.norm, rates).unwrap();
    }
    distance
}

/// Splits a batch into micro-batches of `pairs` pairs.
fn split(batch: &Batch, pairs: usize) -> Vec<Batch> {
    let (rows, places) = (2 * pairs, 2 * pairs * batch.seq_len);
    let micro = |at: usize| {
        let (row, place) = (at * rows, at * places);
        let mut columns = batch.columns.clone();
        for column in &mut columns {
            column.values = column.values[row..row + rows].to_vec();
        }
        Batch {
            inputs: batch.inputs[place..place + places].to_vec(),
            targets: batch.targets[place..place + places].to_vec(),
            mask: batch.mask[place..place + places].to_vec(),
            sequence: batch.sequence[..places].to_vec(),
            origins: batch.origins[row..row + rows].to_vec(),
            batch_size: rows,
            columns,
            ..batch.clone()
        }
    };
    (0..batch.batch_size / rows).map(micro).collect()
}

#[test]
fn dpo_trains_as_in_pytorch_on_both_backends() {
    for backend in [Backend::Fused, Backend::Composite] {
        let distance = run(backend, 0.1, 4);
        assert!(distance <= TOLERANCE, "{backend:?}: {distance:e}");
    }
}

#[test]
fn dpo_in_micro_batches_equals_dpo_in_one_batch() {
    for pairs in [1, 2] {
        let distance = run(Backend::Fused, 0.1, pairs);
        assert!(distance <= TOLERANCE, "{pairs} pairs: {distance:e}");
    }
}

/// The comparison detects another temperature.
#[test]
fn another_beta_is_detected() {
    assert!(run(Backend::Fused, 0.102, 4) > TOLERANCE);
}
