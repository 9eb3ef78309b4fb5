//! PPO against a reference in plain torch: advantages, returns, both losses, their gradients and readings.

use super::policy::{OLD_LOGP, TOKEN_REFERENCE};
use super::ppo::{Answered, OLD_VALUES, RETURNS, TOKEN_ADVANTAGE};
use super::*;
use crate::data::{Column, Origin};
use std::collections::BTreeMap;

#[derive(serde::Deserialize)]
struct Oracle {
    rows: usize,
    tokens: usize,
    mask: Vec<u8>,
    old: Vec<f64>,
    reference: Vec<f64>,
    logps: Vec<f32>,
    entropies: Vec<f32>,
    old_values: Vec<f64>,
    values: Vec<f32>,
    scores: Vec<f64>,
    ended: Vec<u8>,
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    method: MethodConfig,
    advantages: Vec<f64>,
    returns: Vec<f64>,
    loss: f64,
    value_loss: f64,
    dlogp: Vec<f64>,
    dentropy: Vec<f64>,
    dvalue: Vec<f64>,
    readings: BTreeMap<String, f64>,
    rollout: BTreeMap<String, f64>,
}

/// What a method makes of a batch.
struct Made {
    loss: f64,
    readings: Readings,
    upstream: Upstream,
}

fn oracle() -> Oracle {
    serde_json::from_str(include_str!("../../../../tests/oracle/ppo.json")).unwrap()
}

fn ppo_of(method: &MethodConfig) -> &super::ppo::Config {
    method.on_policy().unwrap().critic().unwrap()
}

fn near(ours: f64, theirs: f64, about: &str) {
    assert!((ours - theirs).abs() < 1e-5, "{ours}, {theirs}: {about}");
}

fn all_near(ours: &[f32], theirs: &[f64], about: &str) {
    assert_eq!(ours.len(), theirs.len(), "{about}");
    let pairs = ours.iter().zip(theirs);
    pairs.for_each(|(a, b)| near(f64::from(*a), *b, about));
}

impl Oracle {
    fn answers(&self) -> Vec<Answered> {
        let of = |values: &[f64], row: usize| -> Vec<f64> {
            let places = row * self.tokens..(row + 1) * self.tokens;
            let real = places.filter(|at| self.mask[*at] == 1);
            real.map(|at| values[at]).collect()
        };
        let answer = |row| Answered {
            score: self.scores[row],
            ended: self.ended[row] == 1,
            logp: of(&self.old, row),
            reference: of(&self.reference, row),
            values: of(&self.old_values, row),
        };
        (0..self.rows).map(answer).collect()
    }

    /// All answers, with so many places of padding behind the longest.
    fn batch(&self, case: &Case, padding: usize) -> Batch {
        let width = self.tokens + padding;
        let wide = |values: Vec<f32>| -> Vec<f32> {
            let rows = values.chunks(self.tokens);
            rows.flat_map(|row| row.iter().copied().chain(vec![0.0; padding]))
                .collect()
        };
        let narrow = |values: &[f64]| wide(values.iter().map(|x| *x as f32).collect());
        let column = |name, values| Column { name, values };
        let origin = |row: usize| Origin {
            held_out: false,
            source: 0,
            start: row as u64,
        };
        let mask = wide(self.mask.iter().map(|m| f32::from(*m)).collect());
        Batch {
            inputs: vec![0; self.rows * width],
            targets: vec![0; self.rows * width],
            mask: mask.iter().map(|m| *m == 1.0).collect(),
            batch_size: self.rows,
            seq_len: width,
            unit: Unit::Prompt,
            origins: (0..self.rows).map(origin).collect(),
            columns: vec![
                column(OLD_LOGP, narrow(&self.old)),
                column(TOKEN_REFERENCE, narrow(&self.reference)),
                column(TOKEN_ADVANTAGE, narrow(&case.advantages)),
                column(RETURNS, narrow(&case.returns)),
                column(OLD_VALUES, narrow(&self.old_values)),
            ],
            ..Batch::default()
        }
    }

    fn made(&self, method: &dyn Method, values: &[f32], batch: &Batch) -> Made {
        let width = batch.seq_len;
        let wide = |values: &[f32]| -> Vec<f32> {
            let rows = values.chunks(self.tokens);
            rows.flat_map(|row| row.iter().copied().chain(vec![0.0; width - self.tokens]))
                .collect()
        };
        let (logp, entropy) = (wide(values), wide(&self.entropies));
        let given = TokenValues {
            logp: &logp,
            entropy: &entropy,
            top1: &entropy,
            value: None,
            teacher: None,
        };
        let mut upstream = Upstream {
            dlogp: vec![0.0; logp.len()],
            dentropy: vec![0.0; logp.len()],
            ..Upstream::default()
        };
        let normalizer = method.normalizer().count(std::slice::from_ref(batch)) as f64;
        let mut readings = Readings::default();
        let about = (batch, normalizer);
        let loss = by_autograd(method, given, about, &mut upstream, &mut readings).unwrap();
        Made {
            loss,
            readings,
            upstream,
        }
    }
}

#[test]
fn advantages_returns_and_readings_of_a_rollout_are_the_references() {
    let oracle = oracle();
    assert_eq!(oracle.cases.len(), 6);
    for case in &oracle.cases {
        let ppo = ppo_of(&case.method);
        let judged = ppo.compute_gae(ppo.beta, &oracle.answers());
        let about = format!("{ppo:?}");
        for row in 0..oracle.rows {
            for (at, (a, r)) in judged.advantages[row]
                .iter()
                .zip(&judged.returns[row])
                .enumerate()
            {
                let place = row * oracle.tokens + at;
                near(*a, case.advantages[place], &about);
                near(*r, case.returns[place], &about);
            }
        }
        for (id, theirs) in &case.rollout {
            let ours = judged.readings.iter().find(|(ours, _)| ours == id);
            near(ours.unwrap().1, *theirs, &format!("{id} {about}"));
        }
    }
}

#[test]
fn losses_and_gradients_are_the_references_and_padding_changes_nothing() {
    let oracle = oracle();
    for case in &oracle.cases {
        let about = format!("{:?}", case.method);
        for padding in [0, 3] {
            let batch = oracle.batch(case, padding);
            let real = |values: &[f32]| -> Vec<f32> {
                let rows = values.chunks(batch.seq_len);
                rows.flat_map(|row| row[..oracle.tokens].to_vec()).collect()
            };
            let policy = oracle.made(&*case.method, &oracle.logps, &batch);
            near(policy.loss, case.loss, &about);
            all_near(&real(&policy.upstream.dlogp), &case.dlogp, &about);
            all_near(&real(&policy.upstream.dentropy), &case.dentropy, &about);
            let value_loss = ppo_of(&case.method).value_loss();
            let value = oracle.made(&value_loss, &oracle.values, &batch);
            near(value.loss, case.value_loss, &about);
            all_near(&real(&value.upstream.dlogp), &case.dvalue, &about);
            for (id, theirs) in &case.readings {
                let ours = policy.readings.mean(id).or(value.readings.mean(id));
                near(ours.unwrap(), *theirs, &format!("{id} {about}"));
            }
        }
    }
}

/// A wrong bound, sign or weight must not pass.
#[test]
fn another_setting_is_not_what_the_reference_gives() {
    let oracle = oracle();
    let case = &oracle.cases[0];
    let batch = oracle.batch(case, 0);
    let other = super::ppo::Config {
        clip: 0.1,
        value_clip: 0.05,
        ..super::ppo::Config::default()
    };
    let policy = oracle.made(&other, &oracle.logps, &batch);
    assert!((policy.loss - case.loss).abs() > 1e-4);
    let value = oracle.made(&other.value_loss(), &oracle.values, &batch);
    assert!((value.loss - case.value_loss).abs() > 1e-5);
}

/// Fresh answers: what coefficients say is the gradient of the clipped loss at a ratio of 1, and (ρ, A) have known losses.
#[test]
fn fresh_answers_and_the_table_of_clipping() {
    let oracle = oracle();
    let case = &oracle.cases[0];
    let mut batch = oracle.batch(case, 0);
    let ppo = ppo_of(&case.method);
    assert!(!ppo.coefficients(&batch, &mut mask(&batch)));
    batch.columns.retain(|c| c.name != OLD_LOGP);
    let mut c = mask(&batch);
    assert!(ppo.coefficients(&batch, &mut c));
    let made = oracle.made(ppo, &oracle.logps, &batch);
    let n = batch.supervised() as f64;
    for (c, dlogp) in c.iter().zip(&made.upstream.dlogp) {
        near(-f64::from(*c) / n, f64::from(*dlogp), "fresh");
    }
    assert_eq!(made.readings.mean("policy/clipfrac_avg"), Some(0.0));
    assert!(made.loss.abs() < 1e-6, "whitened advantages have mean 0");
    for (ratio, advantage, loss) in [
        (1.25, 1.0, -1.2),
        (1.25, -1.0, 1.25),
        (0.5, 1.0, -0.5),
        (0.5, -1.0, 0.8),
    ] {
        let column = |name, x: f32| Column {
            name,
            values: vec![x; 7],
        };
        let one = Batch {
            inputs: vec![0; 7],
            targets: vec![0; 7],
            batch_size: 1,
            seq_len: 7,
            columns: vec![column(OLD_LOGP, 0.0), column(TOKEN_ADVANTAGE, advantage)],
            ..Batch::default()
        };
        let logp = vec![f32::ln(ratio); 7];
        let scored = ScoredBatch {
            batch: &one,
            logp: Tensor::from_vec(logp, (1, 7), &Device::Cpu).unwrap(),
            entropy: Tensor::zeros((1, 7), candle_core::DType::F32, &Device::Cpu).unwrap(),
            value: None,
            normalizer: 7.0,
        };
        let ours = ppo.loss(&scored, &mut Readings::default()).unwrap();
        near(
            f64::from(ours.to_scalar::<f32>().unwrap()),
            loss,
            "the table",
        );
    }
}
