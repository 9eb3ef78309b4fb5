//! Properties of every update rule, and a small model to test them on.

use super::*;
use crate::nn::{Model, ModelConfig};
use candle_core::Device;

/// Every rule with its defaults.
fn all() -> Vec<OptimizerConfig> {
    let config = |word: &str| serde_json::from_value(serde_json::json!({word: {}})).unwrap();
    let words = OptimizerConfig::ENTRIES.iter().map(|entry| entry.id);
    words.map(config).collect()
}

/// PyTorch ranks receive β1, β2 and ε, or settings of their own.
#[test]
fn declared_properties_of_rules_are_consistent() {
    for rule in all() {
        let id = rule.entry().id;
        let adam = rule.adam_betas().is_some() && rule.epsilon().is_some();
        let known = adam || rule.for_ranks().is_some();
        assert!(known || !rule.on_torch(), "{id}");
        let settings = serde_json::to_value(&rule).unwrap();
        if let Some(epsilon) = rule.epsilon() {
            assert_eq!(settings[id][epsilon.key], epsilon.value, "{id}");
        } else {
            assert!(
                settings[id].get("eps").is_none(),
                "{id} divides by something"
            );
        }
        assert!(!rule.state_summary().is_empty());
    }
}

pub fn model() -> Model {
    let config = ModelConfig {
        n_layer: 1,
        n_head: 2,
        d_model: 8,
        seq_len: 4,
        bias: true,
        ..Default::default()
    };
    let mut model = Model::new(&config, 5, &Device::Cpu).unwrap();
    model.init(1).unwrap();
    model
}

/// The given updates of a made-up run: gradients are a function of the step.
pub fn update(model: &mut Model, rule: &mut dyn UpdateRule, steps: std::ops::Range<u64>) {
    for step in steps {
        let fill = |grads: &mut [f32]| {
            for (i, g) in grads.iter_mut().enumerate() {
                *g = ((i as u64 * 7 + step * 13) as f32).sin();
            }
        };
        model.params_mut().write_grads(fill).unwrap();
        rule.step(model.params_mut(), 0.01, 0.7).unwrap();
    }
}

pub fn state(rule: &dyn UpdateRule) -> Vec<(&'static str, Vec<u32>)> {
    let read = |part: &StatePart| {
        let mut bits = Vec::new();
        let mut take = |values: &[f32]| bits = values.iter().map(|v| v.to_bits()).collect();
        rule.read_state(part.name, &mut take).unwrap();
        assert_eq!(bits.len(), part.len, "{}", part.name);
        (part.name, bits)
    };
    rule.state().iter().map(read).collect()
}

pub fn take_up(rule: &mut dyn UpdateRule, from: &dyn UpdateRule) {
    for (name, bits) in state(from) {
        let mut fill = |values: &mut [f32]| {
            for (v, b) in values.iter_mut().zip(&bits) {
                *v = f32::from_bits(*b);
            }
        };
        rule.write_state(name, &mut fill).unwrap();
    }
}

pub fn weights(model: &Model) -> Vec<u32> {
    let bits = |w: &[f32]| w.iter().map(|w| w.to_bits()).collect();
    model.params().read_weights(bits).unwrap()
}

#[test]
fn a_rule_with_restored_state_continues_bit_for_bit() {
    for config in all() {
        let mut whole = model();
        let mut rule = config.build(whole.params()).unwrap();
        update(&mut whole, &mut *rule, 0..6);

        let mut halves = model();
        let mut first = config.build(halves.params()).unwrap();
        update(&mut halves, &mut *first, 0..3);
        let mut second = config.build(halves.params()).unwrap();
        take_up(&mut *second, &*first);
        update(&mut halves, &mut *second, 3..6);
        assert_eq!(weights(&whole), weights(&halves));
        assert_eq!(state(&*rule), state(&*second));
    }
}

#[test]
fn a_rule_holds_the_declared_state_and_only_for_the_trainable_set() {
    for config in all() {
        let mut model = model();
        for trained in [1, 2] {
            let rule = config.build(model.params()).unwrap();
            let n = model.params().n_trainable();
            let parts = rule.state();
            let held: usize = parts.iter().map(|p| p.len).filter(|len| *len > 4).sum();
            let infos = model.params().infos();
            let saved = config.saved_bytes(infos) as usize;
            let id = config.entry().id;
            assert_eq!(4 * held, saved, "{id} {trained}");
            // Codes of a byte are saved three to an f32.
            let announced = config.state_bytes(infos) as usize;
            match id == "adamw8bit" {
                true => assert!((saved - announced).abs_diff(2 * n / 3) < 16, "{saved} {n}"),
                false => assert_eq!(saved, announced, "{id} {trained}"),
            }
            model.train_only(|info| info.layer.is_some()).unwrap();
        }
    }
}

#[test]
fn a_rule_changes_only_the_trainable_set() {
    for config in all() {
        let mut model = model();
        model.train_only(|info| info.layer.is_some()).unwrap();
        let before = weights(&model);
        let mut rule = config.build(model.params()).unwrap();
        update(&mut model, &mut *rule, 0..3);
        let after = weights(&model);
        let params = model.params();
        for info in params.infos() {
            let range = info.offset..info.offset + info.len;
            let moved = before[range.clone()] != after[range];
            assert_eq!(moved, info.trains(), "{}", info.name);
        }
        assert_eq!(rule.last_norms().len(), params.trainable().count());
    }
}

#[test]
fn adapters_change_and_their_base_does_not() {
    let adapter = serde_json::json!({"lora": {"rank": 2, "dropout": 0.0}});
    let adapter = serde_json::from_value(adapter).unwrap();
    for config in all() {
        let mut model = model();
        model.adapt(&adapter).unwrap();
        model.init(1).unwrap();
        let n_base: usize = model.params().base().iter().map(|i| i.len).sum();
        let before = weights(&model);
        let mut rule = config.build(model.params()).unwrap();
        update(&mut model, &mut *rule, 0..3);
        let after = weights(&model);
        assert!(before[..n_base] == after[..n_base]);
        let moved = before[n_base..].iter().zip(&after[n_base..]);
        assert!(moved.filter(|(a, b)| a != b).count() > (after.len() - n_base) / 2);
    }
}

/// DeepSeek-V3 adds ±γ to a bias after each update: no rule may take it back, nor an average lag behind it.
#[test]
fn a_bias_that_balances_experts_is_the_sum_of_what_its_rule_added() {
    for config in all() {
        let moe = serde_json::json!({
            "n_layer": 1, "n_head": 2, "d_model": 8, "seq_len": 4,
            "moe": {"n_expert": 4, "top_k": 2, "balancing": {"bias": {"rate": 0.25}}},
        });
        let mut model = Model::new(&serde_json::from_value(moe).unwrap(), 5, &Device::Cpu).unwrap();
        model.init(1).unwrap();
        let bias = model.params().infos().iter();
        let bias = bias.clone().find(|info| info.is_balancing_bias()).unwrap();
        let (at, grads) = (bias.offset..bias.offset + bias.len, bias.grad.unwrap());
        let mut rule = config.build(model.params()).unwrap();
        for step in 0..5 {
            let fill = |all: &mut [f32]| {
                all.fill(0.01);
                all[grads..grads + at.len()].fill(0.0);
            };
            model.params_mut().write_grads(fill).unwrap();
            rule.step(model.params_mut(), 0.01, 1.0).unwrap();
            let add = |weights: &mut [f32]| weights[at.clone()].iter_mut().for_each(|b| *b += 0.25);
            model.params_mut().write_weights(add).unwrap();
            for shown in [true, false] {
                rule.show_average(model.params_mut(), shown).unwrap();
                let now = model.params().read_weights(|w| w[at.clone()].to_vec());
                let expected = vec![0.25 * (step + 1) as f32; 4];
                assert_eq!(now.unwrap(), expected, "{} {shown}", config.entry().id);
            }
        }
    }
}

#[test]
fn a_group_has_its_own_learning_rate() {
    for config in all() {
        let step = |scale: f64| {
            let mut model = model();
            let before = model.params().read_weights(<[f32]>::to_vec).unwrap();
            let mut groups = groups::by_decay(model.params(), 0.0);
            groups[0].lr_scale = scale;
            let mut rule = config.build_grouped(model.params(), &groups).unwrap();
            update(&mut model, &mut *rule, 0..1);
            let after = model.params().read_weights(<[f32]>::to_vec).unwrap();
            let moved = after.iter().zip(&before).map(|(a, b)| f64::from(a - b));
            (moved.collect::<Vec<_>>(), model)
        };
        let ((whole, model), (half, _)) = (step(1.0), step(0.5));
        for info in model.params().infos() {
            let factor = if info.decay { 0.5 } else { 1.0 };
            for i in info.offset..info.offset + info.len {
                let off = (half[i] - factor * whole[i]).abs();
                assert!(off < 1e-6, "{}: {} of {}", info.name, half[i], whole[i]);
            }
        }
    }
}

#[test]
fn clipping_scales_only_what_is_too_long() {
    assert_eq!(clip_scale(0.9, 1.0), 1.0);
    assert_eq!(clip_scale(5.0, 0.0), 1.0, "0 is off");
    assert!((clip_scale(4.0, 1.0) - 0.25).abs() < 1e-6);
    assert!(clip_scale(f64::NAN, 1.0).is_nan());
    assert_eq!(clip_scale(f64::INFINITY, 1.0), 0.0);
}

/// Probes compare the gradient with it: it must not be for other weights or in another basis.
#[test]
fn the_mean_gradient_of_a_rule_points_where_gradients_do() {
    let mut with_one = Vec::new();
    for config in all() {
        let mut model = model();
        let mut rule = config.build(model.params()).unwrap();
        let gradient = |i: usize| (i as f32 * 0.37).sin();
        for _ in 0..5 {
            let fill = |grads: &mut [f32]| {
                grads
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, g)| *g = gradient(i));
            };
            model.params_mut().write_grads(fill).unwrap();
            rule.step(model.params_mut(), 1e-3, 1.0).unwrap();
        }
        let Some(part) = rule.mean_gradient() else {
            continue;
        };
        with_one.push(config.entry().id);
        let mut mean = Vec::new();
        rule.read_state(part, &mut |values| mean = values.to_vec())
            .unwrap();
        assert_eq!(mean.len(), model.params().n_trainable());
        let dot = |f: &dyn Fn(usize) -> f32, g: &dyn Fn(usize) -> f32| {
            (0..mean.len()).map(|i| f64::from(f(i) * g(i))).sum::<f64>()
        };
        let m = |i: usize| mean[i];
        let cosine = dot(&m, &gradient) / (dot(&m, &m) * dot(&gradient, &gradient)).sqrt();
        // Muon keeps sums in addition to AdamW's means.
        assert!(cosine > 0.9, "{part}: {cosine}");
    }
    assert_eq!(with_one, ["adamw", "muon", "lion", "sophia"]);
}
