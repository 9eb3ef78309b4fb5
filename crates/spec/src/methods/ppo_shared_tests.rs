//! A critic on the policy's trunk, against one backward pass of plain torch through a whole decoder: the loss, its readings, and
//! its gradient with respect to every weight.

use super::policy::OLD_LOGP;
use super::ppo::{OLD_VALUES, RETURNS, TOKEN_ADVANTAGE};
use super::*;
use crate::data::{Column, Origin};
use std::collections::BTreeMap;

#[derive(serde::Deserialize)]
struct Case {
    method: MethodConfig,
    rows: usize,
    tokens: usize,
    ids: Vec<u32>,
    targets: Vec<u32>,
    mask: Vec<u8>,
    old: Vec<f32>,
    old_values: Vec<f32>,
    advantages: Vec<f32>,
    returns: Vec<f32>,
    weights: BTreeMap<String, Vec<f32>>,
    loss: f64,
    values: Vec<f64>,
    gradients: BTreeMap<String, Vec<f64>>,
    readings: BTreeMap<String, f64>,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../../../tests/oracle/ppo_shared.json")).unwrap()
}

impl Case {
    /// The decoder of the script, with its weights.
    fn model(&self) -> Model {
        let config = serde_json::json!({
            "n_layer": 1, "n_head": 1, "d_model": 8, "d_ff": 12, "seq_len": 7, "position": {"none": {}}, "norm": {"rmsnorm": {}},
            "mlp": {"relu": {}}, "tie_embeddings": false, "value_head": true,
        });
        let config = serde_json::from_value(config).unwrap();
        let mut model = Model::new(&config, 11, &Device::Cpu).unwrap();
        let infos = model.params().infos().to_vec();
        assert_eq!(infos.len(), self.weights.len());
        let fill = |flat: &mut [f32]| {
            for info in &infos {
                flat[info.offset..][..info.len].copy_from_slice(&self.weights[&info.name]);
            }
        };
        model.params_mut().write_weights(fill).unwrap();
        model
    }

    fn batch(&self) -> Batch {
        let column = |name, values: &[f32]| Column {
            name,
            values: values.to_vec(),
        };
        let origin = |row: usize| Origin {
            held_out: false,
            source: 0,
            start: row as u64,
        };
        Batch {
            inputs: self.ids.clone(),
            targets: self.targets.clone(),
            mask: self.mask.iter().map(|m| *m == 1).collect(),
            batch_size: self.rows,
            seq_len: self.tokens,
            unit: Unit::Prompt,
            origins: (0..self.rows).map(origin).collect(),
            columns: vec![
                column(OLD_LOGP, &self.old),
                column(OLD_VALUES, &self.old_values),
                column(TOKEN_ADVANTAGE, &self.advantages),
                column(RETURNS, &self.returns),
            ],
            ..Batch::default()
        }
    }
}

fn near(ours: f64, theirs: f64, about: &str) {
    assert!((ours - theirs).abs() < 1e-5, "{ours}, {theirs}: {about}");
}

#[test]
fn both_losses_go_back_through_one_trunk_as_torch_says() {
    let cases = cases();
    assert_eq!(cases.len(), 2);
    for case in &cases {
        let (mut model, batch) = (case.model(), case.batch());
        let values = model.score(&tokens(&batch)).unwrap().value.unwrap();
        let values: Vec<f32> = values.flatten_all().unwrap().to_vec1().unwrap();
        for (ours, theirs) in values.iter().zip(&case.values) {
            near(f64::from(*ours), *theirs, "a value");
        }
        // In one batch, and in halves of rows: the shares add up.
        let halves = batch.parts(3 * case.tokens);
        assert_eq!(halves.len(), 2);
        for parts in [std::slice::from_ref(&batch), &*halves] {
            let about = format!("{:?} in {}", case.method, parts.len());
            let n = case.method.normalizer().count(parts) as f64;
            let mut readings = Readings::default();
            model.params_mut().zero_grads().unwrap();
            let mut loss = 0.0;
            for part in parts {
                loss += micro_step(&*case.method, &mut model, part, n, &mut readings).unwrap();
            }
            near(loss, case.loss, &about);
            for (id, theirs) in &case.readings {
                near(
                    readings.mean(id).unwrap(),
                    *theirs,
                    &format!("{id} {about}"),
                );
            }
            let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
            for info in model.params().infos() {
                let theirs = &case.gradients[&info.name];
                assert!(theirs.iter().any(|x| x.abs() > 1e-4), "{}", info.name);
                for (ours, theirs) in grads[info.grad.unwrap()..].iter().zip(theirs) {
                    near(f64::from(*ours), *theirs, &format!("{} {about}", info.name));
                }
            }
        }
    }
}

/// A weight of the value loss that is off must not pass.
#[test]
fn another_weight_of_the_value_loss_is_not_what_torch_says() {
    let case = &cases()[0];
    let (mut model, batch) = (case.model(), case.batch());
    let Some(ppo) = case.method.on_policy().and_then(|m| m.critic()) else {
        panic!("this is not PPO")
    };
    let other = ppo::Config {
        value_coef: 0.2,
        ..ppo.clone()
    };
    let n = other.normalizer().count(std::slice::from_ref(&batch)) as f64;
    let loss = micro_step(&other, &mut model, &batch, n, &mut Readings::default()).unwrap();
    assert!((loss - case.loss).abs() > 1e-3);
}

/// Before the first rollout, in a cold start, there are no returns: the answers of the data are learned, and nothing else.
#[test]
fn a_cold_start_learns_no_values() {
    let case = &cases()[0];
    let (mut model, mut batch) = (case.model(), case.batch());
    batch.columns.clear();
    assert!(case.method.coefficients(&batch, &mut mask(&batch)));
    let n = batch.supervised() as f64;
    micro_step(
        &*case.method,
        &mut model,
        &batch,
        n,
        &mut Readings::default(),
    )
    .unwrap();
    let head = model.params().value_head().unwrap().grad.unwrap();
    let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
    assert!(grads[head..].iter().all(|x| *x == 0.0));
    assert!(grads[..head].iter().any(|x| *x != 0.0));
}
