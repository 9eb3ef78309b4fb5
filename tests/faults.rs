<<<<<<< HEAD
//! A bench of planted faults: small models trained with one thing wrong each, and healthy ones beside them. The rules must name
//! what is wrong soon after it shows, and say nothing of healthy runs. `cargo long --test faults` runs it;
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
        params: &model.params().infos().to_vec(),
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
#[ignore = "trains twenty small models: cargo long --test faults"]
#[expect(
    clippy::disallowed_methods,
    reason = "a switch for people who run this test"
)]
#[expect(clippy::print_stdout, reason = "the table is what the test is for")]
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
=======
//! Faults that a user's machine has: full disks, vanished sockets, closed outputs, hostile names. `docs/reliability.md`
//! lists them with what is expected.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::run::RunDir;
use llmtui::run::index::{RunStatus, summarize};
use llmtui::run::log::read_all;
use llmtui::wire::{Event, Outcome};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");
/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);
/// A model that takes a millisecond a step.
const SMALL: &str = "-s n_layer=1 -s n_head=1 -s d_model=8 -s seq_len=8 -s micro_batch_size=1 -s threads=1 \
    -s eval_every=0 -s sample_every=0 -s preflight.enabled=false";

/// A folder with runs, a runtime directory, and shells that start the program there.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `$P` is the program and `$SMALL` the words of a small model.
    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .current_dir(self.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path())
            .env("XDG_RUNTIME_DIR", self.path())
            .env("P", PROGRAM)
            .env("SMALL", SMALL)
            .stdin(Stdio::null());
        command
    }

    fn go(&self, script: &str) -> Output {
        self.shell(script).output().unwrap()
    }

    fn try_run(&self) -> Option<RunDir> {
        let mut runs = std::fs::read_dir(self.path().join("runs")).ok()?;
        RunDir::open(&runs.find_map(Result::ok)?.path()).ok()
    }

    fn run(&self) -> RunDir {
        self.try_run().unwrap()
    }

    fn await_step(&self, step: u64) {
        until("a step", || {
            let run = self.try_run();
            run.is_some_and(|run| summarize(&run).is_ok_and(|s| s.step >= step))
        });
    }
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !happened() {
        assert!(clock.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn term(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
}

fn outcome(run: &RunDir) -> Option<Outcome> {
    match read_all(&run.events_path()).unwrap().pop()?.event {
        Event::Finished { outcome, .. } => Some(outcome),
        _ => None,
    }
}

#[test]
fn a_headless_run_on_a_full_disk_ends_when_it_is_asked_to() {
    let place = Place::new();
    // Files of at most 16 blocks: the log fills them, and no checkpoint fits.
    let mut child = place
        .shell("ulimit -f 16; exec $P train quickstart $SMALL -s max_steps=1000000 -s save_every=0 --headless")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let size = || {
        let run = place.try_run();
        run.and_then(|run| std::fs::metadata(run.events_path()).ok())
            .map_or(0, |meta| meta.len())
    };
    until("a stalled log", || {
        let before = size();
        std::thread::park_timeout(Duration::from_millis(1500));
        before > 6_000 && size() == before
    });
    assert!(child.try_wait().unwrap().is_none(), "it waits for room");
    term(&child);
    until("its end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 3, "{}", said(&output));
    assert!(
        said(&output).contains("nothing can be logged"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_run_whose_socket_vanished_is_reached_again() {
    let place = Place::new();
    let mut child = place
        .shell("exec $P train quickstart $SMALL -s max_steps=10000000 --headless")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    place.await_step(5);
    let sockets = place.path().join("llmtui");
    let bound = || std::fs::read_dir(&sockets).is_ok_and(|dir| dir.count() > 0);
    assert!(bound());
    // A logout takes the folder, and a file in its place keeps it from being made again.
    std::fs::remove_dir_all(&sockets).unwrap();
    std::fs::write(&sockets, "").unwrap();
    let in_run = place.run().path().join("engine.sock");
    until("a second place", || in_run.exists());
    let id = place.run().id().to_string();
    let stopped = place.go(&format!("exec $P stop {id}"));
    assert_eq!(code(&stopped), 0, "{}", said(&stopped));
    assert!(child.wait().unwrap().success());
    assert!(!in_run.exists());
    assert_eq!(outcome(&place.run()), Some(Outcome::Stopped));
}

#[test]
fn a_live_run_that_nobody_can_reach_is_watched_by_its_log() {
    let place = Place::new();
    let mut child = place
        .shell("exec $P train quickstart $SMALL -s max_steps=10000000 --headless")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    place.await_step(5);
    let id = place.run().id().to_string();
    // From a place where the engine's socket is not: as after a move to another machine's login.
    let script = format!("XDG_RUNTIME_DIR=$PWD/elsewhere exec $P attach {id} --headless");
    let watcher = place
        .shell(&script)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let refused = place.go(&format!("XDG_RUNTIME_DIR=$PWD/elsewhere exec $P stop {id}"));
    assert_eq!(code(&refused), 3);
    assert!(said(&refused).contains("kill "), "{}", said(&refused));
    term(&child);
    assert!(child.wait().unwrap().success());
    let watched = watcher.unwrap().wait_with_output().unwrap();
    assert_eq!(code(&watched), 0, "{}", said(&watched));
    assert!(
        said(&watched).contains("cannot be reached"),
        "{}",
        said(&watched)
    );
    assert!(String::from_utf8_lossy(&watched.stdout).contains("stopped"));
}

#[test]
fn a_copied_run_has_a_life_of_its_own() {
    let place = Place::new();
    let first =
        place.go("$P train quickstart $SMALL -s max_steps=10000000 --stop-after 3 --headless");
    assert_eq!(code(&first), 0, "{}", said(&first));
    let id = place.run().id().to_string();
    assert_eq!(code(&place.go("cp -r runs copies")), 0);
    let go = |runs: &str| {
        place
            .shell(&format!(
                "exec $P train --resume {id} --runs-dir {runs} --headless"
            ))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let (mut a, mut b) = (go("runs"), go("copies"));
    let live = |runs: &str| {
        let run = RunDir::open(&place.path().join(runs).join(&id)).unwrap();
        summarize(&run).is_ok_and(|s| s.status == RunStatus::Live && s.step > 50)
    };
    until("both", || live("runs") && live("copies"));
    // Each hears its own.
    assert_eq!(
        code(&place.go(&format!("$P stop {id} --runs-dir copies"))),
        0
    );
    assert!(b.wait().unwrap().success());
    assert!(live("runs"), "the original goes on");
    assert_eq!(code(&place.go(&format!("$P stop {id} --runs-dir runs"))), 0);
    assert!(a.wait().unwrap().success());
}

#[test]
fn a_removed_lock_lets_no_second_engine_in_and_a_deleted_run_ends() {
    let place = Place::new();
    let mut child = place
        .shell("exec $P train quickstart $SMALL -s max_steps=10000000 --headless")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    place.await_step(5);
    let run = place.run();
    std::fs::remove_file(run.lock_path()).unwrap();
    // At once, before the engine has noticed.
    let second = place.go(&format!("exec $P train --resume {} --headless", run.id()));
    assert_ne!(code(&second), 0);
    until("a lock", || run.is_alive());
    std::fs::remove_dir_all(run.path()).unwrap();
    until("its end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 3, "{}", said(&output));
    assert!(said(&output).contains("was deleted"), "{}", said(&output));
    assert!(!run.path().exists(), "nothing makes it anew");
}

#[test]
fn a_runtime_folder_that_cannot_be_made_keeps_nobody_from_training() {
    for planted in ["file", "link", "open"] {
        let place = Place::new();
        let folder = place.path().join("llmtui");
        match planted {
            "file" => std::fs::write(&folder, "").unwrap(),
            "link" => std::os::unix::fs::symlink(place.path(), &folder).unwrap(),
            _ => {
                use std::os::unix::fs::PermissionsExt;
                std::fs::create_dir(&folder).unwrap();
                let mode = std::fs::Permissions::from_mode(0o777);
                std::fs::set_permissions(&folder, mode).unwrap();
            }
        }
        let output = place.go("exec $P train quickstart $SMALL -s max_steps=3 --headless");
        assert_eq!(code(&output), 0, "{planted}: {}", said(&output));
    }
}

#[test]
fn closed_and_full_outputs_are_no_bugs() {
    let place = Place::new();
    let train = "$P train quickstart $SMALL -s max_steps=3 --headless";
    for closed in ["2>&-", "2>/dev/full"] {
        let output = place.go(&format!("exec {train} {closed}"));
        assert_eq!(code(&output), 0, "{closed}");
    }
    for verb in [
        "train quickstart --dry-run",
        "presets list",
        "plan quickstart",
        "runs",
        "runs --json",
    ] {
        let output = place.go(&format!("exec $P {verb} >/dev/full"));
        assert_eq!(code(&output), 3, "{verb}: {}", said(&output));
        assert!(
            said(&output).contains("No space left"),
            "{verb}: {}",
            said(&output)
        );
    }
    let output = place.go("$P presets list --help | true");
    assert_eq!(code(&output), 0);
}

#[test]
fn no_message_steers_the_terminal() {
    let place = Place::new();
    let evil = "\u{1b}]52;c;cHduZWQ=\u{7}\u{9b}2J\u{202e}";
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    write("key.yaml", "\"\\e]52;c;cHduZWQ=\\a\": 1\n");
    write("value.yaml", "method: \"\\e]52;c;x\\a\"\n");
    write(
        "from.yaml",
        "extends: quickstart\ntrain: {from: \"\\e]52;c;x\\a\"}\n",
    );
    write("machine.json", &format!("{{\"{evil}\": 1}}"));
    let long = "x".repeat(70_000);
    for run in [evil, &long] {
        let folder = place.path().join("runs").join(format!("r{}", run.len()));
        std::fs::create_dir_all(&folder).unwrap();
        let header = serde_json::json!({"id": run, "name": run, "format": 1, "program": "x", "created": 1, "pid": 1});
        std::fs::write(folder.join("run.json"), header.to_string()).unwrap();
    }
    for verb in [
        "plan key.yaml",
        "plan value.yaml",
        "train key.yaml --headless",
        "train from.yaml --dry-run",
        "presets show value.yaml",
        "preflight key.yaml",
        "import key.yaml",
        "doctor --hardware machine.json",
        "runs",
        "runs --json",
        "model show \u{1b}]52;c;x\u{7}",
    ] {
        let words: Vec<&str> = verb.split(' ').collect();
        let output = place
            .shell("exec $P \"$@\"")
            .arg("sh")
            .args(&words)
            .output()
            .unwrap();
        for stream in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(stream);
            let raw = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
            assert_eq!(text.chars().find(raw), None, "{verb}: {text:?}");
        }
        assert_ne!(code(&output), 101, "{verb}");
    }
}

#[test]
fn a_storm_of_signals_is_one_request_with_one_checkpoint() {
    let storms: [&[Signal]; 4] = [
        &[Signal::TERM, Signal::TERM],
        &[Signal::TERM, Signal::INT, Signal::HUP, Signal::TERM],
        &[Signal::QUIT],
        &[Signal::USR1],
    ];
    for storm in storms {
        let place = Place::new();
        let mut child = place
            .shell(
                "exec $P train quickstart $SMALL -s max_steps=10000000 -s save_every=0 --headless",
            )
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        place.await_step(5);
        for signal in storm {
            kill_process(Pid::from_child(&child), *signal).unwrap();
        }
        assert!(child.wait().unwrap().success(), "{storm:?}");
        let saved = place.run().checkpoints();
        assert_eq!(saved.len(), 1, "{storm:?}");
    }
}

#[test]
fn a_model_that_cannot_fit_is_told_before_anything_is_made() {
    let place = Place::new();
    let huge = "quickstart -s d_model=8192 -s n_layer=400 -s n_head=64";
    for verb in [
        "train HUGE --headless",
        "train HUGE --dry-run",
        "preflight HUGE",
    ] {
        let output = place.go(&format!("exec $P {}", verb.replace("HUGE", huge)));
        assert_eq!(code(&output), 2, "{verb}: {}", said(&output));
        let told = said(&output);
        assert!(
            told.contains("TB of memory") && told.contains("no change is enough"),
            "{told}"
        );
    }
    assert!(place.try_run().is_none(), "no run is made");
    // The address space that a scheduler leaves counts as well.
    let output =
        place.go("ulimit -v 1000000; exec $P train quickstart -s micro_batch_size=2000 --headless");
    assert_eq!(code(&output), 2, "{}", said(&output));
    let told = said(&output);
    assert!(
        told.contains("ulimit -v") && told.contains("train.micro_batch_size="),
        "{told}"
    );
}

#[test]
fn a_damaged_checkpoint_is_refused_by_every_verb_that_reads_it() {
    let place = Place::new();
    let trained = place.go("exec $P train quickstart $SMALL -s max_steps=3 --headless");
    assert_eq!(code(&trained), 0, "{}", said(&trained));
    let folder = place.run().checkpoints().last().unwrap().path.clone();
    let weights = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let model = folder.display();
    for verb in [
        format!("chat {model} --prompt a"),
        format!("export {model} --to out"),
        format!("quantize {model} --dtype q8_0 --to out.gguf"),
        format!("train quickstart $SMALL -s train.from={model} --headless"),
    ] {
        let output = place.go(&format!("exec $P {verb}"));
        assert_ne!(code(&output), 0, "{verb}");
        let told = format!(
            "{}{}",
            said(&output),
            String::from_utf8_lossy(&output.stdout)
        );
        assert!(told.contains("SHA-256"), "{verb}: {told}");
    }
    // Whoever changed it on purpose says so by taking the manifest away.
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    let output = place.go(&format!("exec $P export {model} --to out"));
    assert_eq!(code(&output), 0, "{}", said(&output));
}

#[test]
fn pipes_devices_and_deep_brackets_keep_nobody_waiting() {
    let place = Place::new();
    let trained = place.go("exec $P train quickstart $SMALL -s max_steps=3 --headless");
    assert_eq!(code(&trained), 0, "{}", said(&trained));
    let run = place.run();
    std::fs::write(
        place.path().join("deep.yaml"),
        format!("a: {}", "[".repeat(100_000)),
    )
    .unwrap();
    let deep = place.go("exec timeout 10 $P plan deep.yaml");
    assert_eq!(code(&deep), 2, "{}", said(&deep));
    for name in ["run.json", "lock"] {
        let path = run.path().join(name);
        let kept = path.with_extension("kept");
        std::fs::rename(&path, &kept).unwrap();
        assert_eq!(code(&place.go(&format!("mkfifo {}", path.display()))), 0);
        let listed = place.go("exec timeout 20 $P runs");
        assert_eq!(code(&listed), 0, "{name}: {}", said(&listed));
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&kept, &path).unwrap();
    }
    let folder = run.checkpoints().last().unwrap().path.clone();
    let manifest = folder.join("manifest.json");
    std::fs::remove_file(&manifest).unwrap();
    assert_eq!(
        code(&place.go(&format!("mkfifo {}", manifest.display()))),
        0
    );
    let chat = place.go(&format!(
        "exec timeout 20 $P chat {} --prompt a",
        folder.display()
    ));
    assert!(![0, 124].contains(&code(&chat)), "{}", said(&chat));
    assert!(said(&chat).contains("not a plain file"), "{}", said(&chat));
>>>>>>> main
}
