//! The whole decoder in f32 against candle's autograd in f64, for every combination of parts, through both backends.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use candle_core::{Device, Tensor};
use llmtui::base::rng::{Rng, Stream};
use llmtui::nn::mlp::MlpConfig;
use llmtui::nn::norm::NormConfig;
use llmtui::nn::position::PositionConfig;
use llmtui::nn::{Backend, Model, ModelConfig, TokenBatch, oracle};

const VOCAB: usize = 13;
const BATCH: usize = 2;

/// All configurations of the registries' members, heads (multi-head, grouped, multi-query), tying and biases.
fn configs() -> Vec<ModelConfig> {
    let mut configs = Vec::new();
    for position in members::<PositionConfig>(PositionConfig::ENTRIES) {
        for norm in members::<NormConfig>(NormConfig::ENTRIES) {
            for mlp in mlps() {
                // Each combination of members is tested with a quarter of the other options.
                for at in 0..3 {
                    let at = configs.len() + 5 * at;
                    let n_kv_head = [4, 2, 1][at % 3];
                    let (tie_embeddings, bias) = (at / 3 % 2 == 0, at / 6 % 2 == 0);
                    {
                        configs.push(ModelConfig {
                            n_layer: 2,
                            n_head: 4,
                            n_kv_head: Some(n_kv_head),
                            d_model: 24,
                            d_ff: Some(20),
                            seq_len: 9,
                            position: position.clone(),
                            norm: norm.clone(),
                            mlp: mlp.clone(),
                            bias,
                            tie_embeddings,
                            ..Default::default()
                        });
                    }
                }
            }
        }
    }
    configs
}

/// Each member of a registry with its default settings, created from its name: a new member is tested without a change here.
fn members<T: serde::de::DeserializeOwned>(entries: &[llmtui::base::registry::Entry]) -> Vec<T> {
    let make = |word: &str| serde_json::from_value(serde_json::json!({ word: {} }));
    entries.iter().map(|e| make(e.id).unwrap()).collect()
}

/// The members, and GPT-2's form of GELU.
fn mlps() -> Vec<MlpConfig> {
    let tanh = serde_json::json!({ "gelu": { "approximate": "tanh" } });
    let mut mlps = members::<MlpConfig>(MlpConfig::ENTRIES);
    mlps.push(serde_json::from_value(tanh).unwrap());
    mlps
}

/// A model whose gains and biases are not ones and zeros.
fn model(config: &ModelConfig, vocab: usize, backend: Backend) -> Model {
    let mut model = Model::with_backend(config, vocab, &Device::Cpu, backend).unwrap();
    let mut rng = Rng::new(1, Stream::Test, 0, 0);
    let infos = model.params().infos().to_vec();
    let fill = |weights: &mut [f32]| {
        for info in &infos {
            let base = if info.name.contains("norm") || info.name.contains("ln_") {
                1.0
            } else {
                0.0
            };
            for w in &mut weights[info.offset..info.offset + info.len] {
                *w = base + 0.2 * rng.normal();
            }
        }
    };
    model.params_mut().write_weights(fill).unwrap();
    model
}

/// Errors are relative to the part's largest element, or to `floor`: some gradients are zero in theory (a bias of all keys
/// does not change a softmax) but rounding errors in practice.
fn compare(what: &str, values: &[f32], exact: &[f64], floor: f64, tolerance: f64) {
    let scale = exact.iter().fold(floor, |max, x| max.max(x.abs()));
    for (i, (&x, e)) in values.iter().zip(exact).enumerate() {
        let error = (f64::from(x) - e).abs();
        assert!(
            error <= tolerance * scale,
            "{what}[{i}]: {x} is not {e} (scale {scale})"
        );
    }
}

fn check(config: &ModelConfig, backend: Backend, seq_len: usize) {
    check_vocabulary(config, VOCAB, backend, seq_len, 1e-5);
}

fn check_vocabulary(
    config: &ModelConfig,
    vocab: usize,
    backend: Backend,
    seq_len: usize,
    tolerance: f64,
) {
    let n = BATCH * seq_len;
    let mut rng = Rng::new(2, Stream::Test, seq_len as u64, 0);
    let mut ids = || -> Vec<u32> { (0..n).map(|_| rng.below(vocab as u64) as u32).collect() };
    let (inputs, targets) = (ids(), ids());
    let batch = TokenBatch {
        inputs: &inputs,
        targets: &targets,
        batch_size: BATCH,
        seq_len,
        first: None,
        filled: None,
        temperature: 1.0,
    };
    let dlogp: Vec<f64> = (0..n).map(|_| f64::from(rng.normal())).collect();
    let dentropy: Vec<f64> = (0..n).map(|_| f64::from(rng.normal())).collect();
    let mut model = model(config, vocab, backend);
    let exact = oracle::exact(&model, &batch, &dlogp, &dentropy).unwrap();

    let up = |values: &[f64]| {
        let values: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        Tensor::from_vec(values, (BATCH, seq_len), &Device::Cpu).unwrap()
    };
    let outputs = model.forward(&batch).unwrap();
    model.backward(&up(&dlogp), Some(&up(&dentropy))).unwrap();
    let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let name = format!("{config:?} {backend:?} T={seq_len}");
    compare(
        &format!("logp of {name}"),
        &flat(&outputs.logp),
        &exact.logp,
        1e-3,
        tolerance,
    );
    compare(
        &format!("entropy of {name}"),
        &flat(&outputs.entropy),
        &exact.entropy,
        1e-3,
        tolerance,
    );
    let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
    let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    for info in model.params().infos() {
        let range = info.offset..info.offset + info.len;
        let what = format!("gradient of {} in {name}", info.name);
        compare(
            &what,
            &grads[range.clone()],
            &exact.grads[range],
            0.05 * largest,
            tolerance,
        );
    }
}

#[test]
fn every_combination_of_parts_has_exact_gradients() {
    let configs = configs();
    assert!(configs.len() >= 5 * 2 * 7 * 3);
    for config in &configs {
        check(config, Backend::Fused, 9);
    }
}

#[test]
fn a_single_token_and_ragged_lengths_have_exact_gradients() {
    for config in configs().iter().step_by(7) {
        for seq_len in [1, 2, 5] {
            check(config, Backend::Fused, seq_len);
        }
    }
}

#[test]
fn sequences_of_several_attention_blocks_have_exact_gradients() {
    for config in configs().iter().step_by(19) {
        let config = ModelConfig {
            seq_len: 131,
            ..config.clone()
        };
        check(&config, Backend::Fused, 131);
    }
}

/// One layer as wide as GPT-2's and one like a small Llama's: blocks, threads and chunks that small shapes never reach.
#[test]
fn layers_of_real_width_and_vocabulary_have_exact_gradients() {
    let gpt2 = ModelConfig {
        n_layer: 1,
        n_head: 12,
        d_model: 768,
        seq_len: 64,
        bias: true,
        ..Default::default()
    };
    // Sums over thousands of terms: rounding alone reaches 1e-5 at one of 38 million positions.
    check_vocabulary(&gpt2, 50_257, Backend::Fused, 64, 3e-5);
    let llama = ModelConfig {
        n_layer: 1,
        n_head: 8,
        n_kv_head: Some(4),
        d_model: 512,
        d_ff: Some(1408),
        seq_len: 512,
        position: PositionConfig::Rope(Default::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        ..Default::default()
    };
    check_vocabulary(&llama, 8192, Backend::Fused, 512, 3e-5);
}

#[test]
fn the_composite_backend_has_exact_gradients() {
    for config in configs().iter().step_by(5) {
        check(config, Backend::Composite, 9);
    }
}

/// Losses over `steps` of AdamW and the weights after them.
fn train(config: &ModelConfig, backend: Backend, steps: u64) -> (Vec<f32>, Vec<f32>) {
    use llmtui::optim::{OptimizerConfig, clip_scale};
    let mut model = Model::with_backend(config, VOCAB, &Device::Cpu, backend).unwrap();
    model.init(3).unwrap();
    let optimizer = OptimizerConfig::AdamW(Default::default());
    let mut rule = optimizer.build(model.params()).unwrap();
    let n = BATCH * config.seq_len;
    let mut losses = Vec::new();
    for step in 0..steps {
        let mut rng = Rng::new(4, Stream::Test, step, 0);
        let inputs: Vec<u32> = (0..n).map(|_| rng.below(VOCAB as u64) as u32).collect();
        let targets: Vec<u32> = inputs.iter().map(|id| (id + 1) % VOCAB as u32).collect();
        let batch = TokenBatch {
            inputs: &inputs,
            targets: &targets,
            batch_size: BATCH,
            seq_len: config.seq_len,
            first: None,
            filled: None,
            temperature: 1.0,
        };
        model.params_mut().zero_grads().unwrap();
        let logp = model.forward(&batch).unwrap().logp;
        losses.push(-logp.mean_all().unwrap().to_scalar::<f32>().unwrap());
        let dlogp = Tensor::full(-1.0 / n as f32, logp.shape(), &Device::Cpu).unwrap();
        model.backward(&dlogp, None).unwrap();
        let scale = clip_scale(model.params().grad_norm().unwrap(), 0.5);
        rule.step(model.params_mut(), 3e-3, scale).unwrap();
    }
    let weights = model.params().read_weights(<[f32]>::to_vec).unwrap();
    (losses, weights)
}

#[test]
fn both_backends_train_the_same() {
    for config in [&configs()[0], &configs()[70]] {
        let (fused, _) = train(config, Backend::Fused, 60);
        let (composite, _) = train(config, Backend::Composite, 60);
        assert!(fused[59] < fused[0] - 0.2, "{fused:?}");
        for (a, b) in fused.iter().zip(&composite) {
            assert!((a - b).abs() < 2e-5, "{a} {b}");
        }
    }
}

/// Large enough that every kernel hands work to other threads.
#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    for config in [&configs()[0], &configs()[70]] {
        let config = ModelConfig {
            d_model: 128,
            d_ff: Some(200),
            seq_len: 160,
            ..config.clone()
        };
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.unwrap().install(|| train(&config, Backend::Fused, 3))
        };
        let one = run(1);
        assert!(one == run(2), "2 threads");
        assert!(one == run(3), "3 threads");
    }
}

/// Documents packed into rows of `seq_len`; the rest of a row is padding, in which each token stands alone.
struct Packed {
    inputs: Vec<u32>,
    targets: Vec<u32>,
    weights: Vec<f32>,
    first: Vec<u32>,
    /// Row-major position and length of each document.
    documents: Vec<(usize, usize)>,
}

fn packed(lengths: &[&[usize]], seq_len: usize) -> Packed {
    let mut rng = Rng::new(5, Stream::Test, seq_len as u64, 0);
    let n = lengths.len() * seq_len;
    let mut ids = || (0..n).map(|_| rng.below(VOCAB as u64) as u32).collect();
    let mut packed = Packed {
        inputs: ids(),
        targets: ids(),
        weights: vec![0.0; n],
        first: (0..n).map(|i| (i % seq_len) as u32).collect(),
        documents: Vec::new(),
    };
    for (row, lengths) in lengths.iter().enumerate() {
        let mut at = 0;
        for &len in *lengths {
            let place = row * seq_len + at;
            packed.first[place..place + len].fill(at as u32);
            // Every third token belongs to a prompt.
            for i in 0..len {
                let supervised = !(place + i).is_multiple_of(3);
                packed.weights[place + i] = f32::from(u8::from(supervised));
            }
            packed.documents.push((place, len));
            at += len;
        }
    }
    packed
}

/// Log-probabilities of the supervised tokens and the gradient of Σ w · logp + Σ w · entropy².
fn supervised(model: &mut Model, batches: &[(TokenBatch, &[f32])]) -> (Vec<f32>, Vec<f64>) {
    model.params_mut().zero_grads().unwrap();
    let mut logps = Vec::new();
    for (batch, weights) in batches {
        model
            .accumulate(batch, |values, upstream| {
                upstream.dlogp.copy_from_slice(weights);
                for (d, (w, h)) in upstream
                    .dentropy
                    .iter_mut()
                    .zip(weights.iter().zip(values.entropy))
                {
                    *d = 2.0 * w * h;
                }
                upstream.uses_entropy = true;
                let supervised = values.logp.iter().zip(*weights).filter(|(_, w)| **w > 0.0);
                logps.extend(supervised.map(|(x, _)| *x));
                Ok(())
            })
            .unwrap();
    }
    let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
    (logps, grads.into_iter().map(f64::from).collect())
}

/// Documents in a row share nothing else: loss and gradient are those of the documents one by one.
fn check_packed(config: &ModelConfig, backend: Backend, lengths: &[&[usize]], seq_len: usize) {
    let packed = packed(lengths, seq_len);
    let whole = TokenBatch {
        inputs: &packed.inputs,
        targets: &packed.targets,
        batch_size: lengths.len(),
        seq_len,
        first: Some(&packed.first),
        filled: None,
        temperature: 1.0,
    };
    let alone = packed.documents.iter().map(|&(at, len)| {
        let place = at..at + len;
        let (inputs, targets) = (
            &packed.inputs[place.clone()],
            &packed.targets[place.clone()],
        );
        (
            TokenBatch::plain(inputs, targets, 1, len),
            &packed.weights[place],
        )
    });
    let mut model = model(config, VOCAB, backend);
    let together = supervised(&mut model, &[(whole, &packed.weights)]);
    let apart = supervised(&mut model, &alone.collect::<Vec<_>>());
    let name = format!("{config:?} {backend:?}");
    let exact: Vec<f64> = apart.0.iter().map(|&x| f64::from(x)).collect();
    compare(&format!("logp of {name}"), &together.0, &exact, 1e-3, 1e-5);
    let grads: Vec<f32> = together.1.iter().map(|&x| x as f32).collect();
    let largest = apart.1.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    compare(
        &format!("gradient of {name}"),
        &grads,
        &apart.1,
        largest,
        1e-5,
    );
    // Conversely, without boundaries the numbers differ.
    let leaking = supervised(
        &mut model,
        &[(
            TokenBatch {
                first: None,
                ..whole
            },
            &packed.weights,
        )],
    );
    assert!(leaking.0 != together.0, "{name}: boundaries change nothing");
}

#[test]
fn packed_rows_are_the_sum_of_their_documents_on_both_backends() {
    let rows: &[&[usize]] = &[&[4, 1, 3], &[2, 7]];
    for (i, config) in configs().iter().enumerate() {
        check_packed(config, Backend::Fused, rows, 9);
        if i % 5 == 0 {
            check_packed(config, Backend::Composite, rows, 9);
        }
    }
}

#[test]
fn packed_rows_of_several_attention_blocks_are_the_sum_of_their_documents() {
    let rows: &[&[usize]] = &[&[70, 1, 2, 57], &[131], &[3, 64, 60]];
    for config in configs().iter().step_by(23) {
        let config = ModelConfig {
            seq_len: 131,
            ..config.clone()
        };
        check_packed(&config, Backend::Fused, rows, 131);
    }
}

/// Evaluation separates documents too, and reports which targets were top-1.
#[test]
fn evaluation_agrees_with_training() {
    for backend in [Backend::Fused, Backend::Composite] {
        let config = &configs()[0];
        let packed = packed(&[&[4, 1, 3], &[2, 7]], 9);
        let mut model = model(config, VOCAB, backend);
        let batch = TokenBatch {
            first: Some(&packed.first),
            ..TokenBatch::plain(&packed.inputs, &packed.targets, 2, 9)
        };
        let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let train = model.forward(&batch).unwrap();
        let score = model.score(&batch).unwrap();
        assert_eq!(values(&train.logp), values(&score.logp));
        // Only a target with more than half of the probability is certain to be top-1.
        let sure = values(&score.logp).into_iter().zip(values(&score.top1));
        for (logp, top1) in sure {
            assert!(top1 == 1.0 || logp < 0.5_f32.ln());
            assert!(top1 == 0.0 || logp > -(VOCAB as f32).ln());
        }
    }
}
