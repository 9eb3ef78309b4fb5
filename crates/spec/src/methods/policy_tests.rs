//! Policy losses against TRL's own code, and advantages whose values are known.

use super::policy::*;
use super::*;
use crate::base::stats::sample_std;
use crate::data::{Column, Origin};

#[derive(serde::Deserialize)]
struct Oracle {
    rows: usize,
    tokens: usize,
    limit: f32,
    mask: Vec<u8>,
    logps: Vec<f32>,
    old: Vec<f32>,
    reference: Vec<f32>,
    advantages: Vec<f32>,
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    method: MethodConfig,
    fresh: bool,
    loss: f64,
    gradient: Vec<f64>,
    readings: std::collections::BTreeMap<String, f64>,
}

fn oracle() -> Oracle {
    serde_json::from_str(include_str!("../../../../tests/oracle/policy.json")).unwrap()
}

impl Oracle {
    /// The answers of some rows as a batch.
    fn batch(&self, rows: std::ops::Range<usize>, fresh: bool) -> Batch {
        let places = rows.start * self.tokens..rows.end * self.tokens;
        let tokens = |values: &[f32]| values[places.clone()].to_vec();
        let column = |name, values| Column { name, values };
        let mut columns = vec![
            column(ADVANTAGE, self.advantages[rows.clone()].to_vec()),
            column(ANSWER_LIMIT, vec![self.limit; rows.len()]),
            column(TOKEN_REFERENCE, tokens(&self.reference)),
        ];
        columns.extend((!fresh).then(|| column(OLD_LOGP, tokens(&self.old))));
        let origin = |row: usize| Origin {
            held_out: false,
            source: 0,
            start: row as u64,
        };
        Batch {
            inputs: vec![0; places.len()],
            targets: vec![0; places.len()],
            mask: self.mask[places.clone()].iter().map(|m| *m == 1).collect(),
            batch_size: rows.len(),
            seq_len: self.tokens,
            unit: Unit::Prompt,
            origins: rows.map(origin).collect(),
            columns,
            ..Batch::default()
        }
    }

    /// Loss, readings and the gradient with respect to log-probabilities over micro-batches of so many rows.
    fn measured(&self, case: &Case, rows: usize) -> (f64, Readings, Vec<f32>) {
        let parts = (0..self.rows).step_by(rows).map(|at| at..at + rows);
        let batches: Vec<Batch> = parts.map(|rows| self.batch(rows, case.fresh)).collect();
        let normalizer = case.method.normalizer().count(&batches) as f64;
        self.summed(case, &batches, normalizer)
    }

    /// The same over batches of all rows in order.
    fn summed(&self, case: &Case, batches: &[Batch], normalizer: f64) -> (f64, Readings, Vec<f32>) {
        let (mut loss, mut readings, mut gradient) = (0.0, Readings::default(), Vec::new());
        let mut rest = &*self.logps;
        for batch in batches {
            let (logp, others) = rest.split_at(batch.inputs.len());
            rest = others;
            let zeros = vec![0.0; logp.len()];
            let values = TokenValues {
                logp,
                entropy: &zeros,
                top1: &zeros,
                value: None,
                teacher: None,
            };
            let mut upstream = Upstream {
                dlogp: zeros.clone(),
                ..Upstream::default()
            };
            let given = (batch, normalizer);
            loss +=
                by_autograd(&*case.method, values, given, &mut upstream, &mut readings).unwrap();
            gradient.extend(upstream.dlogp);
        }
        (loss, readings, gradient)
    }
}

#[test]
fn losses_gradients_and_readings_are_those_of_trl() {
    let oracle = oracle();
    assert_eq!(oracle.cases.len(), 54);
    for case in &oracle.cases {
        let (loss, readings, gradient) = oracle.measured(case, oracle.rows);
        let about = format!("{:?}, fresh: {}", case.method, case.fresh);
        assert!(
            (loss - case.loss).abs() < 1e-5,
            "{loss}, {}: {about}",
            case.loss
        );
        for (ours, theirs) in gradient.iter().zip(&case.gradient) {
            assert!(
                (f64::from(*ours) - theirs).abs() < 1e-5,
                "{ours}, {theirs}: {about}"
            );
        }
        for (id, theirs) in &case.readings {
            let ours = readings.mean(id).unwrap();
            assert!(
                (ours - theirs).abs() < 1e-5,
                "{id} {ours}, {theirs}: {about}"
            );
        }
    }
}

/// A wrong divisor, sign or bound must not pass.
#[test]
fn another_setting_is_not_what_trl_gives() {
    let oracle = oracle();
    let case = &oracle.cases[0];
    for (key, value) in [
        ("clip_high", serde_json::json!(0.2)),
        ("clip_low", serde_json::json!(0.1)),
        ("aggregation", serde_json::json!("grpo")),
        ("ratio", serde_json::json!("sequence")),
        ("beta", serde_json::json!(0.01)),
        ("delta", serde_json::json!(1.3)),
    ] {
        let mut method = serde_json::to_value(&case.method).unwrap();
        method["grpo"][key] = value;
        let other = Case {
            method: serde_json::from_value(method).unwrap(),
            fresh: case.fresh,
            loss: 0.0,
            gradient: Vec::new(),
            readings: Default::default(),
        };
        let (loss, ..) = oracle.measured(&other, oracle.rows);
        assert!((loss - case.loss).abs() > 1e-4, "{key}: {loss}");
    }
}

/// All but the aggregation that is defined by micro-batches are the same however answers are divided among them.
#[test]
fn micro_batches_change_nothing() {
    let oracle = oracle();
    for case in &oracle.cases {
        if format!("{:?}", case.method).contains("Bnpo") {
            continue;
        }
        for rows in [1, 2, 3] {
            let (loss, _, gradient) = oracle.measured(case, rows);
            assert!((loss - case.loss).abs() < 1e-5, "{:?}", case.method);
            let apart = gradient.iter().zip(&case.gradient);
            assert!(
                apart
                    .into_iter()
                    .all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5)
            );
        }
    }
}

/// A micro-batch that goes through the model in parts is one micro-batch, by any aggregation.
#[test]
fn parts_of_a_micro_batch_change_nothing() {
    let oracle = oracle();
    let near = |a: f64, b: f64, case: &Case| {
        assert!((a - b).abs() < 1e-5, "{a}, {b}: {:?}", case.method);
    };
    for case in &oracle.cases {
        let whole = oracle.batch(0..oracle.rows, case.fresh);
        let normalizer = case.method.normalizer().count(std::slice::from_ref(&whole)) as f64;
        let parts = whole.parts(oracle.tokens);
        assert_eq!(parts.len(), oracle.rows);
        let (loss, _, gradient) = oracle.summed(case, &parts, normalizer);
        near(loss, case.loss, case);
        for (ours, theirs) in gradient.iter().zip(&case.gradient) {
            near(f64::from(*ours), *theirs, case);
        }
        let mut at = 0;
        for part in &parts {
            let mut c = mask(part);
            let linear = case.method.coefficients(part, &mut c);
            for (c, theirs) in c.iter().zip(&case.gradient[at..]).filter(|_| linear) {
                near(-f64::from(*c) / normalizer, *theirs, case);
            }
            at += c.len();
        }
    }
}

/// On fresh answers the coefficients are the gradient of the surrogate, also where a KL to the reference is charged to the reward:
/// that moves the advantages alone. The plan takes memory for what the method says of itself.
#[test]
fn coefficients_of_fresh_answers_are_the_gradient_of_trl() {
    let oracle = oracle();
    let mut linear = 0;
    let fresh = || oracle.cases.iter().filter(|case| case.fresh);
    let same = fresh().map(|case| (case.method.clone(), case));
    let charged = fresh().filter_map(|case| {
        let mut method = serde_json::to_value(&case.method).unwrap();
        *method.get_mut("rloo")?.get_mut("beta")? = serde_json::json!(0.1);
        let method: MethodConfig = serde_json::from_value(method).unwrap();
        assert!(method.on_policy().unwrap().charges_kl());
        Some((method, case))
    });
    for (method, case) in same.chain(charged) {
        let batch = oracle.batch(0..oracle.rows, true);
        let mut c = mask(&batch);
        let is_linear = method.coefficients(&batch, &mut c);
        let said = method.on_policy().unwrap().fresh_is_linear();
        assert_eq!(said, is_linear, "{method:?}");
        if !is_linear {
            continue;
        }
        let normalizer = method.normalizer().count(&[batch]) as f64;
        let again = Case {
            method: method.clone(),
            fresh: true,
            loss: 0.0,
            gradient: Vec::new(),
            readings: Default::default(),
        };
        let (.., autograd) = oracle.measured(&again, oracle.rows);
        for ((c, theirs), other) in c.iter().zip(&case.gradient).zip(autograd) {
            let ours = -f64::from(*c) / normalizer;
            let apart = (ours - theirs).abs().max((ours - f64::from(other)).abs());
            assert!(apart < 1e-5, "{ours}, {theirs}, {other}: {method:?}");
        }
        linear += 1;
    }
    assert!(linear >= 6, "{linear}");
}

fn advantages(method: serde_json::Value, rewards: &[f64], group_size: usize) -> Vec<f64> {
    let method: MethodConfig = serde_json::from_value(method).unwrap();
    method.on_policy().unwrap().advantages(rewards, group_size)
}

fn near(found: &[f64], known: &[f64], off: f64) {
    assert_eq!(found.len(), known.len());
    let apart = |(a, b): (&f64, &f64)| (a - b).abs() <= off;
    assert!(found.iter().zip(known).all(apart), "{found:?}, {known:?}");
}

#[test]
fn advantages_have_their_known_values() {
    let grpo = |scale: &str| serde_json::json!({"grpo": {"scale": scale}});
    let a = 0.865_875;
    near(
        &advantages(grpo("group"), &[1.0, 0.0, 0.0, 1.0], 4),
        &[a, -a, -a, a],
        1e-6,
    );
    let one = advantages(grpo("group"), &[1.0, 0.0, 0.0, 0.0], 4);
    near(&one, &[1.4997, -0.4999, -0.4999, -0.4999], 1e-4);
    // A constant reward teaches exactly nothing.
    assert_eq!(advantages(grpo("group"), &[0.3; 4], 4), [0.0; 4]);
    let rewards = [1.0, 0.0, 0.5, 0.5, 2.0, 1.0];
    let groups = advantages(grpo("group"), &rewards, 2);
    for group in groups.chunks(2) {
        assert!(group.iter().sum::<f64>().abs() < 1e-12);
    }
    let moved: Vec<f64> = rewards.iter().map(|r| 7.0 * r - 3.0).collect();
    near(&advantages(grpo("group"), &moved, 2), &groups, 2e-4);
    near(
        &advantages(grpo("none"), &rewards, 2),
        &[0.5, -0.5, 0.0, 0.0, 0.5, -0.5],
        1e-12,
    );
    let spread = sample_std(&rewards) + 1e-4;
    let batch = [0.5, -0.5, 0.0, 0.0, 0.5, -0.5].map(|a| a / spread);
    near(&advantages(grpo("batch"), &rewards, 2), &batch, 1e-12);

    // REINFORCE++: standardized over the step; with the groups' baseline, centred in groups and standardized over the step.
    let plus = |baseline: &str, scale: &str| serde_json::json!({"grpo": {"baseline": baseline, "scale": scale}});
    let mean = rewards.iter().sum::<f64>() / 6.0;
    let standard = rewards.map(|r| (r - mean) / spread);
    near(
        &advantages(plus("batch", "batch"), &rewards, 2),
        &standard,
        1e-12,
    );
    let centred = [0.5, -0.5, 0.0, 0.0, 0.5, -0.5];
    let wide = sample_std(&centred) + 1e-4;
    let whitened = advantages(plus("group", "advantages"), &rewards, 2);
    near(&whitened, &centred.map(|a| a / wide), 1e-12);

    let rloo = || serde_json::json!({"rloo": {}});
    let a = 2.0 / 3.0;
    near(
        &advantages(rloo(), &[1.0, 0.0, 0.0, 1.0], 4),
        &[a, -a, -a, a],
        1e-12,
    );
    near(
        &advantages(rloo(), &[3.0, 1.0, 2.0], 3),
        &[1.5, -1.5, 0.0],
        1e-12,
    );
    let normalized = serde_json::json!({"rloo": {"normalize": true}});
    let found = advantages(normalized, &[3.0, 1.0, 2.0], 3);
    assert!((sample_std(&found) - 1.0).abs() < 1e-3);
}

#[test]
fn kl_estimates_have_their_known_values() {
    let d = Tensor::new(&[2.0_f32.ln()], &Device::Cpu).unwrap();
    for (kl, known) in [
        (Kl::K1, -std::f32::consts::LN_2),
        (Kl::K2, 0.240_227),
        (Kl::K3, 0.306_853),
    ] {
        let found = kl.estimate(&d).unwrap().to_vec1::<f32>().unwrap()[0];
        assert!((found - known).abs() < 1e-6, "{kl:?}: {found}");
    }
}

/// Lengths 2 and 4, per-token losses 1 and 3, a longest length of 8.
#[test]
fn aggregations_have_their_known_values() {
    let mut batch = oracle().batch(0..2, true);
    (batch.seq_len, batch.mask) = (4, [true, true, false, false, true, true, true, true].into());
    (batch.inputs, batch.targets) = (vec![0; 8], vec![0; 8]);
    batch.columns.retain(|column| column.name != ANSWER_LIMIT);
    batch.columns.push(Column {
        name: ANSWER_LIMIT,
        values: vec![8.0; 2],
    });
    let losses = Tensor::new(&[[1.0_f32, 1.0, 1.0, 1.0], [3.0; 4]], &Device::Cpu).unwrap();
    for (word, known) in [
        ("grpo", 2.0),
        ("dapo", 2.333_333),
        ("bnpo", 2.333_333),
        ("dr_grpo", 0.875),
    ] {
        let aggregation: Aggregation = serde_json::from_value(word.into()).unwrap();
        let method: MethodConfig =
            serde_json::from_value(serde_json::json!({"grpo": {"aggregation": word}})).unwrap();
        let scored = ScoredBatch {
            batch: &batch,
            logp: losses.clone(),
            entropy: losses.clone(),
            value: None,
            normalizer: method.normalizer().count(std::slice::from_ref(&batch)) as f64,
        };
        let mask = scored.mask().unwrap();
        let found = aggregate(&scored, (&losses, &mask), aggregation).unwrap();
        let found = found.to_scalar::<f32>().unwrap();
        assert!((found - known).abs() < 1e-5, "{word}: {found}");
    }
}
