//! Twenty updates by every optimizer against reference code. `tests/oracle/optimizers_oracle.py` made the fixture.

use super::tensors_of;
use llmtui::nn::{Model, ModelConfig};
use llmtui::optim::OptimizerConfig;
use std::collections::{BTreeMap, BTreeSet};

#[derive(serde::Deserialize)]
struct Case {
    optimizer: OptimizerConfig,
    lr: f64,
}

#[test]
fn twenty_updates_are_those_of_the_reference() {
    let (metadata, tensors) = tensors_of("optimizers");
    let config: ModelConfig = serde_json::from_str(&metadata["model"]).unwrap();
    let vocab_size = metadata["vocab_size"].parse().unwrap();
    let steps: usize = metadata["steps"].parse().unwrap();
    let labels: f64 = metadata["labels"].parse().unwrap();
    let cases: BTreeMap<String, Case> = serde_json::from_str(&metadata["cases"]).unwrap();
    let flat = |name: String| -> Vec<f32> {
        let tensor = tensors[&name].flatten_all().unwrap();
        tensor.to_vec1().unwrap()
    };
    let mut seen = BTreeSet::new();
    for (name, case) in &cases {
        seen.insert(case.optimizer.entry().id);
        let mut model = Model::new(&config, vocab_size, &candle_core::Device::Cpu).unwrap();
        let infos = model.params().infos().to_vec();
        let mut rule = case.optimizer.build(model.params()).unwrap();
        let init = |weights: &mut [f32]| {
            for info in &infos {
                let values = flat(format!("init/{}", info.name));
                weights[info.offset..info.offset + info.len].copy_from_slice(&values);
            }
        };
        model.params_mut().write_weights(init).unwrap();
        for step in 0..steps {
            if rule.wants_curvature() {
                let fill = |grads: &mut [f32]| {
                    for info in &infos {
                        let at = info.grad.unwrap();
                        let values = flat(format!("drawn/{step}/{}", info.name));
                        grads[at..at + info.len].copy_from_slice(&values);
                    }
                };
                model.params_mut().write_grads(fill).unwrap();
                rule.take_curvature(model.params(), labels).unwrap();
            }
            let fill = |grads: &mut [f32]| {
                for info in &infos {
                    let at = info.grad.unwrap();
                    let values = flat(format!("grad/{step}/{}", info.name));
                    grads[at..at + info.len].copy_from_slice(&values);
                }
            };
            model.params_mut().write_grads(fill).unwrap();
            // The schedule-free reference warms up over four steps.
            let warm_up = match name.starts_with("schedule_free") {
                true => ((step + 1) as f64 / 4.0).min(1.0),
                false => 1.0,
            };
            rule.step(model.params_mut(), case.lr * warm_up, 1.0)
                .unwrap();
        }
        if name.ends_with("average") {
            rule.show_average(model.params_mut(), true).unwrap();
        }
        let found = model.params().read_weights(<[f32]>::to_vec).unwrap();
        let mut largest = 0.0_f32;
        for info in &infos {
            let known = flat(format!("{name}/{}", info.name));
            for (a, b) in found[info.offset..info.offset + info.len]
                .iter()
                .zip(&known)
            {
                largest = largest.max((a - b).abs());
            }
        }
        println!("{name}: {largest:.1e}");
        assert!(largest < 1e-6, "{name}: off by {largest}");
    }
    let all: BTreeSet<_> = OptimizerConfig::ENTRIES.iter().map(|e| e.id).collect();
    assert_eq!(seen, all, "an optimizer without a reference");
}
