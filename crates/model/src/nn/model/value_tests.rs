//! A value head next to the output head: its values and the gradient of a combined loss, against f64, on both backends; its
//! position; and that a model computes the same with and without it.

use super::option_tests::{compare, model, texts, upstream, with};
use super::*;
use crate::nn::adapter::{Lora, Targets};
use crate::nn::oracle;
use serde_json::{Value, json};

fn config() -> ModelConfig {
    with(json!({"value_head": true}))
}

fn lora() -> AdapterConfig {
    AdapterConfig::Lora(Lora {
        rank: 2,
        targets: Targets::All,
        ..Lora::default()
    })
}

fn host(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn a_loss_of_log_probabilities_and_values_has_exact_gradients() {
    let texts = texts(18);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let dvalue: Vec<f64> = texts.dlogp.iter().rev().map(|x| 0.5 - x).collect();
    for (backend, adapter) in [
        (Backend::Fused, None),
        (Backend::Composite, None),
        (Backend::Fused, Some(lora())),
    ] {
        let mut model = model(&config(), backend);
        if let Some(adapter) = &adapter {
            model.adapt(adapter).unwrap();
            model.init_adapters(3).unwrap();
        }
        let about = (&*texts.dlogp, &*texts.dentropy);
        let exact = oracle::exact_with_values(&model, &batch, about, Some(&dvalue)).unwrap();
        let without = oracle::exact(&model, &batch, about.0, about.1).unwrap();
        let (dlogp, dentropy) = (upstream(&texts.dlogp), upstream(&texts.dentropy));
        let out = model.forward(&batch).unwrap();
        compare("values", &host(&out.value.unwrap()), &exact.value, 1e-3);
        let dvalue = upstream(&dvalue);
        let all = (&dlogp, Some(&dentropy), Some(&dvalue));
        model.backward_all(all.0, all.1, all.2).unwrap();
        let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
        let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
        for info in model.params().trainable() {
            let from = info.grad.unwrap();
            let part = format!("{} on {backend:?}", info.name);
            let range = from..from + info.len;
            compare(
                &part,
                &grads[range.clone()],
                &exact.grads[range],
                0.05 * largest,
            );
        }
        // The trunk learns from values, too; adapters with B = 0 pass half of it.
        let moved = exact.grads.iter().zip(&without.grads);
        let apart = moved.filter(|(a, b)| (*a - *b).abs() > 1e-6 * largest);
        let least = if adapter.is_some() { 4 } else { 2 };
        assert!(apart.count() > exact.grads.len() / least, "{backend:?}");
    }
}

/// A cold start uses no values: their gradient is zero, without remains of an earlier step.
#[test]
fn a_loss_without_values_leaves_their_gradient_at_zero() {
    let texts = texts(18);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let mut model = model(&config(), Backend::Fused);
    let head = model.params().value_head().unwrap().grad.unwrap();
    let of_head = |model: &Model| {
        let read = |grads: &[f32]| grads[head..].to_vec();
        model.params().read_grads(read).unwrap()
    };
    model.params_mut().zero_grads().unwrap();
    let fill = |values: TokenValues, upstream: &mut Upstream| {
        upstream.dvalue.copy_from_slice(values.value.unwrap());
        upstream.uses_value = true;
        Ok(())
    };
    model.accumulate(&batch, fill).unwrap();
    assert!(of_head(&model).iter().any(|x| *x != 0.0));
    model.params_mut().zero_grads().unwrap();
    let read = |values: TokenValues| values.value.map(<[f32]>::len);
    let seen = model.accumulate_linear(&batch, &[-0.1; 18], read).unwrap();
    assert_eq!(seen, Some(18));
    assert!(of_head(&model).iter().all(|x| *x == 0.0));
}

#[test]
fn base_and_adapters_are_the_same_with_and_without_it() {
    let made = |value_head: bool| {
        let config = with(json!({ "value_head": value_head }));
        let mut model = Model::new(&config, 13, &Device::Cpu).unwrap();
        model.adapt(&lora()).unwrap();
        model.init(11).unwrap();
        model
    };
    let (with, without) = (made(true), made(false));
    let names = |infos: &[ParamInfo]| infos.iter().map(|i| i.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(with.params().base()), names(without.params().base()));
    assert_eq!(
        names(with.params().adapters()),
        names(without.params().adapters())
    );
    let weights = |model: &Model| model.params().read_weights(<[f32]>::to_vec).unwrap();
    let (all, plain) = (weights(&with), weights(&without));
    assert_eq!(all[..plain.len()], plain[..]);
    assert_eq!(all.len(), plain.len() + 24);
    let head = with.params().value_head().unwrap();
    assert_eq!(head.name, "v_head.summary.weight");
    assert!(head.trains() && with.is_its_own_reference());
    assert!(without.params().value_head().is_none());
    // A reference gives the policy's log-probabilities, and no values.
    let copy = with.frozen_copy().unwrap();
    assert!(copy.params().value_head().is_none());
}

#[test]
fn its_weights_are_kept_when_adapters_are_added_and_removed() {
    let mut model = model(&config(), Backend::Fused);
    let head = |model: &Model| {
        let info = model.params().value_head().unwrap();
        host(&model.params().weight(info).unwrap())
    };
    let own = head(&model);
    assert!(own.iter().any(|x| *x != 0.0));
    let base: Vec<f32> = model.params().read_weights(<[f32]>::to_vec).unwrap();
    model.adapt(&lora()).unwrap();
    assert_eq!(head(&model), own);
    for info in model.params().adapters().to_vec() {
        let adapter = host(&model.params().weight(&info).unwrap());
        assert!(adapter.iter().all(|x| *x == 0.0), "{}", info.name);
    }
    // Initialized with the adapters, and trained.
    model.init_adapters(3).unwrap();
    let learned = head(&model);
    model.remove_adapters().unwrap();
    assert_eq!(head(&model), learned);
    let after: Vec<f32> = model.params().read_weights(<[f32]>::to_vec).unwrap();
    let n = base.len() - learned.len();
    assert_eq!(after[..n], base[..n]);
}

#[test]
fn gradients_of_values_are_checked_against_the_batch_and_the_model() {
    let texts = texts(18);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let (dlogp, dvalue) = (upstream(&texts.dlogp), upstream(&texts.dlogp));
    let short = dvalue.narrow(1, 0, 8).unwrap();
    for backend in [Backend::Fused, Backend::Composite] {
        let mut with_head = model(&config(), backend);
        with_head.forward(&batch).unwrap();
        let error = with_head.backward_all(&dlogp, None, Some(&short));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("dvalue: expected shape [2, 9]"), "{error}");
        let mut without = model(&with(json!({})), backend);
        without.forward(&batch).unwrap();
        let error = without.backward_all(&dlogp, None, Some(&dvalue));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no value head"), "{error}");
    }
}

/// Both backends against the f64 composite, and that against divided logits, under a soft cap as well.
#[test]
fn a_temperature_divides_logits_and_not_values() {
    let texts = texts(18);
    let plain = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let batch = TokenBatch {
        temperature: 0.6,
        ..plain
    };
    let dvalue: Vec<f64> = texts.dlogp.iter().rev().map(|x| 0.5 - x).collect();
    let upstreams = (upstream(&texts.dlogp), upstream(&texts.dentropy));
    for (cap, scale) in [
        (json!(null), json!(null)),
        (json!(3.0), json!(null)),
        (json!(null), json!(0.4)),
        (json!(3.0), json!(0.4)),
    ] {
        let config = with(json!({"value_head": true, "logit_softcap": cap, "logit_scale": scale}));
        for backend in [Backend::Fused, Backend::Composite] {
            let mut model = model(&config, backend);
            let about = (&*texts.dlogp, &*texts.dentropy);
            let exact = oracle::exact_with_values(&model, &batch, about, Some(&dvalue)).unwrap();
            let logits = host(&model.logits(&texts.inputs, 2, 9).unwrap());
            let rows = logits.chunks(logits.len() / 18).zip(&texts.targets);
            let divided = |(row, target): (&[f32], &u32)| {
                let row: Vec<f64> = row.iter().map(|x| f64::from(*x) / 0.6).collect();
                row[*target as usize] - row.iter().map(|x| x.exp()).sum::<f64>().ln()
            };
            let divided: Vec<f64> = rows.map(divided).collect();
            let out = model.forward(&batch).unwrap();
            compare("divided", &host(&out.logp), &divided, 1e-3);
            compare("logp", &host(&out.logp), &exact.logp, 1e-3);
            compare("entropy", &host(&out.entropy), &exact.entropy, 1e-3);
            compare("values", &host(&out.value.unwrap()), &exact.value, 1e-3);
            let (dlogp, dentropy) = (&upstreams.0, &upstreams.1);
            let dvalue = upstream(&dvalue);
            model
                .backward_all(dlogp, Some(dentropy), Some(&dvalue))
                .unwrap();
            let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
            let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
            compare("gradients", &grads, &exact.grads, 0.05 * largest);
        }
    }
}

/// c · tanh(s z / c): what a cap bounds is what the scale gives.
#[test]
fn logits_are_scaled_and_then_capped_and_scores_are_neither() {
    let texts = texts(18);
    let of = |says: Value, backend| {
        let mut model = model(&with(says), backend);
        host(&model.logits(&texts.inputs, 2, 9).unwrap())
    };
    for backend in [Backend::Fused, Backend::Composite] {
        let plain = of(json!({}), backend);
        let both = of(json!({"logit_scale": 1.7, "logit_softcap": 0.5}), backend);
        let exact = plain
            .iter()
            .map(|z| 0.5 * (1.7 * f64::from(*z) / 0.5).tanh());
        compare("logits", &both, &exact.collect::<Vec<_>>(), 1e-3);
        let score = of(json!({"head": "score"}), backend);
        let scaled = of(json!({"head": "score", "logit_scale": 1.7}), backend);
        assert_eq!(score, scaled);
    }
}

/// The head runs forward and backward at once if the gradient is known beforehand.
#[test]
fn a_temperature_holds_where_the_head_runs_once() {
    let texts = texts(18);
    let batch = TokenBatch {
        temperature: 1.7,
        ..TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9)
    };
    let config = with(json!({"logit_softcap": 3.0, "logit_scale": 0.6}));
    let mut model = model(&config, Backend::Fused);
    model.forward(&batch).unwrap();
    model.backward(&upstream(&texts.dlogp), None).unwrap();
    let twice: Vec<f64> = model
        .params()
        .read_grads(|grads| grads.iter().map(|x| f64::from(*x)).collect())
        .unwrap();
    model.params_mut().zero_grads().unwrap();
    let dlogp: Vec<f32> = texts.dlogp.iter().map(|x| *x as f32).collect();
    model.accumulate_linear(&batch, &dlogp, |_| 0.0).unwrap();
    let once = model.params().read_grads(<[f32]>::to_vec).unwrap();
    let largest = twice.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    compare("gradients", &once, &twice, 0.05 * largest);
}
