//! Probes and spectra against PyTorch and numpy: one step of a small llama in four micro-batches. `tests/oracle/health_oracle.py`
//! made the fixture.

use super::tensors_of;
use llmtui::base::clock::ManualClock;
use llmtui::data::Batch;
use llmtui::engine::update::{At, Rates, apply, gradients_seen};
use llmtui::kernels::spectrum;
use llmtui::methods::MethodConfig;
use llmtui::metrics::estimators::{alpha, spectrum::of_eigenvalues};
use llmtui::nn::{Model, ModelConfig};
use llmtui::optim::OptimizerConfig;
use llmtui::probes::{Probes, Setup};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum Known {
    One(f64),
    Layers(Vec<f64>),
}

/// Relative tolerance of f32 passes against f64 ones.
const RELATIVE: f64 = 2e-4;

fn close(name: &str, found: f64, known: f64, tolerance: f64) {
    let within = (found - known).abs() <= tolerance * known.abs().max(1e-3);
    assert!(within, "{name}: {found}, PyTorch has {known}");
}

#[test]
fn probes_see_what_pytorch_sees() {
    let (metadata, tensors) = tensors_of("health");
    let config: ModelConfig = serde_json::from_str(&metadata["model"]).unwrap();
    let vocab_size = metadata["vocab_size"].parse().unwrap();
    let known: BTreeMap<String, Known> = serde_json::from_str(&metadata["values"]).unwrap();
    let mut model = Model::new(&config, vocab_size, &candle_core::Device::Cpu).unwrap();
    let infos = model.params().infos().to_vec();
    let flat = |name: &str| tensors[name].flatten_all().unwrap();
    let fill = |weights: &mut [f32]| {
        for info in &infos {
            let values = flat(&format!("weight.{}", info.name)).to_vec1().unwrap();
            weights[info.offset..info.offset + info.len].copy_from_slice(&values);
        }
    };
    model.params_mut().write_weights(fill).unwrap();
    let micro: usize = metadata["micro_batches"].parse().unwrap();
    let ids = |name: &str| flat(name).to_vec1::<u32>().unwrap();
    let (inputs, targets) = (ids("inputs"), ids("targets"));
    let n = inputs.len() / micro;
    let batches: Vec<Batch> = (0..micro)
        .map(|i| Batch {
            inputs: inputs[i * n..(i + 1) * n].to_vec(),
            targets: targets[i * n..(i + 1) * n].to_vec(),
            batch_size: n / config.seq_len,
            seq_len: config.seq_len,
            ..Batch::default()
        })
        .collect();
    let setup = Setup {
        n_layer: config.n_layer,
        params: &infos,
        micro_batches: micro,
        batch_tokens: inputs.len(),
        max_steps: 1,
        reference: None,
        remote: false,
    };
    let mut probes = Probes::new(&setup, (1, 1), Arc::new(ManualClock::default()));
    probes.begin(1, true);
    let method = MethodConfig::Pretrain(Default::default());
    let found = gradients_seen(&*method, &mut model, &batches, At::default(), &mut probes).unwrap();
    let mut rule = OptimizerConfig::AdamW(Default::default())
        .build(model.params())
        .unwrap();
    // Nothing is updated: the weights are those of the fixture.
    let rates = Rates {
        lr: 0.0,
        clip_norm: 0.0,
    };
    apply(&mut model, &mut *rule, found.norm, rates).unwrap();
    probes.step(found.loss, found.norm);
    probes.update(&model, &*rule).unwrap();
    let report = probes.report();
    for (id, known) in &known {
        // Ten iterations from a cold start have not converged.
        let tolerance = if id.starts_with("spectral") {
            0.05
        } else {
            RELATIVE
        };
        match known {
            Known::One(x) if id == "grad_norm" => close(id, found.norm, *x, tolerance),
            Known::One(x) => close(id, report.values[id].0, *x, tolerance),
            Known::Layers(all) => {
                let found = &report.layers[id];
                assert_eq!(found.len(), all.len(), "{id}");
                for (found, known) in found.iter().zip(all) {
                    close(id, found.0, *known, tolerance);
                }
            }
        }
    }
    assert!(known.len() > 15);
}

#[test]
fn spectra_and_their_exponents_are_those_of_numpy() {
    let (metadata, tensors) = tensors_of("health");
    let known: BTreeMap<String, BTreeMap<String, f64>> =
        serde_json::from_str(&metadata["spectra"]).unwrap();
    for (name, known) in &known {
        let tensor = &tensors[&format!("weight.{name}")];
        let (rows, cols) = tensor.dims2().unwrap();
        let values: Vec<f32> = tensor.flatten_all().unwrap().to_vec1().unwrap();
        let eigenvalues = spectrum::eigenvalues(&values, rows, cols);
        let found = of_eigenvalues(&eigenvalues).unwrap();
        let fit = alpha::ks(&eigenvalues).unwrap();
        let mut vector = vec![1.0; cols];
        let power = spectrum::spectral_norm(&values, rows, cols, &mut vector, 500);
        for (what, value) in [
            ("spectral_norm", found.spectral_norm),
            ("spectral_norm", power),
            ("stable_rank", found.stable_rank),
            ("frobenius", found.frobenius),
            ("kl_sigma", found.kl_sigma),
            ("kl_energy", found.kl_energy),
            ("alpha", fit.alpha),
            ("distance", fit.distance),
        ] {
            close(&format!("{name} {what}"), value, known[what], 1e-5);
        }
    }
    assert!(known.len() > 10);
}
