//! Losses and their gradients: what is written by hand against candle's autograd.

use super::*;
use candle_core::Device;

fn outputs(logp: &[f32]) -> TokenOutputs {
    let logp = Tensor::from_slice(logp, (1, logp.len()), &Device::Cpu).unwrap();
    TokenOutputs {
        entropy: logp.zeros_like().unwrap(),
        likeliest: logp.zeros_like().unwrap(),
        weights: None,
        logp,
    }
}

#[test]
fn pretraining_is_the_mean_over_the_whole_step_whatever_its_portions() {
    let method = MethodConfig::Pretrain(Default::default());
    let context = StepContext { step_tokens: 4 };
    let whole = differentiate(&*method, &outputs(&[-1.0, -2.0, -3.0, -6.0]), &context).unwrap();
    let parts: f64 = [[-1.0, -2.0], [-3.0, -6.0]]
        .iter()
        .map(|p| differentiate(&*method, &outputs(p), &context).unwrap().loss)
        .sum();
    assert!((whole.loss - 3.0).abs() < 1e-6 && (parts - 3.0).abs() < 1e-6);
    assert_eq!(whole.dlogp.to_vec2::<f32>().unwrap(), [[-0.25; 4]]);
    assert!(whole.dentropy.is_none());
}

/// Hides what a method wrote by hand.
struct Autograd<'a>(&'a dyn Method);
impl Method for Autograd<'_> {
    fn loss(&self, out: &TokenOutputs, context: &StepContext) -> Result<Tensor> {
        self.0.loss(out, context)
    }
}

fn tiny_model() -> Model {
    let config = crate::nn::ModelConfig {
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

const BATCH: TokenBatch = TokenBatch {
    inputs: &[1, 2, 3, 4, 5, 6],
    targets: &[2, 3, 4, 5, 6, 7],
    batch_size: 2,
    seq_len: 3,
    weights: None,
    first: None,
};

/// Micro-step and flat gradients.
fn measured(method: &dyn Method, batch: &TokenBatch) -> (MicroStep, Vec<f32>) {
    let mut model = tiny_model();
    let context = StepContext { step_tokens: 12 };
    let step = micro_step(method, &mut model, batch, &context).unwrap();
    let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
    (step, grads)
}

fn methods() -> impl Iterator<Item = (&'static str, MethodConfig)> {
    MethodConfig::ENTRIES.iter().map(|entry| {
        let config = serde_json::from_value(serde_json::json!({ entry.id: {} }));
        (entry.id, config.unwrap())
    })
}

const MASK: &[f32] = &[0.0, 1.0, 1.0, 0.0, 0.0, 1.0];

#[test]
fn every_closed_form_agrees_with_autograd() {
    let masked = TokenBatch {
        weights: Some(MASK),
        ..BATCH
    };
    for (id, method) in methods() {
        for batch in [BATCH, masked] {
            let (by_hand, hand_grads) = measured(&*method, &batch);
            let (exact, grads) = measured(&Autograd(&*method), &batch);
            assert!((by_hand.loss - exact.loss).abs() < 1e-6, "{id}");
            assert_eq!(by_hand.entropy, exact.entropy);
            assert!(hand_grads == grads, "{id}: gradients differ");
        }
    }
}

#[test]
fn what_is_known_beforehand_is_what_the_closed_form_writes() {
    let zeros = || Upstream {
        dlogp: vec![0.0; 6],
        dentropy: vec![0.0; 6],
        uses_entropy: false,
    };
    let context = StepContext { step_tokens: 7 };
    for (id, method) in methods() {
        for weights in [None, Some(MASK)] {
            let values = TokenValues {
                logp: &[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0],
                entropy: &[0.5; 6],
                likeliest: &[0.0; 6],
                weights,
                batch_size: 2,
                seq_len: 3,
            };
            let (mut before, mut after) = (zeros(), zeros());
            if !method.known_gradient(weights, &context, &mut before) {
                assert_eq!(before, zeros(), "{id}: writes and says no");
                continue;
            }
            assert!(method.closed_form(values, &context, &mut after).is_some());
            assert_eq!(before, after, "{id}");
        }
    }
}

/// Where the head works in chunks, sums run in another order.
#[test]
fn a_head_in_chunks_gives_the_same_gradients() {
    let config = crate::nn::ModelConfig {
        n_layer: 1,
        n_head: 1,
        d_model: 4,
        seq_len: 66,
        ..Default::default()
    };
    const VOCAB: u32 = 1100;
    let tokens: Vec<u32> = (0..=1056).map(|i| i * 31 % VOCAB).collect();
    let batch = TokenBatch::plain(&tokens[..1056], &tokens[1..], 16, 66);
    let context = StepContext { step_tokens: 1056 };
    for (id, method) in methods() {
        let run = |method: &dyn Method| {
            let mut model = Model::new(&config, VOCAB as usize, &Device::Cpu).unwrap();
            model.init(3).unwrap();
            let step = micro_step(method, &mut model, &batch, &context).unwrap();
            let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
            (step, grads, model.footprints().0.head)
        };
        let (by_hand, hand_grads, bytes) = run(&*method);
        let (exact, grads, whole) = run(&Autograd(&*method));
        assert!(bytes < whole * 3 / 5, "{id}: {bytes} of {whole}");
        assert!((by_hand.loss - exact.loss).abs() < 1e-5, "{id}");
        let largest = grads.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        for (a, b) in hand_grads.iter().zip(&grads) {
            assert!((a - b).abs() <= 1e-6 * largest, "{id}: {a} and {b}");
        }
    }
}

#[test]
fn a_micro_step_is_forward_differentiate_backward() {
    let (step, grads) = measured(&EntropyBonus, &BATCH);
    let mut model = tiny_model();
    let out = model.forward(&BATCH).unwrap();
    let context = StepContext { step_tokens: 12 };
    let gradient = differentiate(&EntropyBonus, &out, &context).unwrap();
    model
        .backward(&gradient.dlogp, gradient.dentropy.as_ref())
        .unwrap();
    assert_eq!(step.loss, gradient.loss);
    assert!(model.params().read_grads(|g| g == grads).unwrap());
}

/// What is not supervised has no say: other targets there change neither loss nor gradient nor readings.
#[test]
fn targets_that_are_not_learnt_have_no_influence() {
    for (id, method) in methods() {
        let read = |targets| {
            let batch = TokenBatch {
                targets,
                weights: Some(MASK),
                ..BATCH
            };
            measured(&*method, &batch)
        };
        assert!(
            read(&[2, 3, 4, 5, 6, 7]) == read(&[9, 3, 4, 1, 0, 7]),
            "{id}"
        );
        assert!(
            read(&[2, 3, 4, 5, 6, 7]) != read(&[2, 1, 4, 5, 6, 7]),
            "{id}"
        );
    }
}

struct EntropyBonus;
impl Method for EntropyBonus {
    fn loss(&self, out: &TokenOutputs, context: &StepContext) -> Result<Tensor> {
        (out.entropy.sqr()? - &out.logp)?.sum_all()? / context.step_tokens as f64
    }
}

#[test]
fn a_method_that_uses_entropies_gets_their_gradient() {
    let mut out = outputs(&[-1.0, -1.0]);
    out.entropy = Tensor::new(&[[3f32, 5.0]], &Device::Cpu).unwrap();
    let gradient = differentiate(&EntropyBonus, &out, &StepContext { step_tokens: 2 }).unwrap();
    let dentropy = gradient.dentropy.unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(dentropy, [[3.0, 5.0]]);
    assert_eq!(gradient.loss, 18.0);
}
