//! A model from outside: what it rejects, and that its parts agree.

use super::*;
use candle_core::DType;

fn tiny() -> Model {
    let config = ModelConfig {
        n_layer: 2,
        n_head: 2,
        d_model: 8,
        seq_len: 6,
        ..Default::default()
    };
    let mut model = Model::new(&config, 11, &Device::Cpu).unwrap();
    model.init(3).unwrap();
    model
}

#[test]
fn a_fresh_model_predicts_uniformly() {
    let mut model = tiny();
    let batch = TokenBatch {
        inputs: &[1, 2, 3, 4],
        targets: &[2, 3, 4, 5],
        batch_size: 2,
        seq_len: 2,
        first: None,
        temperature: 1.0,
        filled: None,
    };
    let outputs = model.score(&batch).unwrap();
    let loss = outputs.logp.mean_all().unwrap().to_scalar::<f32>().unwrap();
    assert!((loss + 11f32.ln()).abs() < 0.05, "{loss}");
    let entropy = outputs.entropy.to_vec2::<f32>().unwrap();
    assert!((entropy[1][1] - 11f32.ln()).abs() < 0.01, "{entropy:?}");
}

#[test]
fn the_same_seed_gives_the_same_weights_and_another_seed_others() {
    let weights = |seed| {
        let mut model = tiny();
        model.init(seed).unwrap();
        model.params().read_weights(|w| w.to_vec()).unwrap()
    };
    assert_eq!(weights(1), weights(1));
    assert_ne!(weights(1), weights(2));
}

#[test]
fn weights_do_not_depend_on_the_number_of_threads() {
    let weights = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| {
            let config = ModelConfig {
                d_model: 64,
                n_head: 2,
                n_layer: 1,
                seq_len: 8,
                ..Default::default()
            };
            let mut model = Model::new(&config, 3000, &Device::Cpu).unwrap();
            model.init(7).unwrap();
            model.params().read_weights(|w| w.to_vec()).unwrap()
        })
    };
    assert_eq!(weights(1), weights(3));
}

#[test]
fn tokens_that_do_not_fit_are_named() {
    let mut model = tiny();
    let error = |r: Result<Tensor>| r.map(|_| ()).unwrap_err().to_string();
    assert!(error(model.logits(&[1, 11], 1, 2)).contains("token 11 at index 1"));
    assert!(error(model.logits(&[1, 2, 3], 1, 2)).contains("expected 1 × 2 tokens"));
    assert!(error(model.logits(&[1; 7], 1, 7)).contains("seq_len 6"));
}

#[test]
fn shapes_that_do_not_match_are_rejected() {
    let config = |n_head, n_kv_head| ModelConfig {
        n_head,
        n_kv_head,
        d_model: 8,
        ..Default::default()
    };
    assert!(Model::new(&config(3, None), 11, &Device::Cpu).is_err());
    assert!(Model::new(&config(4, Some(3)), 11, &Device::Cpu).is_err());
    assert!(Model::new(&config(4, Some(2)), 11, &Device::Cpu).is_ok());
}

#[test]
fn backward_needs_a_forward_and_fitting_shapes() {
    let mut model = tiny();
    let ones = Tensor::ones((1, 2), DType::F32, &Device::Cpu).unwrap();
    assert!(model.backward(&ones, None).is_err());
    let batch = TokenBatch {
        inputs: &[1, 2],
        targets: &[2, 3],
        batch_size: 1,
        seq_len: 2,
        first: None,
        temperature: 1.0,
        filled: None,
    };
    model.forward(&batch).unwrap();
    let wrong = ones.reshape((2, 1)).unwrap();
    let error = model.backward(&wrong, None).unwrap_err().to_string();
    assert!(error.contains("dlogp: expected shape [1, 2]"), "{error}");
}

#[test]
fn gradients_accumulate() {
    let mut model = tiny();
    let batch = TokenBatch {
        inputs: &[1, 2],
        targets: &[2, 3],
        batch_size: 1,
        seq_len: 2,
        first: None,
        temperature: 1.0,
        filled: None,
    };
    let dlogp = Tensor::full(-0.5f32, (1, 2), &Device::Cpu).unwrap();
    let mut norms = Vec::new();
    for _ in 0..2 {
        model.forward(&batch).unwrap();
        model.backward(&dlogp, None).unwrap();
        norms.push(model.params().grad_norm().unwrap());
    }
    assert!((norms[1] / norms[0] - 2.0).abs() < 1e-6, "{norms:?}");
    model.params_mut().zero_grads().unwrap();
    assert_eq!(model.params().grad_norm().unwrap(), 0.0);
}

/// A backward after `zero_grads` overwrites earlier gradients, in every parameter, for any tokens.
#[test]
fn cleared_gradients_contain_nothing_of_earlier_ones() {
    for tie_embeddings in [true, false] {
        let config = ModelConfig {
            n_layer: 1,
            n_head: 2,
            d_model: 8,
            seq_len: 6,
            bias: true,
            tie_embeddings,
            ..Default::default()
        };
        let grads = |batches: &[&[u32]]| {
            let mut model = Model::new(&config, 11, &Device::Cpu).unwrap();
            model.init(1).unwrap();
            for tokens in batches {
                model.params_mut().zero_grads().unwrap();
                let n = tokens.len() - 1;
                let batch = TokenBatch {
                    inputs: &tokens[..n],
                    targets: &tokens[1..],
                    batch_size: 1,
                    seq_len: n,
                    first: None,
                    temperature: 1.0,
                    filled: None,
                };
                model.forward(&batch).unwrap();
                let dlogp = Tensor::full(-0.5f32, (1, n), &Device::Cpu).unwrap();
                model.backward(&dlogp, None).unwrap();
            }
            model.params().read_grads(<[f32]>::to_vec).unwrap()
        };
        assert_eq!(
            grads(&[&[1, 2, 3]]),
            grads(&[&[4, 5, 6, 7, 8, 9], &[1, 2, 3]])
        );
    }
}

#[test]
fn a_failed_loss_leaves_no_partial_gradient() {
    let batch = TokenBatch::plain(&[1, 2, 3, 4], &[2, 3, 4, 5], 2, 2);
    let refuse = |_: TokenValues, _: &mut Upstream| -> Result<()> { bail!("not this one") };
    let grads = |model: &Model| model.params().read_grads(<[f32]>::to_vec).unwrap();
    for earlier in [false, true] {
        let mut model = tiny();
        model.params_mut().write_grads(|g| g.fill(7.0)).unwrap();
        model.params_mut().zero_grads().unwrap();
        if earlier {
            model
                .accumulate_linear(&batch, &[-0.25; 4], |_| ())
                .unwrap();
        }
        let before = grads(&model);
        assert_eq!(before.iter().any(|g| *g != 0.0), earlier);
        if !earlier {
            model.params_mut().zero_grads().unwrap();
        }
        assert!(model.accumulate(&batch, refuse).is_err());
        assert!(
            model
                .accumulate_linear(&batch, &[-0.25; 3], |_| ())
                .is_err()
        );
        assert!(grads(&model) == before, "{earlier}");
        // And the next micro-step continues after the last successful one.
        if !earlier {
            model.params_mut().zero_grads().unwrap();
        }
        model
            .accumulate_linear(&batch, &[-0.25; 4], |_| ())
            .unwrap();
        let mut other = tiny();
        for _ in 0..=usize::from(earlier) {
            other
                .accumulate_linear(&batch, &[-0.25; 4], |_| ())
                .unwrap();
        }
        assert!(grads(&model) == grads(&other), "{earlier}");
    }
}

#[test]
fn a_linear_loss_has_the_same_gradient_on_both_backends_and_by_either_head_pass() {
    let batch = TokenBatch::plain(&[1, 2, 3, 4], &[2, 3, 4, 5], 2, 2);
    let coefficients = [-0.25_f32, 0.5, 0.0, -1.0];
    let model = |backend| {
        let fused = tiny();
        let mut model = Model::with_backend(fused.config(), 11, &Device::Cpu, backend).unwrap();
        model.init(3).unwrap();
        model
    };
    let grads = |model: &Model| model.params().read_grads(<[f32]>::to_vec).unwrap();
    let linear = |backend| {
        let mut model = model(backend);
        let logp = |values: TokenValues| values.logp.to_vec();
        let logp = model
            .accumulate_linear(&batch, &coefficients, logp)
            .unwrap();
        (logp, grads(&model))
    };
    let ((fused_logp, fused), (_, exact)) = (linear(Backend::Fused), linear(Backend::Composite));
    let largest = exact.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    for (a, b) in fused.iter().zip(&exact) {
        assert!((a - b).abs() < 1e-5 * largest, "{a} and {b} of {largest}");
    }
    let mut separate = model(Backend::Fused);
    let logp = separate.accumulate(&batch, |values, upstream| {
        upstream.dlogp.copy_from_slice(&coefficients);
        Ok(values.logp.to_vec())
    });
    assert_eq!(logp.unwrap(), fused_logp);
    assert!(grads(&separate) == fused);
}
