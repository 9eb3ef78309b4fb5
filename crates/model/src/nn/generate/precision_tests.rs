//! Generation with keys and values in bf16 against f32.

use super::*;
use crate::base::rng::{Rng, Stream};
use crate::kernels::matmul::ComputeDtype;
use crate::kernels::numbers::Storage;
use crate::kernels::quant::Kind;
use crate::nn::mlp::MlpConfig;
use crate::nn::norm::NormConfig;
use crate::nn::position::PositionConfig;
use crate::nn::weights::StoredTensor;
use crate::nn::{KvPrecision, ModelConfig, ParamInfo, TokenBatch};
use candle_core::Device;

const VOCAB: usize = 50;

fn config() -> ModelConfig {
    ModelConfig {
        n_layer: 3,
        n_head: 6,
        n_kv_head: Some(2),
        d_model: 192,
        d_ff: Some(256),
        seq_len: 900,
        position: PositionConfig::Rope(Default::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        init_std: 0.06,
        ..Default::default()
    }
}

fn dense() -> Model {
    let mut model = Model::new(&config(), VOCAB, &Device::Cpu).unwrap();
    model.init(3).unwrap();
    model
}

/// The same weights in a file's format.
fn stored(kind: Kind) -> Model {
    let dense = dense();
    let encoded = |info: &ParamInfo| -> Result<StoredTensor> {
        let weight = dense.params().weight(info)?;
        let values = weight.flatten_all()?.to_vec1::<f32>()?;
        if info.shape.len() == 1 {
            return Ok(StoredTensor::Dense(values));
        }
        let mut bytes = vec![0; kind.row_bytes(values.len()).unwrap()];
        kind.encode(&values, &mut bytes);
        Ok(StoredTensor::Packed(kind, bytes))
    };
    Model::stored(&config(), VOCAB, encoded).unwrap()
}

fn ids(n: usize) -> Vec<u32> {
    let mut rng = Rng::new(11, Stream::Test, 0, 0);
    (0..n).map(|_| rng.below(VOCAB as u64) as u32).collect()
}

/// The logits after a prompt that is read in these pieces, and after each of some more tokens.
fn logits(model: &mut Model, prompt: &[u32], pieces: usize, more: &[u32]) -> Vec<Vec<f32>> {
    let read = model.decode(|read_on| {
        let (mut logits, mut all) = (Vec::new(), Vec::new());
        for piece in prompt.chunks(pieces) {
            read_on(piece, &mut logits)?;
        }
        all.push(logits.clone());
        for id in more {
            read_on(&[*id], &mut logits)?;
            all.push(logits.clone());
        }
        Ok(all)
    });
    read.unwrap()
}

/// ‖a − b‖ / ‖b‖.
fn apart(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let square = |x: f32| f64::from(x * x);
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    let off: f64 = pairs.map(|(a, b)| square(a - b)).sum();
    (off / b.iter().flatten().map(|b| square(*b)).sum::<f64>()).sqrt()
}

#[test]
fn the_cache_is_bf16_where_activations_are_rounded_and_f32_elsewhere() {
    let mut model = dense();
    assert_eq!(model.kv_storage(), Storage::F32);
    model.set_compute_dtype(ComputeDtype::Bf16).unwrap();
    assert_eq!(model.kv_storage(), Storage::Bf16);
    model.set_kv_cache(KvPrecision::F32).unwrap();
    assert_eq!(model.kv_storage(), Storage::F32);
    for (kind, storage) in [
        (Kind::F32, Storage::F32),
        (Kind::F16, Storage::F32),
        (Kind::Q8_0, Storage::Bf16),
        (Kind::Q4_1, Storage::Bf16),
    ] {
        let mut model = stored(kind);
        assert_eq!(model.kv_storage(), Storage::F32, "as a training pass");
        model.set_kv_cache(KvPrecision::Auto).unwrap();
        assert_eq!(model.kv_storage(), storage, "{kind:?}");
    }
    let backend = crate::nn::Backend::Composite;
    let mut oracle = Model::with_backend(&config(), VOCAB, &Device::Cpu, backend).unwrap();
    let refused = oracle.set_kv_cache(KvPrecision::Bf16).unwrap_err();
    assert!(refused.to_string().contains("use f32"), "{refused}");
}

/// A bf16 number is off by at most 2⁻⁹ of itself; in sums over many keys and features the errors average out.
#[test]
fn logits_over_a_bf16_cache_are_within_its_rounding_of_those_over_f32() {
    let (prompt, more) = (ids(600), ids(8));
    let mut model = dense();
    let mut over = |precision| {
        model.set_kv_cache(precision).unwrap();
        logits(&mut model, &prompt, 600, &more)
    };
    let (exact, auto, rounded) = (
        over(KvPrecision::F32),
        over(KvPrecision::Auto),
        over(KvPrecision::Bf16),
    );
    assert_eq!(exact, auto);
    let share = apart(&rounded, &exact);
    assert!(share > 0.0 && share < 1.0 / 512.0, "{share}");
}

#[test]
fn a_prompt_gives_quantized_weights_the_same_greedy_text_however_it_is_cut() {
    let prompt = ids(700);
    let mut model = stored(Kind::Q8_0);
    model.set_kv_cache(KvPrecision::Auto).unwrap();
    let mut texts = Vec::new();
    for pieces in [700, 512, 100, 3] {
        let text = model.decode(|read_on| {
            let (mut logits, mut text) = (Vec::new(), Vec::new());
            for piece in prompt.chunks(pieces) {
                read_on(piece, &mut logits)?;
            }
            for _ in 0..20 {
                let next = (0..VOCAB).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
                text.extend(next.map(|id| id as u32));
                read_on(&text[text.len() - 1..], &mut logits)?;
            }
            Ok(text)
        });
        texts.push(text.unwrap());
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

#[test]
fn texts_of_stored_weights_have_the_same_bits_alone_and_beside_others() {
    for kind in [Kind::F16, Kind::Bf16, Kind::Q8_0, Kind::Q4_1, Kind::F32] {
        let name = format!("{kind:?}");
        super::rows::tests::assert_same_beside_others(&mut stored(kind), &name);
    }
}

/// Training with bf16 matmuls rounds queries, keys and values to bf16: a cache that does so, too, is no further from it.
#[test]
fn with_bf16_matmuls_sampled_log_probabilities_are_those_of_training_as_closely_over_bf16() {
    let mut model = dense();
    model.set_compute_dtype(ComputeDtype::Bf16).unwrap();
    let sampling = Sampling {
        max_new_tokens: 200,
        ..Sampling::default()
    };
    let how = Continuing {
        sampling: &sampling,
        ends: &[],
        when_full: WhenFull::Stop,
    };
    let prompt = ids(300);
    let mut mean = |precision| {
        model.set_kv_cache(precision).unwrap();
        let (mut apart, mut n) = (0.0, 0);
        for number in 0..4 {
            let prompts = [Prompt {
                tokens: &prompt,
                number,
            }];
            let mut sampled = Vec::new();
            let texts = generate_batch(&mut model, &prompts, how, &mut |_, token| {
                sampled.push(token.logprob);
                ControlFlow::Continue(())
            });
            let text = [&prompt[..], &texts.unwrap()[0].tokens].concat();
            let batch = TokenBatch::plain(&text[..499], &text[1..], 1, 499);
            let trained = model.score(&batch).unwrap().logp.flatten_all().unwrap();
            let trained = trained.to_vec1::<f32>().unwrap();
            for (a, b) in sampled.iter().zip(&trained[299..]) {
                apart += f64::from((a - b).abs());
                n += 1;
            }
        }
        assert_eq!(n, 800);
        apart / f64::from(n)
    };
    let (wide, half) = (mean(KvPrecision::F32), mean(KvPrecision::Bf16));
    println!("nats apart: {wide:.6} over f32, {half:.6} over bf16");
    assert!(half < 1.2 * wide, "{half} {wide}");
}
