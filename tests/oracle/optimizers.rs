//! Twenty updates by every optimizer against reference code. `tests/oracle/optimizers_oracle.py` made the fixture.

use super::tensors_of;
use llmtui::kernels::adamw::Rule;
use llmtui::kernels::adamw8bit::{self, BLOCK, Moment, ZERO_MEAN, ZERO_SQUARE};
use llmtui::kernels::update::Part;
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

/// Rows of an embedding whose tokens come rarely: tiny gradients and zeros beside large ones in the same block.
/// `tests/oracle/adamw8bit_oracle.py` made the fixture.
#[test]
fn moments_in_8_bits_move_rare_rows_no_farther_than_adamw() {
    let (metadata, tensors) = tensors_of("adamw8bit");
    let steps: u64 = metadata["steps"].parse().unwrap();
    let lr = metadata["lr"].parse().unwrap();
    let flat = |name: &str| -> Vec<f32> {
        let tensor = tensors[name].flatten_all().unwrap();
        tensor.to_vec1().unwrap()
    };
    let init = flat("init");
    let mut weights = init.clone();
    let n_blocks = weights.len().div_ceil(BLOCK);
    let mut codes = [ZERO_MEAN, ZERO_SQUARE].map(|zero| vec![zero; init.len()]);
    let mut scales = [vec![0.0; n_blocks], vec![0.0; n_blocks]];
    let (rule, part) = rule_of_rare_rows(lr, init.len());
    for step in 1..=steps {
        let ([m, v], [m_scales, v_scales]) = (&mut codes, &mut scales);
        let moments = [(m, m_scales), (v, v_scales)];
        let moments = moments.map(|(codes, scales)| Moment { codes, scales });
        let grads = flat(&format!("grad/{}", step - 1));
        adamw8bit::update(&Rule { step, ..rule }, &part, &mut weights, &grads, moments);
    }
    let apart = |a: &[f32], b: &[f32]| {
        let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        apart.fold(0.0, f32::max)
    };
    let off = apart(&weights, &flat("adamw8bit"));
    assert!(off < 1e-6, "off by {off}");
    let [here, there] = [&weights, &flat("adamw")].map(|w| apart(w, &init));
    assert!(here < 1.1 * there, "moved by {here}, AdamW by {there}");
}

/// As the script has it.
fn rule_of_rare_rows(lr: f64, len: usize) -> (Rule, Part) {
    let rule = Rule {
        lr,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        grad_scale: 1.0,
        step: 0,
    };
    let part = Part {
        weights: 0,
        grads: 0,
        len,
        lr_scale: 1.0,
        weight_decay: 0.1,
    };
    (rule, part)
}
