//! Losses and their gradients: the linear form against autograd, and what a mask, a normalizer and a reference do.

use super::*;
use crate::data::{Column, Origin};
use std::f64::consts::LN_2;

pub(super) fn tiny_model() -> Model {
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

pub(super) const MASK: &[bool] = &[false, true, true, false, false, true];

/// Two rows of three tokens.
pub(super) fn rows(targets: &[u32], mask: &[bool]) -> Batch {
    Batch {
        inputs: vec![1, 2, 3, 4, 5, 6],
        targets: targets.to_vec(),
        batch_size: 2,
        seq_len: 3,
        mask: mask.to_vec(),
        ..Batch::default()
    }
}

pub(super) const TARGETS: &[u32] = &[2, 3, 4, 5, 6, 7];

/// The same as one pair, each row a side, or as two judged answers, with the columns that the method needs.
fn batch_for(method: &dyn Method, targets: &[u32], mask: &[bool], reference: [f32; 2]) -> Batch {
    let mut batch = rows(targets, mask);
    if method.needs().unit != Unit::Text {
        batch.unit = method.needs().unit;
        batch.sequence = vec![0, 0, 0, 1, 1, 1];
        batch.origins = [0, 4].map(origin).into();
        batch.columns = vec![Column {
            name: REFERENCE_LOGP,
            values: reference.into(),
        }];
    }
    if method.on_policy().is_some() {
        let column = |name, values| Column { name, values };
        batch.columns.extend([
            column(policy::ADVANTAGE, vec![1.0, -0.5]),
            column(ppo::TOKEN_ADVANTAGE, vec![1.0, 0.5, 2.0, -1.0, 0.5, -0.5]),
        ]);
    }
    if batch.unit == Unit::Judged {
        batch.columns.push(Column {
            name: crate::data::LABEL,
            values: vec![1.0, 0.0],
        });
    }
    batch
}

fn origin(start: u64) -> Origin {
    Origin {
        held_out: false,
        source: 0,
        start,
    }
}

/// Loss, readings and flat gradients.
fn measured(method: &dyn Method, batch: &Batch, normalizer: f64) -> (f64, Readings, Vec<f32>) {
    let mut model = tiny_model();
    if let Some(distill) = method.distills() {
        let mut teacher = tiny_model();
        teacher.init(8).unwrap();
        let teacher = crate::nn::Teacher::new(teacher, distill.divergence());
        model.set_teacher(Some(teacher));
    }
    let mut readings = Readings::default();
    let loss = micro_step(method, &mut model, batch, normalizer, &mut readings).unwrap();
    let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
    (loss, readings, grads)
}

fn methods() -> impl Iterator<Item = (&'static str, MethodConfig)> {
    MethodConfig::ENTRIES.iter().map(|entry| {
        let config = serde_json::from_value(serde_json::json!({ entry.id: {} }));
        (entry.id, config.unwrap())
    })
}

/// Hides that a method's loss is linear.
struct Autograd<'a>(&'a dyn Method);
impl Method for Autograd<'_> {
    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        self.0.loss(scored, readings)
    }
}

#[test]
fn pretraining_is_the_mean_over_the_whole_step_whatever_its_portions() {
    let method = MethodConfig::Pretrain(Default::default());
    let mut readings = Readings::default();
    let mut loss = |logp: &[f32]| {
        let n = logp.len();
        let batch = Batch {
            inputs: vec![0; n],
            targets: vec![0; n],
            batch_size: 1,
            seq_len: n,
            ..Batch::default()
        };
        let logp = Tensor::from_slice(logp, (1, n), &Device::Cpu).unwrap();
        let out = TokenOutputs {
            entropy: logp.zeros_like().unwrap(),
            top1: logp.zeros_like().unwrap(),
            value: None,
            teacher: None,
            logp,
        };
        evaluate(&*method, &batch, &out, 4.0, &mut readings).unwrap()
    };
    assert_eq!(loss(&[-1.0, -2.0, -3.0, -6.0]), 3.0);
    assert_eq!(loss(&[-1.0, -2.0]) + loss(&[-3.0, -6.0]), 3.0);
}

#[test]
fn every_linear_loss_agrees_with_autograd() {
    for (id, method) in methods() {
        for mask in [&[][..], MASK] {
            let batch = batch_for(&*method, TARGETS, mask, [0.0; 2]);
            let mut c = super::mask(&batch);
            if !method.coefficients(&batch, &mut c) {
                continue;
            }
            let (linear, readings, linear_grads) = measured(&*method, &batch, 12.0);
            let (exact, others, grads) = measured(&Autograd(&*method), &batch, 12.0);
            if method.on_policy().is_some() {
                // One name in the log means one thing, whether answers are fresh or not.
                assert!((linear - exact).abs() < 1e-6, "{id}: {linear}, {exact}");
                let apart = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
                assert!(
                    linear_grads.iter().zip(&grads).all(apart),
                    "{id}: gradients differ"
                );
                continue;
            }
            assert!((linear - exact).abs() < 1e-6, "{id}");
            assert_eq!(readings, others);
            assert!(linear_grads == grads, "{id}: gradients differ");
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
    let batch = Batch {
        inputs: tokens[..1056].to_vec(),
        targets: tokens[1..].to_vec(),
        batch_size: 16,
        seq_len: 66,
        ..Batch::default()
    };
    let run = |method: &dyn Method| {
        let mut model = Model::new(&config, VOCAB as usize, &Device::Cpu).unwrap();
        model.init(3).unwrap();
        let mut readings = Readings::default();
        let loss = micro_step(method, &mut model, &batch, 1056.0, &mut readings).unwrap();
        let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
        (loss, grads, model.footprints().0.head)
    };
    let method = MethodConfig::Pretrain(Default::default());
    let (linear, linear_grads, bytes) = run(&*method);
    let (exact, grads, whole) = run(&Autograd(&*method));
    assert!(bytes < whole * 3 / 5, "{bytes} of {whole}");
    assert!((linear - exact).abs() < 1e-5);
    let largest = grads.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    for (a, b) in linear_grads.iter().zip(&grads) {
        assert!((a - b).abs() <= 1e-6 * largest, "{a} and {b}");
    }
}

/// What is not supervised has no influence: other targets there change neither loss nor gradient nor readings.
#[test]
fn targets_that_are_not_supervised_have_no_influence() {
    for (id, method) in methods() {
        let read = |targets: &[u32]| {
            let batch = batch_for(&*method, targets, MASK, [-5.0, -2.0]);
            measured(&*method, &batch, 1.0)
        };
        let given = read(TARGETS);
        assert!(given == read(&[9, 3, 4, 1, 0, 7]), "{id}");
        assert!(given != read(&[2, 1, 4, 5, 6, 7]), "{id}");
    }
}

/// A cold start and preflight give methods of reinforcement learning texts alone.
#[test]
fn texts_without_advantages_are_learned_by_supervised_fine_tuning() {
    let sft = MethodConfig::Sft(Default::default());
    for (id, method) in methods() {
        let mut batch = batch_for(&*method, TARGETS, MASK, [0.0; 2]);
        let on_policy = method.on_policy().is_some();
        let own = |batch: &Batch| {
            let learns = of_batches(&*method, std::slice::from_ref(batch));
            (learns.is_likelihood(), learns.normalizer())
        };
        let likelihood = (method.is_likelihood(), method.normalizer());
        assert_eq!(own(&batch), likelihood, "{id}");
        batch.columns.clear();
        let expected = match on_policy {
            true => (sft.is_likelihood(), sft.normalizer()),
            false => likelihood,
        };
        assert_eq!(own(&batch), expected, "{id}");
    }
}

/// A sum of squared entropies beside the likelihood.
struct EntropyPenalty;
impl Method for EntropyPenalty {
    fn loss(&self, scored: &ScoredBatch, _readings: &mut Readings) -> Result<Tensor> {
        (scored.entropy.sqr()? - &scored.logp)?.sum_all()? / scored.normalizer
    }
}

#[test]
fn a_method_that_uses_entropies_gets_their_gradient() {
    let batch = rows(TARGETS, &[]);
    let (loss, _, grads) = measured(&EntropyPenalty, &batch, 12.0);
    let mut model = tiny_model();
    let out = model.forward(&tokens(&batch)).unwrap();
    let dlogp = Tensor::full(-1.0_f32 / 12.0, (2, 3), &Device::Cpu).unwrap();
    let dentropy = (&out.entropy * (2.0 / 12.0)).unwrap();
    model.backward(&dlogp, Some(&dentropy)).unwrap();
    let exact = model.params().read_grads(<[f32]>::to_vec).unwrap();
    for (a, b) in grads.iter().zip(&exact) {
        assert!((a - b).abs() < 1e-6, "{a} and {b}");
    }
    let sum = (out.entropy.sqr().unwrap() - out.logp).unwrap().sum_all();
    let sum = f64::from(sum.unwrap().to_scalar::<f32>().unwrap());
    assert!((loss - sum / 12.0).abs() < 1e-6);
}

fn dpo(settings: serde_json::Value) -> MethodConfig {
    serde_json::from_value(serde_json::json!({ "dpo": settings })).unwrap()
}

/// Log-probabilities of whole answers in, loss and readings out.
fn dpo_loss(method: &dyn Method, policy: [f32; 2], reference: [f32; 2]) -> (f64, Readings) {
    let batch = Batch {
        inputs: vec![0; 2],
        targets: vec![0; 2],
        batch_size: 2,
        seq_len: 1,
        unit: Unit::Pair,
        sequence: vec![0, 1],
        origins: vec![origin(0), origin(2)],
        columns: vec![Column {
            name: REFERENCE_LOGP,
            values: reference.into(),
        }],
        ..Batch::default()
    };
    let logp = Tensor::from_slice(&policy, (2, 1), &Device::Cpu).unwrap();
    let out = TokenOutputs {
        entropy: logp.zeros_like().unwrap(),
        top1: logp.zeros_like().unwrap(),
        logp,
        value: None,
        teacher: None,
    };
    let mut readings = Readings::default();
    let loss = super::evaluate(method, &batch, &out, 1.0, &mut readings).unwrap();
    (loss, readings)
}

#[test]
fn dpo_begins_at_ln_2_and_knows_its_known_values() {
    let method = dpo(serde_json::json!({"beta": 0.1}));
    let (loss, readings) = dpo_loss(&*method, [-7.0, -9.0], [-7.0, -9.0]);
    assert!((loss - LN_2).abs() < 1e-7, "{loss}");
    assert_eq!(readings.mean("rewards/margins"), Some(0.0));
    assert_eq!(readings.mean("rewards/accuracies"), Some(0.0));
    // β = 0.1, log-ratios +2 and −1: margin 0.3, −ln σ(0.3).
    let (loss, readings) = dpo_loss(&*method, [-5.0, -10.0], [-7.0, -9.0]);
    assert!((loss - 0.554_355_24).abs() < 1e-6, "{loss}");
    let mean = |id| readings.mean(id).unwrap();
    assert!((mean("rewards/margins") - 0.3).abs() < 1e-6);
    assert!((mean("rewards/chosen") - 0.2).abs() < 1e-6);
    assert!((mean("rewards/rejected") + 0.1).abs() < 1e-6);
    assert_eq!(mean("rewards/accuracies"), 1.0);
    assert_eq!(
        (mean("logps/chosen"), mean("logps/rejected")),
        (-5.0, -10.0)
    );
    // Conservative: a tenth of the labels are taken to be wrong.
    let smoothed = dpo(serde_json::json!({"beta": 0.1, "label_smoothing": 0.1}));
    let (loss, _) = dpo_loss(&*smoothed, [-5.0, -10.0], [-7.0, -9.0]);
    assert!((loss - 0.584_355_24).abs() < 1e-6, "{loss}");
}

/// The values that the papers' formulas give by hand: DPO's log-ratios +1 and −2, log-probabilities per token −1 and −1.5.
#[test]
fn the_kin_of_dpo_know_their_known_values() {
    let of = |word: &str, settings: serde_json::Value, policy, reference| {
        let method: MethodConfig =
            serde_json::from_value(serde_json::json!({ word: settings })).unwrap();
        dpo_loss(&*method, policy, reference).0
    };
    let (policy, reference) = ([-6.0, -11.0], [-7.0, -9.0]);
    for (settings, exact) in [
        (serde_json::json!({"beta": 0.1, "loss": "hinge"}), 0.7),
        // One token each: (3 − 5)².
        (serde_json::json!({"beta": 0.1, "loss": "ipo"}), 4.0),
        (
            serde_json::json!({"beta": 0.1, "nll_weight": 1.0}),
            6.554_355_24,
        ),
        (
            serde_json::json!({"beta": 0.1, "weight": 0.0, "mix": [{"loss": "hinge", "weight": 2.0}]}),
            1.4,
        ),
    ] {
        let loss = of("dpo", settings.clone(), policy, reference);
        assert!((loss - exact).abs() < 1e-6, "{settings}: {loss}");
    }
    let per_token = [-1.0, -1.5];
    for (word, settings, exact) in [
        (
            "simpo",
            serde_json::json!({"beta": 2.0, "gamma": 1.0}),
            LN_2,
        ),
        (
            "simpo",
            serde_json::json!({"beta": 2.0, "gamma": 0.5}),
            0.474_077,
        ),
        (
            "cpo",
            serde_json::json!({"beta": 1.0, "nll_weight": 1.0}),
            1.474_077,
        ),
        ("orpo", serde_json::json!({"beta": 1.0}), 1.401_135),
    ] {
        let loss = of(word, settings.clone(), per_token, [0.0; 2]);
        assert!((loss - exact).abs() < 1e-6, "{word} {settings}: {loss}");
    }
    // Equal odds: λ · ln 2 beside the likelihood.
    let equal = of(
        "orpo",
        serde_json::json!({"beta": 0.5}),
        [-1.0, -1.0],
        [0.0; 2],
    );
    assert!((equal - 1.0 - 0.5 * LN_2).abs() < 1e-6, "{equal}");
}

/// β = 0.1 and no baseline: log-ratios +1 desirable and −2 undesirable.
#[test]
fn kto_knows_its_known_values_and_its_baseline() {
    let method: MethodConfig = serde_json::from_value(serde_json::json!({"kto": {}})).unwrap();
    let mut batch = batch_for(&*method, TARGETS, &[], [0.0; 2]);
    let loss = |label: f32, ratio: f32, baseline: &[f32]| {
        let mut single = batch.clone();
        single.seq_len = 1;
        single.batch_size = 2;
        single.inputs.truncate(2);
        single.targets.truncate(2);
        single.sequence = vec![0, 1];
        single.columns[1].values = vec![label; 2];
        single.columns.push(Column {
            name: BASELINE,
            values: baseline.to_vec(),
        });
        let logp = Tensor::new(&[[ratio], [ratio]], &Device::Cpu).unwrap();
        let out = TokenOutputs {
            entropy: logp.zeros_like().unwrap(),
            top1: logp.zeros_like().unwrap(),
            value: None,
            teacher: None,
            logp,
        };
        super::evaluate(&*method, &single, &out, 2.0, &mut Readings::default()).unwrap()
    };
    for (label, ratio, baseline, exact) in [
        (1.0, 1.0, 0.0, 0.475_021),
        (0.0, -2.0, 0.0, 0.450_166),
        (1.0, 0.0, 0.0, 0.5),
        (0.0, 0.0, 0.0, 0.5),
        // The baseline moves what counts as good, and never below 0.
        (1.0, 3.0, 2.0, 0.475_021),
        (0.0, 0.0, 2.0, 0.450_166),
        (1.0, 1.0, -5.0, 0.475_021),
    ] {
        let found = loss(label, ratio, &[baseline; 2]);
        assert!((found - exact).abs() < 1e-6, "{label} {ratio}: {found}");
    }
    batch.columns.truncate(1);
    let error = micro_step(
        &*method,
        &mut tiny_model(),
        &batch,
        1.0,
        &mut Readings::default(),
    );
    assert!(error.unwrap_err().to_string().contains("desirability"));
}

#[test]
fn dpo_loses_no_precision_far_from_the_reference() {
    let method = dpo(serde_json::json!({"beta": 1.0}));
    let (worst, _) = dpo_loss(&*method, [-600.0, -100.0], [-100.0, -100.0]);
    assert_eq!(worst, 500.0);
    let (best, _) = dpo_loss(&*method, [-100.0, -600.0], [-100.0, -100.0]);
    assert!((0.0..1e-30).contains(&best), "{best}");
}

#[test]
fn dpo_says_what_its_batch_lacks() {
    let method = dpo(serde_json::json!({}));
    let mut batch = batch_for(&*method, TARGETS, MASK, [0.0; 2]);
    batch.columns.clear();
    let mut readings = Readings::default();
    let error = |batch: &Batch, readings: &mut Readings| {
        let result = micro_step(&*method, &mut tiny_model(), batch, 1.0, readings);
        result.unwrap_err().to_string()
    };
    assert!(error(&batch, &mut readings).contains("no column `reference_logp`"));
    assert!(error(&rows(TARGETS, MASK), &mut readings).contains("no sequence ids"));
}

/// At 0 too, where DPO begins.
#[test]
fn the_gradient_of_log_sigmoid_is_one_minus_sigmoid() {
    let x = Var::new(&[-90.0_f32, -2.0, 0.0, 0.5, 90.0], &Device::Cpu).unwrap();
    let sum = log_sigmoid(x.as_tensor()).unwrap().sum_all().unwrap();
    let gradients = sum.backward().unwrap();
    let gradient = gradients.get(&x).unwrap().to_vec1::<f32>().unwrap();
    for (gradient, exact) in gradient.iter().zip([1.0, 0.880_797, 0.5, 0.377_541, 0.0]) {
        assert!((gradient - exact).abs() < 1e-6, "{gradient}, {exact}");
    }
}

#[test]
fn every_method_is_named_by_rows_of_its_unit() {
    let known: Vec<&str> = methods().map(|(id, _)| id).collect();
    for (id, method) in methods() {
        let named = method.needs().unit.methods();
        assert!(named.contains(&id), "{id}");
        assert!(named.iter().all(|name| known.contains(name)), "{id}");
    }
}
