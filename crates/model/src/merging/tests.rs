//! Each method against mergekit (`tests/oracle/merging_oracle.py`), and whole models.

use super::*;
use crate::nn::{Model, ModelConfig};
use serde_json::Value;
use std::ops::Range;

fn floats(value: &Value) -> Vec<f32> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn tensors_are_merged_as_mergekit_does() {
    let fixture = include_str!("../../../../tests/oracle/merging.json");
    let fixture: Value = serde_json::from_str(fixture).unwrap();
    let base = floats(&fixture["base"]);
    let all: Vec<Vec<f32>> = fixture["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(floats)
        .collect();
    let mut tested = std::collections::BTreeSet::new();
    for case in fixture["cases"].as_array().unwrap() {
        let word = case["method"].as_str().unwrap();
        let method = method(word).unwrap();
        tested.insert(word);
        let weights = case["weights"].as_array().map_or(vec![1.0; 2], |weights| {
            weights.iter().map(|w| w.as_f64().unwrap()).collect()
        });
        let mut settings = Settings::new(method, weights);
        let number = |key: &str| case[key].as_f64();
        settings.t = number("t").unwrap_or(settings.t);
        settings.density = number("density").unwrap_or(settings.density);
        settings.scale = number("lambda").unwrap_or(settings.scale);
        settings.normalize = case["normalize"].as_bool().unwrap_or(settings.normalize);
        let mut models = all.clone();
        if word == "slerp" {
            models.truncate(2);
            for (key, factor) in [("parallel", 1.5), ("opposite", -1.0)] {
                if case[key] == true {
                    models[1] = all[0].iter().map(|x| x * factor).collect();
                }
            }
        }
        let tensors = Tensors {
            at: 0,
            base: method.has_base.then_some(&base[..]),
            models: &models,
        };
        let mut out = vec![0.0; base.len()];
        (method.merge)(&tensors, &settings, &mut out);
        for (found, expected) in out.iter().zip(floats(&case["expected"])) {
            let off = (found - expected).abs();
            assert!(off <= 1e-6 * expected.abs().max(1.0), "{found} {case}");
        }
    }
    assert_eq!(tested.len(), METHODS.len(), "{tested:?}");
}

#[test]
fn changes_dropped_at_random_keep_their_mean_and_repeat() {
    let base = vec![0.0; 20_000];
    let models = vec![vec![1.0; base.len()]; 2];
    let merged = |seed: u64, at: usize| {
        let method = &task_arithmetic::DARE_LINEAR;
        let settings = Settings {
            density: 0.25,
            seed,
            ..Settings::new(method, vec![1.0, 1.0])
        };
        let tensors = Tensors {
            at,
            base: Some(&base),
            models: &models,
        };
        let mut out = vec![0.0; base.len()];
        (method.merge)(&tensors, &settings, &mut out);
        out
    };
    let first = merged(1, 0);
    let mean = first.iter().sum::<f32>() / first.len() as f32;
    assert!((mean - 2.0).abs() < 0.05, "{mean}");
    // Each model drops others: both, one or none.
    for value in [0.0, 4.0, 8.0] {
        assert!(first.contains(&value), "{value}");
    }
    assert_eq!(first, merged(1, 0));
    assert_ne!(first, merged(2, 0));
    assert_ne!(first, merged(1, 1));
}

fn model(seed: u64) -> Model {
    let config = serde_json::json!({"n_layer": 2, "n_head": 2, "d_model": 16, "seq_len": 8, "n_kv_head": 1, "position": {"rope": {}}, "norm": {"rmsnorm": {}}, "mlp": {"swiglu": {}}});
    let config: ModelConfig = serde_json::from_value(config).unwrap();
    let mut model = Model::new(&config, 20, &candle_core::Device::Cpu).unwrap();
    model.init(seed).unwrap();
    model
}

/// All tensors of models in memory.
fn merge(method: &Method, settings: &Settings, models: &mut [Model]) {
    let places = crate::hf::places(&models[0]);
    for (at, ranges) in places.iter().enumerate() {
        let of = |model: &Model| -> Vec<f32> {
            let weights = weights(model);
            let parts = ranges.iter().map(|range| &weights[range.clone()]);
            parts.flatten().copied().collect()
        };
        let values = models.iter().map(of).collect();
        let merged = super::merge(method, settings, at, values);
        let put = |weights: &mut [f32]| {
            let to = ranges.iter().flat_map(Range::clone);
            to.zip(merged).for_each(|(to, x)| weights[to] = x);
        };
        models[0].params_mut().write_weights(put).unwrap();
    }
}

fn weights(model: &Model) -> Vec<f32> {
    model.params().read_weights(<[f32]>::to_vec).unwrap()
}

#[test]
fn every_weight_of_a_model_is_merged() {
    let [a, b] = [model(1), model(2)];
    let expected: Vec<f32> = weights(&a)
        .iter()
        .zip(weights(&b))
        .map(|(a, b)| 0.25 * a + 0.75 * b)
        .collect();
    let mut models = [a, b];
    let settings = Settings::new(&linear::LINEAR, vec![1.0, 3.0]);
    merge(&linear::LINEAR, &settings, &mut models);
    let [merged, b] = models;
    assert_eq!(weights(&merged), expected);
    // All that a model has learned, taken back and added again.
    for (scale, to) in [(1.0, weights(&b)), (0.0, weights(&merged))] {
        let mut models = [self::model(1), model(2)];
        models[0]
            .params_mut()
            .write_weights(|own| own.copy_from_slice(&expected))
            .unwrap();
        let settings = Settings {
            scale,
            ..Settings::new(&task_arithmetic::TIES, vec![1.0])
        };
        merge(&task_arithmetic::TIES, &settings, &mut models);
        let off = weights(&models[0])
            .iter()
            .zip(to)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(off < 1e-6, "{scale}: {off}");
    }
}

#[test]
fn tensors_are_merged_as_files_have_them() {
    // Queries, keys and values are one matrix in memory, and three in files: each has its own largest changes.
    let (base, mut other) = (model(1), model(1));
    let places = crate::hf::places(&base);
    let all: usize = places.iter().flatten().map(Range::len).sum();
    assert_eq!(all, base.params().len(), "each weight once");
    let changed = |at: usize| 10.0 * (at % 7) as f32 + 1.0;
    other
        .params_mut()
        .write_weights(|weights| {
            for (at, ranges) in places.iter().enumerate() {
                for i in ranges.iter().flat_map(Clone::clone) {
                    weights[i] += changed(at);
                }
            }
        })
        .unwrap();
    let before = weights(&base);
    let mut models = [base, other];
    let settings = Settings {
        density: 0.5,
        ..Settings::new(&task_arithmetic::TIES, vec![1.0])
    };
    merge(&task_arithmetic::TIES, &settings, &mut models);
    let after = weights(&models[0]);
    for ranges in &places {
        let moved = ranges
            .iter()
            .flat_map(Clone::clone)
            .filter(|i| after[*i] != before[*i])
            .count();
        let len: usize = ranges.iter().map(Range::len).sum();
        assert_eq!(moved, (len / 2).max(1));
    }
}
