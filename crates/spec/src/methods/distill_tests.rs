//! The loss of a distillation and its readings, with a tiny student and teacher.

use super::tests::{MASK, TARGETS, rows, tiny_model};
use super::*;
use crate::nn::Teacher;
use serde_json::json;

fn config(says: serde_json::Value) -> distill::Config {
    serde_json::from_value(says).unwrap()
}

fn taught(config: &distill::Config, seed: u64) -> Model {
    let mut teacher = tiny_model();
    teacher.init(seed).unwrap();
    let mut model = tiny_model();
    model.set_teacher(Some(Teacher::new(teacher, config.divergence())));
    model
}

fn grads(model: &Model) -> Vec<f32> {
    model.params().read_grads(<[f32]>::to_vec).unwrap()
}

#[test]
fn training_and_evaluation_have_one_loss_and_readings() {
    for ce in [0.0, 0.5] {
        let config = config(json!({"beta": 0.3, "temperature": 1.5, "ce_weight": ce}));
        for mask in [&[][..], MASK] {
            let batch = rows(TARGETS, mask);
            let n = batch.supervised() as f64;
            let mut model = taught(&config, 8);
            let (mut trained, mut evaluated) = (Readings::default(), Readings::default());
            let loss = micro_step(&config, &mut model, &batch, n, &mut trained).unwrap();
            let out = model.score(&tokens(&batch)).unwrap();
            let again = evaluate(&config, &batch, &out, n, &mut evaluated).unwrap();
            assert!((loss - again).abs() < 1e-9, "{loss} {again}");
            for metric in config.readings() {
                let (a, b) = (trained.mean(metric.id), evaluated.mean(metric.id));
                assert!(a.is_some() && a == b, "{}: {a:?} {b:?}", metric.id);
            }
            let of = |id: &str| trained.mean(id).unwrap();
            assert!((of("cross_entropy") - likelihood(&batch, &out).unwrap()).abs() < 1e-6);
            let sum = of("divergence") + ce * of("cross_entropy");
            assert!((loss - sum).abs() < 1e-9, "{loss} {sum}");
        }
    }
}

/// With a weight so large that the divergence is nothing beside it, the gradient is that of SFT.
#[test]
fn the_cross_entropy_beside_it_is_that_of_sft() {
    let batch = rows(TARGETS, MASK);
    let n = batch.supervised() as f64;
    let of = |method: &dyn Method, mut model: Model| {
        micro_step(method, &mut model, &batch, n, &mut Readings::default()).unwrap();
        grads(&model)
    };
    let (none, some) = (config(json!({})), config(json!({"ce_weight": 2.0})));
    let (without, with) = (of(&none, taught(&none, 8)), of(&some, taught(&some, 8)));
    let sft = of(&sft::Config::default(), tiny_model());
    let largest = with.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    for ((a, b), c) in with.iter().zip(&without).zip(&sft) {
        assert!((a - b - 2.0 * c).abs() < 1e-5 * largest, "{a} {b} {c}");
    }
}

/// Its own answers say nothing of the data: their likelihood is neither learned nor reported.
#[test]
fn in_answers_of_the_student_only_the_divergence_counts() {
    let config = config(json!({"ce_weight": 2.0}));
    let mut batch = rows(TARGETS, MASK);
    batch.columns.push(crate::data::Column {
        name: policy::SAMPLER_LOGP,
        values: vec![0.0; batch.inputs.len()],
    });
    let n = batch.supervised() as f64;
    let mut readings = Readings::default();
    let mut model = taught(&config, 8);
    let loss = micro_step(&config, &mut model, &batch, n, &mut readings).unwrap();
    assert_eq!(Some(loss), readings.mean("divergence"));
    assert_eq!(readings.mean("cross_entropy"), None);
}

#[test]
fn a_step_towards_the_teacher_reduces_the_divergence() {
    for beta in [0.0, 0.5, 1.0] {
        let config = config(json!({ "beta": beta }));
        let batch = rows(TARGETS, &[]);
        let n = batch.supervised() as f64;
        let mut model = taught(&config, 8);
        let loss = |model: &mut Model| {
            model.params_mut().zero_grads().unwrap();
            micro_step(&config, model, &batch, n, &mut Readings::default()).unwrap()
        };
        let before = loss(&mut model);
        let slope = grads(&model);
        let step = |weights: &mut [f32]| {
            for (weight, slope) in weights.iter_mut().zip(&slope) {
                *weight -= 0.02 * slope;
            }
        };
        model.params_mut().write_weights(step).unwrap();
        let after = loss(&mut model);
        // To first order the loss falls by 0.02 · |slope|².
        let expected: f64 = slope.iter().map(|x| 0.02 * f64::from(*x).powi(2)).sum();
        let share = (before - after) / expected;
        assert!(
            (0.9..1.1).contains(&share),
            "{beta}: {before} {after} {share}"
        );
    }
}

#[test]
fn a_student_without_a_teacher_says_so() {
    let config = config(json!({}));
    let batch = rows(TARGETS, MASK);
    let mut readings = Readings::default();
    let error = micro_step(&config, &mut tiny_model(), &batch, 1.0, &mut readings);
    assert!(error.unwrap_err().to_string().contains("no teacher"));
    let out = tiny_model().score(&tokens(&batch)).unwrap();
    let error = evaluate(&config, &batch, &out, 1.0, &mut readings).unwrap_err();
    assert!(error.to_string().contains("no teacher"), "{error}");
}
