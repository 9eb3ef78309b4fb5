//! A student beside a teacher: the divergence and its gradient through the whole model against f64 autograd, and what is refused.

use super::option_tests::{compare, model, texts, with};
use super::*;
use crate::nn::adapter::{Lora, Targets};
use crate::nn::composite::{Decoder, Leaves, Past};
use candle_core::DType;
use serde_json::json;

const KINDS: [Divergence; 4] = [
    Divergence {
        beta: 0.0,
        temperature: 1.0,
    },
    Divergence {
        beta: 1.0,
        temperature: 1.5,
    },
    Divergence {
        beta: 0.5,
        temperature: 1.0,
    },
    Divergence {
        beta: 0.2,
        temperature: 0.8,
    },
];

fn teacher() -> Model {
    // Another width and depth, a cap and a scale of its own.
    let mut teacher = model(
        &with(json!({"d_model": 24, "n_layer": 3, "logit_softcap": 4.0, "logit_scale": 1.3})),
        Backend::Fused,
    );
    teacher.init(99).unwrap();
    teacher
}

/// Logits (N, V) in f64, with the graph to the leaves.
fn exact_logits<'a>(model: &'a Model, batch: &TokenBatch, track: Track) -> (Tensor, Decoder<'a>) {
    let weights = model.params().weights();
    let decoder = Decoder {
        config: model.config(),
        shape: model.shape(),
        layout: model.layout(),
        leaves: Leaves::new(model.layout(), weights, DType::F64, track).unwrap(),
        track,
        step_position: model.step_position(),
        adapters: true,
    };
    let shape = (batch.batch_size, batch.seq_len);
    let ids = Tensor::from_slice(batch.inputs, shape, &Device::Cpu).unwrap();
    let hidden = decoder.hidden(&ids, &mut Past::default(), batch.first);
    let logits = decoder.logits(&hidden.unwrap()).unwrap();
    (logits.flatten(0, 1).unwrap(), decoder)
}

#[test]
fn divergences_and_gradients_of_a_whole_student_are_exact() {
    let texts = texts(18);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let weights: Vec<f64> = texts.dentropy.iter().map(|x| x.abs() / 18.0).collect();
    let (narrow, lora) = (
        |of: &[f64]| of.iter().map(|x| *x as f32).collect::<Vec<f32>>(),
        {
            AdapterConfig::Lora(Lora {
                rank: 2,
                targets: Targets::All,
                ..Lora::default()
            })
        },
    );
    for (kind, adapter) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, None), (kind, Some(&lora))])
    {
        let teacher = teacher();
        let (theirs, _) = exact_logits(&teacher, &batch, Track::Off);
        let mut student = model(&with(json!({})), Backend::Fused);
        if let Some(adapter) = adapter {
            student.adapt(adapter).unwrap();
            student.init_adapters(3).unwrap();
        }
        let (own, decoder) = exact_logits(&student, &batch, Track::Gradients);
        let exact = kind.composite(&own, &theirs).unwrap();
        let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        let lse = own.exp().unwrap().sum_keepdim(1).unwrap().log().unwrap();
        let log_p = own.broadcast_sub(&lse).unwrap();
        let ids = Tensor::from_slice(&texts.targets, (18, 1), &Device::Cpu).unwrap();
        let logp = log_p.gather(&ids, 1).unwrap().squeeze(1).unwrap();
        let weigh = |of: &Tensor, by: &[f64]| {
            let by = Tensor::from_slice(by, 18, &Device::Cpu).unwrap();
            (of * by).unwrap().sum_all().unwrap()
        };
        let loss = (weigh(&exact, &weights) + weigh(&logp, &texts.dlogp)).unwrap();
        let all = decoder.leaves.gradients(&loss).unwrap();
        let exact = flat(&exact);
        let mut grads = vec![0.0; student.params().n_trainable()];
        for (span, grad) in all {
            if let Some(range) = span.grads() {
                grads[range].copy_from_slice(&grad.to_vec1::<f64>().unwrap());
            }
        }
        drop(decoder);

        student.set_teacher(Some(Teacher::new(teacher, kind)));
        let (dlogp, ddivergence) = (narrow(&texts.dlogp), narrow(&weights));
        let gradient = DistilledGradient {
            dlogp: &dlogp,
            ddivergence: &ddivergence,
        };
        let seen = student.accumulate_distilled(&batch, gradient, |values| {
            values.teacher.unwrap().divergence.to_vec()
        });
        let seen = seen.unwrap();
        compare("divergence", &seen, &exact, 1e-4);
        let found = student.params().read_grads(<[f32]>::to_vec).unwrap();
        let largest = grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
        compare("gradients", &found, &grads, 0.01 * largest);
        // An evaluation has the same values, and without the teacher none.
        let out = student.score(&batch).unwrap();
        assert_eq!(out.teacher.unwrap().divergence, seen);
        student.set_teacher(None);
        assert!(student.score(&batch).unwrap().teacher.is_none());
        let plain = student.accumulate_linear(&batch, &dlogp, |values| values.teacher.is_some());
        assert!(!plain.unwrap());
    }
}

#[test]
fn texts_in_one_row_are_read_apart_by_the_teacher_too() {
    let texts = texts(12);
    let first: Vec<u32> = [0; 5].into_iter().chain([5; 7]).collect();
    let packed = TokenBatch {
        first: Some(&first),
        ..TokenBatch::plain(&texts.inputs, &texts.targets, 1, 12)
    };
    let mut student = model(&with(json!({})), Backend::Fused);
    student.set_teacher(Some(Teacher::new(teacher(), KINDS[2])));
    let both = student.score(&packed).unwrap().teacher.unwrap();
    let second = TokenBatch::plain(&texts.inputs[5..], &texts.targets[5..], 1, 7);
    let alone = student.score(&second).unwrap().teacher.unwrap();
    for (a, b) in both.divergence[5..].iter().zip(&alone.divergence) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let texts = texts(18);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let zeros = [0.0; 18];
    let gradient = DistilledGradient {
        dlogp: &zeros,
        ddivergence: &zeros,
    };
    let said = |student: &mut Model, batch: &TokenBatch| {
        let found = student.accumulate_distilled(batch, gradient, |_| ());
        found.unwrap_err().to_string()
    };
    let mut student = model(&with(json!({})), Backend::Fused);
    assert!(said(&mut student, &batch).contains("no teacher"));
    let few = with(json!({"vocab_size": 3}));
    let few = Model::new(&few, 3, &Device::Cpu).unwrap();
    student.set_teacher(Some(Teacher::new(few, KINDS[0])));
    let words = said(&mut student, &batch);
    assert!(words.contains("teacher: "), "{words}");
    let mut composite = model(&with(json!({})), Backend::Composite);
    composite.set_teacher(Some(Teacher::new(teacher(), KINDS[0])));
    assert!(said(&mut composite, &batch).contains("fused CPU kernels"));
    assert!(composite.score(&batch).is_err());
}
