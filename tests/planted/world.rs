//! A small model trained with one thing wrong, and the results of the rules.

use super::plans::{Fault, Plan};
use super::{CHECK_INTERVAL, LATE, LAYERS, MICRO, ROWS, SEQ_LEN, VOCAB};
use llmtui::base::clock::{ManualClock, UnixMillis};
use llmtui::base::finding::Status;
use llmtui::base::rng::{Rng, Stream};
use llmtui::data::Batch;
use llmtui::diagnosis::diagnose;
use llmtui::engine::update::{At, Rates, apply, gradients_seen};
use llmtui::methods::{MethodConfig, likelihood, tokens};
use llmtui::metrics::id;
use llmtui::nn::{Model, ModelConfig, ParamInfo, Role};
use llmtui::optim::OptimizerConfig;
use llmtui::probes::{Probes, Setup};
use llmtui::run::RunState;
use llmtui::wire::{Envelope, Event, Num, Values};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Text of one of three kinds, which differ in predictability.
fn text(kind: u64, rng: &mut Rng, len: usize) -> Vec<u32> {
    let mut x = rng.below(VOCAB);
    let next = |_| {
        let noise = rng.below(10) < [0, 2, 7][kind as usize];
        x = if noise {
            rng.below(VOCAB)
        } else {
            ([3, 5, 7][kind as usize] * x + 7) % VOCAB
        };
        x as u32
    };
    (0..len).map(next).collect()
}

fn batch(plan: &Plan, step: u64, micro: usize) -> Batch {
    use Fault as F;
    let late = step >= LATE;
    let (number, micro) = match plan.fault {
        Some(F::FewBatches(n)) => (step % n, micro as u64),
        Some(F::SameMicroBatches) => (step, 0),
        _ => (step, micro as u64),
    };
    let mut rng = Rng::new(plan.seed, Stream::Data, number * MICRO as u64 + micro, 0);
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..ROWS {
        let kind = match plan.fault {
            Some(F::SortedData(stretch)) => step / stretch % 3,
            _ => rng.below(3),
        };
        let mut row = text(kind, &mut rng, SEQ_LEN + 1);
        match plan.fault {
            Some(F::NoiseLate) if late => row.iter_mut().for_each(|t| *t = rng.below(VOCAB) as u32),
            Some(F::GarbageBatches) if late && step.is_multiple_of(25) => {
                row.iter_mut().for_each(|t| *t = rng.below(VOCAB) as u32)
            }
            Some(F::PaddingLate) if late => row.fill(0),
            _ => {}
        }
        inputs.extend_from_slice(&row[..SEQ_LEN]);
        targets.extend_from_slice(&row[1..]);
    }
    match plan.fault {
        Some(F::UnshiftedTargets) => targets.clone_from(&inputs),
        Some(F::UnshiftedLate) if late => targets.clone_from(&inputs),
        Some(F::ShuffledTargets) => targets
            .iter_mut()
            .for_each(|t| *t = rng.below(VOCAB) as u32),
        Some(F::ShuffledLate) if late => targets
            .iter_mut()
            .for_each(|t| *t = rng.below(VOCAB) as u32),
        // Every fifth step repeats one rare token.
        Some(F::CorruptSpans) if late && step.is_multiple_of(5) => targets.fill(1),
        _ => {}
    }
    let mask = match plan.fault {
        Some(F::MaskedLabels) => vec![false; targets.len()],
        Some(F::MaskedLate) if late => vec![false; targets.len()],
        _ => Vec::new(),
    };
    Batch {
        inputs,
        targets,
        mask,
        batch_size: ROWS,
        seq_len: SEQ_LEN,
        ..Batch::default()
    }
}

/// Changes the weights of these parameters.
fn write(model: &mut Model, parts: &[ParamInfo], change: impl Fn(&mut f32)) {
    model
        .params_mut()
        .write_weights(|weights| {
            for p in parts {
                weights[p.offset..p.offset + p.len]
                    .iter_mut()
                    .for_each(&change);
            }
        })
        .unwrap();
}

/// Rounds to the nearest bf16 number.
fn to_bf16(x: &mut f32) {
    *x = f32::from_bits((x.to_bits() + 0x8000) & 0xffff_0000);
}

/// Plants faults of the model itself.
fn plant(plan: &Plan, model: &mut Model, step: u64) {
    use llmtui::nn::role::{AttentionRole as A, MlpRole as M};
    let infos = model.params().infos().to_vec();
    let sharp = |r: Role| matches!(r, Role::Attention(A::Query | A::Key | A::QueryKeyValue));
    let of = |keep: &dyn Fn(&ParamInfo) -> bool| {
        infos
            .iter()
            .filter(|p| keep(p))
            .cloned()
            .collect::<Vec<_>>()
    };
    match plan.fault {
        Some(Fault::Init(times)) if step == 1 => {
            write(model, &of(&|p| p.shape.len() == 2), |w| *w *= times);
        }
        Some(Fault::ResidualScale(times)) if step == 1 => {
            let writes = |r| matches!(r, Role::Attention(A::Output) | Role::Mlp(M::Down));
            write(model, &of(&|p| writes(p.role)), |w| *w *= times);
        }
        Some(Fault::DecayedNorms(decay)) => {
            let kept = 1.0 - (plan.lr * decay) as f32;
            write(model, &of(&|p| p.role == Role::Norm), |w| *w *= kept);
        }
        Some(Fault::Bf16Weights) => write(model, &infos, to_bf16),
        Some(Fault::DeadBlock(block)) if step == LATE => {
            let biases = of(&|p| p.layer == Some(block) && p.shape == [4 * 32]);
            write(model, &biases, |b| *b = -50.0);
        }
        Some(Fault::SharpAttention(all)) if step == LATE => {
            let parts = of(&|p| (all || p.layer == Some(1)) && sharp(p.role));
            write(model, &parts, |w| *w *= 40.0);
        }
        Some(Fault::BrokenWeight(value)) if step == LATE => {
            let parts = of(&|p| p.layer == Some(1) && matches!(p.role, Role::Mlp(_)));
            write(model, &parts[..1], |w| *w = value);
        }
        _ => {}
    }
}

/// Plants faults of the gradient; returns the factor by which its norm grew.
fn plant_gradient(plan: &Plan, model: &mut Model, step: u64) -> f64 {
    let late = step >= LATE;
    if let Some(Fault::CutOff(from, to)) = plan.fault {
        cut_off(model, from..to);
    }
    let factor = match plan.fault {
        Some(Fault::PollutedSteps(times, steps)) if (LATE..LATE + steps).contains(&step) => times,
        Some(Fault::BrokenGradient) if late => f32::NAN,
        Some(Fault::SummedLoss) => 1000.0,
        Some(Fault::Ascent) if late => -1.0,
        _ => return 1.0,
    };
    let times = |g: &mut [f32]| g.iter_mut().for_each(|x| *x *= factor);
    model.params_mut().write_grads(times).unwrap();
    f64::from(factor.abs())
}

/// Takes the gradient of these blocks away.
fn cut_off(model: &mut Model, blocks: std::ops::Range<u32>) {
    let infos = model.params().infos().iter();
    let of_blocks = infos.filter(|info| info.layer.is_some_and(|layer| blocks.contains(&layer)));
    let parts: Vec<_> = of_blocks
        .filter_map(|info| Some(info.grad?..info.grad? + info.len))
        .collect();
    let clear = |g: &mut [f32]| parts.iter().for_each(|part| g[part.clone()].fill(0.0));
    model.params_mut().write_grads(clear).unwrap();
}

/// The result of a run.
pub struct Seen {
    /// The step at which each rule first warned.
    pub found: BTreeMap<String, u64>,
    /// The step from which the fault was detectable.
    pub shows: u64,
    /// Readings on the way, where they are asked for.
    pub trace: Vec<String>,
}

/// The first evaluation that shows a gradual fault: validation loss 1 % above its best, or training loss 15 %
/// above it.
fn builds_up(plan: &Plan, val: &[(u64, f64, f64)]) -> Option<u64> {
    let wants = |id: &str| plan.expected.contains(&id);
    let best = |upto: usize| {
        val[..upto]
            .iter()
            .map(|(_, v, _)| *v)
            .fold(f64::INFINITY, f64::min)
    };
    let mut rows = val.iter().enumerate();
    let hit = match (wants("overfitting"), wants("train_above_val")) {
        (true, _) => rows.find(|(i, (_, v, _))| *v > 1.01 * best(*i)),
        (_, true) => rows.find(|(_, (_, v, train))| *train > 1.15 * v),
        _ => None,
    };
    hit.map(|(_, (step, ..))| *step)
}

/// Trains until 50 steps after the fault is named.
pub fn train(plan: &Plan) -> Seen {
    let mut config = json!({
        "n_layer": LAYERS, "n_head": 2, "d_model": 32, "seq_len": SEQ_LEN, "bias": true, "vocab_size": VOCAB,
    });
    config
        .as_object_mut()
        .unwrap()
        .extend(plan.model.as_object().unwrap().clone());
    let config: ModelConfig = serde_json::from_value(config).unwrap();
    let mut model = Model::new(&config, VOCAB as usize, &candle_core::Device::Cpu).unwrap();
    model.init(plan.seed).unwrap();
    if let Some(Fault::FrozenBlocks(from, to)) = plan.fault {
        let trains = |info: &ParamInfo| info.layer.is_none_or(|layer| !(from..to).contains(&layer));
        model.train_only(trains).unwrap();
    }
    let method = MethodConfig::Pretrain(Default::default());
    let mut optimizer = plan.optimizer.clone();
    optimizer["lr"] = plan.lr.into();
    let optimizer_said = optimizer.clone();
    let optimizer = OptimizerConfig::AdamW(serde_json::from_value(optimizer).unwrap());
    let mut rule = optimizer.build(model.params()).unwrap();
    let batch_tokens = MICRO * ROWS * SEQ_LEN;
    let setup = Setup {
        n_layer: LAYERS,
        params: model.params().infos(),
        micro_batches: MICRO,
        batch_tokens,
        max_steps: 1,
        reference: None,
        remote: false,
    };
    let mut probes = Probes::new(&setup, (50, 1), Arc::new(ManualClock::default()));
    let (mut state, mut seq, mut found) = (RunState::new(), 0, BTreeMap::new());
    let mut evaluated: Vec<(u64, f64, f64)> = Vec::new();
    let (is_traced, mut trace) = (std::env::var_os("PLANTED").is_some(), Vec::new());
    let mut tell = |state: &mut RunState, event: Event| {
        seq += 1;
        state.apply(&Envelope {
            v: 1,
            seq,
            t: UnixMillis(seq),
            event,
        });
    };
    let spec = json!({
        "train": {"clip_norm": plan.clip}, "optimizer": {"adamw": optimizer_said}, "model": plan.model,
        "schedule": {"constant": {"warmup_steps": plan.warmup}},
    });
    tell(
        &mut state,
        Event::Started {
            name: plan.name.into(),
            method: "pretrain".into(),
            spec,
            n_params: model.n_params() as u64,
            vocab_size: VOCAB,
            max_steps: plan.steps,
            batch_tokens: batch_tokens as u64,
            epoch_tokens: 1 << 40,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        },
    );
    for step in 1..=plan.steps {
        plant(plan, &mut model, step);
        probes.begin(step, true);
        let batches: Vec<Batch> = (0..MICRO).map(|micro| batch(plan, step, micro)).collect();
        let at = At {
            micro_step: step * MICRO as u64,
            ..At::default()
        };
        let mut seen = gradients_seen(&*method, &mut model, &batches, at, &mut probes).unwrap();
        seen.norm *= plant_gradient(plan, &mut model, step);
        let jump = match plan.fault {
            Some(Fault::RateLate(times)) if step >= LATE => times,
            _ => 1.0,
        };
        let warm = (step as f64 / (plan.warmup + 1) as f64).min(1.0);
        let finite = seen.are_finite();
        let mut values: Values = [
            (id::TRAIN_LOSS, seen.loss),
            (id::GRAD_NORM, seen.norm),
            (id::LR, plan.lr * warm * jump),
        ]
        .map(|(id, x)| (id.to_string(), Num(x)))
        .into();
        if let Some(entropy) = seen.readings.mean(id::ENTROPY) {
            values.insert(id::ENTROPY.into(), Num(entropy));
        }
        if finite {
            probes.step(seen.loss, seen.norm);
            let scale = llmtui::optim::clip_scale(seen.norm, plan.clip);
            probes.gradient(&model, &*rule, scale).unwrap();
            let rates = Rates {
                lr: plan.lr * warm * jump,
                clip_norm: plan.clip,
            };
            let clipped = apply(&mut model, &mut *rule, seen.norm, rates).unwrap();
            if plan.fault == Some(Fault::Bf16Moments) {
                for name in ["adamw.mean", "adamw.square"] {
                    let mut round = |values: &mut [f32]| values.iter_mut().for_each(to_bf16);
                    rule.write_state(name, &mut round).unwrap();
                }
            }
            probes.update(&model, &*rule).unwrap();
            values.insert(id::CLIPPED.into(), Num(f64::from(u8::from(clipped))));
            let matrices = model
                .params()
                .trainable()
                .zip(rule.last_norms())
                .filter(|(i, _)| i.shape.len() == 2);
            let ratios: Vec<f64> = matrices
                .filter_map(|(_, norms)| norms.update_ratio())
                .collect();
            values.insert(
                id::UPDATE_RATIO.into(),
                Num(llmtui::base::stats::median(&ratios).unwrap()),
            );
        }
        machine(plan, step, &mut values);
        if plan.fault == Some(Fault::MemoryGrows) {
            let values: Values =
                [("host/rss_bytes".to_string(), Num(1e9 + 4e6 * step as f64))].into();
            tell(&mut state, Event::HardwareSampled { values });
        }
        let report = probes.report();
        values.extend(report.values);
        tell(
            &mut state,
            Event::Stepped {
                step,
                tokens: step * batch_tokens as u64,
                values,
            },
        );
        tell(
            &mut state,
            Event::Probed {
                step,
                layers: report.layers,
            },
        );
        if step % 50 == 0 && finite {
            let held_out = Plan {
                fault: None,
                seed: 999,
                ..plan.clone()
            };
            let batch = batch(&held_out, 1, 0);
            let loss = likelihood(&batch, &model.score(&tokens(&batch)).unwrap()).unwrap();
            evaluated.push((step, loss, seen.loss));
            tell(
                &mut state,
                Event::Evaluated {
                    step,
                    tokens: 0,
                    values: [(id::VAL_LOSS.to_string(), Num(loss))].into(),
                    n_windows: 1,
                    whole: false,
                    seconds: 0.0,
                },
            );
        }
        if is_traced && step % 20 == 0 {
            let newest = |id: &str| state.series.get(id)?.last().map(|point| point.value);
            let said: Vec<String> = [
                id::TRAIN_LOSS,
                id::VAL_LOSS,
                id::ENTROPY,
                id::GRAD_NORM,
                id::UPDATE_RATIO,
            ]
            .iter()
            .filter_map(|id| Some(format!("{id} {:.4}", newest(id)?)))
            .collect();
            trace.push(format!(
                "{} {step}: {} {found:?}",
                plan.name,
                said.join(", ")
            ));
        }
        if step % CHECK_INTERVAL == 0 || !finite {
            for finding in super::agreeing(diagnose(&state)).findings {
                if finding.status <= Status::Warn {
                    found.entry(finding.id).or_insert(step);
                }
            }
        }
        let named = plan.expected.iter().filter_map(|id| found.get(*id)).min();
        if !finite || named.is_some_and(|at| step >= at + 50) {
            break;
        }
    }
    let shows = builds_up(plan, &evaluated).map_or(plan.shows(), |step| step.max(plan.shows()));
    Seen {
        found,
        shows,
        trace,
    }
}

/// Readings of the machine.
fn machine(plan: &Plan, step: u64, values: &mut Values) {
    let slow = plan.fault == Some(Fault::Throttled) && step >= LATE;
    let noise = 1.0 + 0.02 * (step % 7) as f64;
    let speed = if slow { 1000.0 } else { 3000.0 } * noise;
    let wait = if plan.fault == Some(Fault::SlowData) {
        0.5
    } else {
        0.01
    };
    let readings = [
        (id::TOK_PER_SEC, speed),
        (id::STEP_MS, 1e6 / speed),
        (id::DATA_WAIT, wait),
    ];
    values.extend(readings.map(|(id, x)| (id.to_string(), Num(x))));
}
