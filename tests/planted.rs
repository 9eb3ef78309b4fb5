//! A bench of planted faults: small models trained with one thing wrong each, and healthy ones beside them. The rules must name
//! what is wrong soon after it shows, and say nothing of healthy runs. `cargo long --test planted` runs it;
//! LLMTUI_UPDATE_DOCS=1 renews its table in docs/diagnosis.md.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use llmtui::base::clock::{ManualClock, UnixMillis};
use llmtui::base::finding::Status;
use llmtui::base::rng::{Rng, Stream};
use llmtui::data::Batch;
use llmtui::diagnosis::diagnose;
use llmtui::engine::update::{At, Rates, apply, gradients_seen};
use llmtui::methods::{MethodConfig, likelihood, tokens};
use llmtui::metrics::id;
use llmtui::nn::{Model, ModelConfig, Role};
use llmtui::optim::OptimizerConfig;
use llmtui::probes::{Probes, Setup};
use llmtui::run::RunState;
use llmtui::wire::{Envelope, Event, Num, Values};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

const VOCAB: u64 = 48;
const SEQ_LEN: usize = 32;
const ROWS: usize = 8;
const MICRO: usize = 4;
const LAYERS: usize = 4;
const STEPS: u64 = 500;
/// From this step on, where a fault comes late.
const LATE: u64 = 200;
/// Steps between two looks of the rules.
const LOOK: u64 = 10;

/// One run.
#[derive(Clone, Default)]
struct Plan {
    name: &'static str,
    /// Rules of which one has to say it; none for a healthy run.
    expected: &'static [&'static str],
    model: Value,
    lr: f64,
    warmup: u64,
    clip: f64,
    seed: u64,
    fault: Option<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    MaskedLabels,
    UnshiftedTargets,
    ShuffledTargets,
    SortedData,
    SameMicroBatches,
    OneBatch,
    FrozenBlock,
    DeadBlock,
    SharpAttention,
    BrokenWeight,
    PollutedStep,
    CorruptSpans,
}

fn plans() -> Vec<Plan> {
    let plan = |name, expected: &'static [&'static str], fault| Plan {
        name,
        expected,
        model: json!({}),
        lr: 3e-3,
        warmup: 20,
        clip: 1.0,
        seed: 1,
        fault,
    };
    let llama = json!({"mlp": {"swiglu": {}}, "norm": {"rmsnorm": {}}, "position": {"rope": {}}, "bias": false});
    vec![
        plan("healthy", &[], None),
        Plan {
            seed: 2,
            model: llama.clone(),
            ..plan("healthy, Llama style", &[], None)
        },
        Plan {
            seed: 3,
            lr: 1e-3,
            warmup: 0,
            ..plan("healthy, no warm-up, lower rate", &[], None)
        },
        Plan {
            seed: 4,
            clip: 0.0,
            ..plan("healthy, no clipping", &[], None)
        },
        Plan {
            lr: 0.09,
            clip: 0.0,
            ..plan(
                "learning rate × 30",
                &["diverged", "lr_too_high", "not_learning"],
                None,
            )
        },
        Plan {
            lr: 3e-5,
            ..plan("learning rate ÷ 100", &["lr_too_low", "not_learning"], None)
        },
        Plan {
            lr: 1e-8,
            ..plan(
                "learning rate of nothing",
                &["not_learning", "lr_too_low"],
                None,
            )
        },
        Plan {
            clip: 1e-3,
            ..plan("clipping norm 0.001", &["clip_tight"], None)
        },
        plan(
            "labels masked",
            &["not_learning"],
            Some(Fault::MaskedLabels),
        ),
        plan(
            "targets not shifted",
            &["leak"],
            Some(Fault::UnshiftedTargets),
        ),
        plan(
            "targets shuffled",
            &["not_learning"],
            Some(Fault::ShuffledTargets),
        ),
        plan("data sorted", &["sorted_data"], Some(Fault::SortedData)),
        plan(
            "micro-batches alike",
            &["same_data"],
            Some(Fault::SameMicroBatches),
        ),
        plan(
            "one batch repeated",
            &["overfitting", "leak"],
            Some(Fault::OneBatch),
        ),
        plan("a block frozen", &["idle_layer"], Some(Fault::FrozenBlock)),
        Plan {
            model: json!({"mlp": {"relu": {}}, "bias": true}),
            ..plan(
                "a block's units die at step 200",
                &["dead_layer"],
                Some(Fault::DeadBlock),
            )
        },
        plan(
            "attention sharpened at step 200",
            &["attention_collapse"],
            Some(Fault::SharpAttention),
        ),
        plan(
            "a weight NaN at step 200",
            &["diverged"],
            Some(Fault::BrokenWeight),
        ),
        Plan {
            clip: 0.0,
            ..plan(
                "one gradient × 1,000 at step 200",
                &["gradient_spike", "diverged"],
                Some(Fault::PollutedStep),
            )
        },
        plan(
            "corrupt spans from step 200 on",
            &["gradient_spike", "lr_too_high", "diverged", "train_loss"],
            Some(Fault::CorruptSpans),
        ),
    ]
}

/// Text of one of three kinds, which differ in how well they can be guessed.
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
    let (number, micro) = match plan.fault {
        Some(Fault::OneBatch) => (0, micro as u64),
        Some(Fault::SameMicroBatches) => (step, 0),
        _ => (step, micro as u64),
    };
    let mut rng = Rng::new(plan.seed, Stream::Data, number * MICRO as u64 + micro, 0);
    let late = step >= LATE;
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..ROWS {
        let kind = match plan.fault {
            // Long stretches of one kind.
            Some(Fault::SortedData) => step / 15 % 3,
            _ => rng.below(3),
        };
        let row = text(kind, &mut rng, SEQ_LEN + 1);
        inputs.extend_from_slice(&row[..SEQ_LEN]);
        targets.extend_from_slice(&row[1..]);
    }
    match plan.fault {
        Some(Fault::UnshiftedTargets) => targets.clone_from(&inputs),
        Some(Fault::ShuffledTargets) => targets
            .iter_mut()
            .for_each(|t| *t = rng.below(VOCAB) as u32),
        // Each fifth step repeats one rare token.
        Some(Fault::CorruptSpans) if late && step.is_multiple_of(5) => targets.fill(1),
        _ => {}
    }
    let mask = match plan.fault {
        Some(Fault::MaskedLabels) => vec![false; targets.len()],
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

/// Plants what is done to the model itself.
fn plant(plan: &Plan, model: &mut Model, step: u64) {
    let infos = model.params().infos().to_vec();
    let of_block = |roles: fn(Role) -> bool| {
        infos
            .iter()
            .filter(move |p| p.layer == Some(1) && roles(p.role))
            .cloned()
            .collect::<Vec<_>>()
    };
    if step != LATE {
        return;
    }
    let write = |model: &mut Model, parts: Vec<llmtui::nn::ParamInfo>, f: &dyn Fn(&mut f32)| {
        let change = |weights: &mut [f32]| {
            parts
                .iter()
                .for_each(|p| weights[p.offset..p.offset + p.len].iter_mut().for_each(f));
        };
        model.params_mut().write_weights(change).unwrap();
    };
    match plan.fault {
        Some(Fault::DeadBlock) => {
            let biases = infos
                .iter()
                .filter(|p| p.layer == Some(1) && p.shape == [4 * 32])
                .cloned();
            write(model, biases.collect(), &|b| *b = -50.0);
        }
        Some(Fault::SharpAttention) => {
            use llmtui::nn::role::AttentionRole as A;
            let parts =
                of_block(|r| matches!(r, Role::Attention(A::Query | A::Key | A::QueryKeyValue)));
            write(model, parts, &|w| *w *= 40.0);
        }
        Some(Fault::BrokenWeight) => {
            let parts = of_block(|r| matches!(r, Role::Mlp(_)));
            write(model, parts[..1].to_vec(), &|w| *w = f32::NAN);
        }
        _ => {}
    }
}

/// What came out: the step at which each rule first warned.
fn train(plan: &Plan) -> BTreeMap<String, u64> {
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
    if plan.fault == Some(Fault::FrozenBlock) {
        model.train_only(|info| info.layer != Some(1)).unwrap();
    }
    let method = MethodConfig::Pretrain(Default::default());
    let optimizer = json!({"lr": plan.lr, "beta2": 0.99});
    let optimizer = OptimizerConfig::AdamW(serde_json::from_value(optimizer).unwrap());
    let mut rule = optimizer.build(model.params()).unwrap();
    let batch_tokens = MICRO * ROWS * SEQ_LEN;
    let setup = Setup {
        n_layer: LAYERS,
        params: model.params().infos(),
        micro_batches: MICRO,
        batch_tokens,
    };
    let mut probes = Probes::new(&setup, (50, 1), Arc::new(ManualClock::default()));
    let (mut state, mut seq, mut found) = (RunState::new(), 0, BTreeMap::new());
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
        "train": {"clip_norm": plan.clip}, "optimizer": {"adamw": {"lr": plan.lr}},
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
            max_steps: STEPS,
            batch_tokens: batch_tokens as u64,
            epoch_tokens: 1 << 40,
            resumed_from: None,
            precision: None,
        },
    );
    for step in 1..=STEPS {
        plant(plan, &mut model, step);
        probes.begin(step, true);
        let batches: Vec<Batch> = (0..MICRO).map(|micro| batch(plan, step, micro)).collect();
        let mut seen =
            gradients_seen(&*method, &mut model, &batches, At::default(), &mut probes).unwrap();
        if plan.fault == Some(Fault::PollutedStep) && step == LATE {
            model
                .params_mut()
                .write_grads(|g| g.iter_mut().for_each(|x| *x *= 1000.0))
                .unwrap();
            seen.norm *= 1000.0;
        }
        let warm = (step as f64 / (plan.warmup + 1) as f64).min(1.0);
        let finite = seen.are_finite();
        let mut values: Values = [
            (id::TRAIN_LOSS, seen.loss),
            (id::GRAD_NORM, seen.norm),
            (id::LR, plan.lr * warm),
        ]
        .map(|(id, x)| (id.to_string(), Num(x)))
        .into();
        if let Some(entropy) = seen.readings.mean(id::ENTROPY) {
            values.insert(id::ENTROPY.into(), Num(entropy));
        }
        if finite {
            probes.gradient(&model, &*rule).unwrap();
            let rates = Rates {
                lr: plan.lr * warm,
                clip_norm: plan.clip,
            };
            let clipped = apply(&mut model, &mut *rule, seen.norm, rates).unwrap();
            probes
                .update(&model, &*rule, (seen.loss, seen.norm))
                .unwrap();
            values.insert(id::CLIPPED.into(), Num(f64::from(u8::from(clipped))));
            let matrices = model
                .params()
                .trainable()
                .zip(rule.last_norms())
                .filter(|(i, _)| i.shape.len() == 2);
            let ratios: Vec<f64> = matrices.map(|(_, norms)| norms.update_ratio()).collect();
            values.insert(
                id::UPDATE_RATIO.into(),
                Num(llmtui::base::stats::median(&ratios).unwrap()),
            );
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
        if step % LOOK == 0 || !finite {
            for finding in diagnose(&state).findings {
                if finding.status <= Status::Warn {
                    found.entry(finding.id).or_insert(step);
                }
            }
        }
        if !finite {
            break;
        }
    }
    found
}

const BEGIN: &str = "<!-- faults -->\n";

#[test]
#[ignore = "trains twenty small models: cargo long --test planted"]
fn planted_faults_are_named_and_healthy_runs_are_left_alone() {
    let (mut table, mut named, mut faults, mut alarms) = (String::new(), 0, 0, Vec::new());
    table.push_str(
        "| planted | expected | named | at step | others that spoke |\n|---|---|---|---|---|\n",
    );
    for plan in plans() {
        let found = train(&plan);
        let hit = plan
            .expected
            .iter()
            .filter_map(|id| Some((*id, *found.get(*id)?)))
            .min_by_key(|(_, step)| *step);
        let others: Vec<&str> = found
            .keys()
            .map(String::as_str)
            .filter(|id| !plan.expected.contains(id))
            .collect();
        if plan.expected.is_empty() {
            alarms.extend(
                found
                    .iter()
                    .map(|(id, step)| format!("{}: {id} at {step}", plan.name)),
            );
        } else {
            faults += 1;
            named += u32::from(hit.is_some());
        }
        let (id, step) = hit.map_or(("–".to_string(), "–".to_string()), |(id, step)| {
            (format!("`{id}`"), step.to_string())
        });
        let expected: Vec<String> = plan.expected.iter().map(|id| format!("`{id}`")).collect();
        let expected = if expected.is_empty() {
            "silence".into()
        } else {
            expected.join(" or ")
        };
        let row = format!(
            "| {} | {expected} | {id} | {step} | {} |",
            plan.name,
            others.join(", ")
        );
        println!("{row}");
        let _ = writeln!(table, "{row}");
    }
    println!("{named} of {faults} named; false alarms: {alarms:?}");
    if std::env::var_os("LLMTUI_UPDATE_DOCS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/diagnosis.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = page.split_once(BEGIN).unwrap();
        let tail = rest.split_once("\n\n").map_or("", |(_, tail)| tail);
        std::fs::write(&path, format!("{head}{BEGIN}{table}\n{tail}")).unwrap();
    }
    assert!(alarms.is_empty(), "{alarms:?}");
    assert!(10 * named >= 9 * faults, "{named} of {faults}");
}
