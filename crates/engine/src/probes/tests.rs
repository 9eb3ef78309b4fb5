//! Probes on a small model: against brute force, and without side effects. tests/oracle/health.rs compares them with PyTorch.

use super::*;
use crate::base::clock::ManualClock;
use crate::data::Batch;
use crate::methods::{MethodConfig, micro_step};
use crate::metrics::Readings;
use crate::nn::{Model, ModelConfig};
use crate::optim::OptimizerConfig;
use crate::wire::MetricInfo;
use candle_core::Device;
use std::collections::BTreeSet;
use std::sync::Arc;

const VOCAB: usize = 13;
const SEQ_LEN: usize = 64;
const MICRO: usize = 3;

fn model() -> Model {
    let config = ModelConfig {
        n_layer: 2,
        n_head: 2,
        d_model: 16,
        seq_len: SEQ_LEN,
        ..Default::default()
    };
    let mut model = Model::new(&config, VOCAB, &Device::Cpu).unwrap();
    model.init(1).unwrap();
    model
}

fn batches() -> Vec<Batch> {
    let tokens = |from: usize| (from..from + 2 * SEQ_LEN).map(|i| (i * i % 97 % VOCAB) as u32);
    let batch = |micro: usize| Batch {
        inputs: tokens(500 * micro).collect(),
        targets: tokens(500 * micro + 1).collect(),
        batch_size: 2,
        seq_len: SEQ_LEN,
        ..Batch::default()
    };
    (0..MICRO).map(batch).collect()
}

fn probes(model: &Model) -> Probes {
    let setup = Setup {
        n_layer: 2,
        params: model.params().infos(),
        micro_batches: MICRO,
        batch_tokens: MICRO * 2 * SEQ_LEN,
        max_steps: 3,
        reference: None,
        remote: false,
    };
    Probes::new(&setup, (1, 1), Arc::new(ManualClock::default()))
}

/// Three steps; the weights after them, and what was seen.
fn run(mut seen_by: impl FnMut(&Model) -> Probes) -> (Vec<f32>, Vec<Report>, Vec<MetricInfo>) {
    let mut model = model();
    let mut probes = seen_by(&model);
    let declared = probes.declarations();
    let method = MethodConfig::Pretrain(Default::default());
    let mut rule = OptimizerConfig::AdamW(Default::default())
        .build(model.params())
        .unwrap();
    let mut reports = Vec::new();
    for step in 1..=3 {
        probes.begin(step, true);
        model.params_mut().zero_grads().unwrap();
        let (mut loss, batches) = (0.0, batches());
        let n = method.normalizer().count(&batches) as f64;
        for (micro, batch) in batches.iter().enumerate() {
            probes.before_micro(micro, &mut model);
            let share = micro_step(&*method, &mut model, batch, n, &mut Readings::default());
            let share = share.unwrap();
            loss += share;
            probes
                .after_micro(
                    micro,
                    &mut model,
                    (share * MICRO as f64, 1.0 / MICRO as f64),
                )
                .unwrap();
        }
        let norm = model.params().grad_norm().unwrap();
        probes.step(loss, norm);
        probes.gradient(&model, &*rule, 1.0).unwrap();
        rule.step(model.params_mut(), 1e-2, 1.0).unwrap();
        probes.update(&model, &*rule).unwrap();
        reports.push(probes.report());
    }
    (
        model.params().read_weights(<[f32]>::to_vec).unwrap(),
        reports,
        declared,
    )
}

#[test]
fn looking_changes_no_bit_and_every_value_was_declared() {
    let (plain, nothing, _) = run(|_| Probes::default());
    let (watched, reports, declared) = run(probes);
    assert!(plain == watched);
    assert!(nothing.iter().all(|report| *report == Report::default()));
    let known: BTreeSet<&str> = declared.iter().map(|m| m.id.as_str()).collect();
    let mut seen = BTreeSet::new();
    for report in &reports {
        for id in report.values.keys() {
            assert!(known.contains(&**id) && !id.ends_with("/layer"), "{id}");
            seen.insert(id.as_str());
        }
        for (id, values) in &report.layers {
            let info = declared.iter().find(|m| m.id == *id).unwrap();
            assert!(
                info.per_layer && id.ends_with("/layer") && values.len() == 2,
                "{id}"
            );
            assert!(values.iter().all(|x| x.0.is_finite()), "{id}: {values:?}");
            seen.insert(id);
        }
    }
    // Three need more steps, one a clock that goes on, three a checkpoint.
    let late = [
        "spike_score/grad",
        "spike_score/loss",
        "spike_score/element/layer",
        "probe_cost",
        "alpha/layer",
        "stable_rank/layer",
        "singular_entropy/layer",
    ];
    let missing: Vec<_> = known
        .difference(&seen)
        .filter(|id| !late.contains(id))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn gradients_of_micro_batches_agree_with_each_one_taken_alone() {
    let (_, reports, _) = run(probes);
    let method = MethodConfig::Pretrain(Default::default());
    let alone: Vec<Vec<f64>> = batches()
        .iter()
        .map(|batch| {
            let mut model = model();
            let n = (MICRO * batch.supervised()) as f64;
            micro_step(&*method, &mut model, batch, n, &mut Readings::default()).unwrap();
            let wide = |g: &[f32]| g.iter().map(|x| f64::from(*x)).collect();
            model.params().read_grads(wide).unwrap()
        })
        .collect();
    let n = alone[0].len();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let sum: Vec<f64> = (0..n).map(|i| alone.iter().map(|g| g[i]).sum()).collect();
    let (parts, whole) = (
        alone.iter().map(|g| dot(g, g)).sum::<f64>(),
        dot(&sum, &sum),
    );
    let pairs = [(0, 1), (0, 2), (1, 2)].map(|(a, b)| dot(&alone[a], &alone[b]));
    let consistency = pairs.iter().sum::<f64>() / 3.0 / (parts / 3.0);
    let k = MICRO as f64;
    let signal = (k * whole - k * parts) / (k - 1.0);
    let noise = (k * parts - whole) / (1.0 - 1.0 / k);
    let seen = |id: &str| reports[0].values[id].0;
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 2e-4, "{a} {b}");
    close(seen("grad_consistency"), consistency);
    close(seen("gsnr"), signal / noise);
    close(seen("noise_scale"), noise / signal * (2 * SEQ_LEN) as f64);
    // Blocks: the norms of the update's pass are those of the gradient's parts.
    let model = model();
    for (layer, norm) in reports[0].layers["grad_norm/layer"].iter().enumerate() {
        let own = model
            .params()
            .infos()
            .iter()
            .filter(|p| p.layer == Some(layer as u32));
        let squares: f64 = own
            .map(|p| {
                dot(
                    &sum[p.offset..p.offset + p.len],
                    &sum[p.offset..p.offset + p.len],
                )
            })
            .sum();
        close(norm.0, squares.sqrt());
    }
}

#[test]
fn looks_come_at_logged_steps_densely_at_first_and_as_often_for_every_resume() {
    let due = |cadence: Cadence, log_every: u64, upto: u64| -> Vec<u64> {
        let logged = (1..=upto).filter(|s| *s == 1 || s % log_every == 0);
        let is_due = |s: &u64| cadence.is_due(50, *s, s.saturating_sub(log_every));
        logged.filter(is_due).collect()
    };
    assert_eq!(
        due(Cadence::Usual, 10, 300),
        [
            1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 150, 200, 250, 300
        ]
    );
    assert_eq!(
        due(Cadence::Seldom, 30, 310),
        [1, 30, 60, 90, 120, 210, 300]
    );
    assert_eq!(due(Cadence::Step, 7, 30), [1, 7, 14, 21, 28]);
}

#[test]
fn every_probe_says_what_it_measures_what_is_normal_and_what_it_costs() {
    let mut ids = BTreeSet::new();
    for probe in PROBES {
        assert!(
            !probe.cost.is_empty() && !probe.inputs.is_empty(),
            "{}",
            probe.id
        );
        for metric in probe.metrics {
            assert!(ids.insert(metric.id), "{} twice", metric.id);
            assert_eq!(
                metric.per_layer,
                metric.id.ends_with("/layer"),
                "{}",
                metric.id
            );
            assert!(!metric.source.is_empty(), "{}", metric.id);
            assert!(
                metric.normal.is_empty() == metric.advice.is_empty(),
                "{}",
                metric.id
            );
            assert!(crate::metrics::find(metric.id).is_none(), "{}", metric.id);
        }
    }
}
