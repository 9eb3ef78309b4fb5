//! The preference methods on fixed log-probabilities against PyTorch and TRL: losses, readings, and gradients with respect to
//! the log-probability of each token. `tests/oracle/preference_losses_oracle.py` made the fixture.

use super::TOLERANCE;
use candle_core::{Device, Tensor, Var};
use llmtui::data::{Batch, Column, LABEL, Origin};
use llmtui::methods::{BASELINE, MethodConfig, REFERENCE_LOGP, ScoredBatch};
use llmtui::metrics::Readings;
use std::collections::BTreeMap;

#[derive(Debug, serde::Deserialize)]
struct Fixture {
    width: usize,
    cases: Vec<Case>,
}

#[derive(Debug, serde::Deserialize)]
struct Case {
    method: MethodConfig,
    lengths: Vec<usize>,
    logp: Vec<Vec<f32>>,
    reference_logp: Vec<f32>,
    #[serde(default)]
    label: Vec<f32>,
    #[serde(default)]
    baseline: Vec<f32>,
    loss: f64,
    readings: BTreeMap<String, f64>,
    grad: Vec<Vec<f64>>,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("preference_losses.json")).unwrap()
}

fn batch(case: &Case, width: usize) -> Batch {
    let rows = case.lengths.len();
    let column = |name, values: &[f32]| Column {
        name,
        values: values.to_vec(),
    };
    let mut columns = vec![column(REFERENCE_LOGP, &case.reference_logp)];
    if !case.label.is_empty() {
        columns.push(column(LABEL, &case.label));
        columns.push(column(BASELINE, &case.baseline));
    }
    let origin = |row: usize| Origin {
        held_out: false,
        source: 0,
        start: row as u64,
    };
    Batch {
        inputs: vec![0; rows * width],
        targets: vec![0; rows * width],
        mask: (0..rows * width)
            .map(|at| at % width < case.lengths[at / width])
            .collect(),
        batch_size: rows,
        seq_len: width,
        unit: case.method.needs().unit,
        sequence: (0..rows * width).map(|at| (at / width) as u32).collect(),
        origins: (0..rows).map(origin).collect(),
        columns,
        ..Batch::default()
    }
}

/// Largest difference of the loss, a reading or a gradient from the fixture's, with the given method.
fn distance(case: &Case, method: &MethodConfig, width: usize) -> f64 {
    let batch = batch(case, width);
    let shape = (batch.batch_size, width);
    let logp = Var::from_vec(case.logp.concat(), shape, &Device::Cpu).unwrap();
    let scored = ScoredBatch {
        batch: &batch,
        logp: logp.as_tensor().clone(),
        entropy: Tensor::zeros(shape, candle_core::DType::F32, &Device::Cpu).unwrap(),
        value: None,
        normalizer: method.normalizer().count(std::slice::from_ref(&batch)) as f64,
    };
    let mut readings = Readings::default();
    let loss = method.loss(&scored, &mut readings).unwrap();
    let gradients = loss.backward().unwrap();
    let grad = gradients.get(&logp).unwrap().flatten_all().unwrap();
    let mut most = (f64::from(loss.to_scalar::<f32>().unwrap()) - case.loss).abs();
    for (name, exact) in &case.readings {
        let found = readings.mean(name).unwrap_or(f64::NAN);
        assert!(
            (found - exact).abs() <= TOLERANCE,
            "{method:?} {name}: {found}, {exact}"
        );
    }
    for (found, exact) in grad
        .to_vec1::<f32>()
        .unwrap()
        .iter()
        .zip(case.grad.concat())
    {
        most = most.max((f64::from(*found) - exact).abs());
    }
    most
}

#[test]
fn every_preference_loss_matches_the_papers() {
    let Fixture { width, cases } = fixture();
    assert_eq!(cases.len(), 18);
    for case in &cases {
        let off = distance(case, &case.method, width);
        assert!(off <= TOLERANCE, "{:?}: {off:e}", case.method);
    }
}

/// Every reading that a method declares is measured; otherwise its charts would stay empty.
#[test]
fn methods_measure_what_they_declare() {
    let Fixture { width: _, cases } = fixture();
    for case in &cases {
        for metric in case.method.readings() {
            assert!(
                case.readings.contains_key(metric.id),
                "{:?} {}",
                case.method,
                metric.id
            );
        }
    }
}

/// The comparison detects another temperature.
#[test]
fn another_beta_is_detected_in_every_loss() {
    let Fixture { width, mut cases } = fixture();
    for case in &mut cases {
        let mut value = serde_json::to_value(&case.method).unwrap();
        let word = case.method.entry().id;
        value[word]["beta"] = (value[word]["beta"].as_f64().unwrap() * 1.01).into();
        let other: MethodConfig = serde_json::from_value(value).unwrap();
        case.readings.clear();
        assert!(
            distance(case, &other, width) > TOLERANCE,
            "{:?}",
            case.method
        );
    }
}
