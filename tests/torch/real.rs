//! Real PyTorch, if the environment names one.

use super::{Bench, text, warnings};
use llmtui::run::RunState;
use llmtui::wire::Envelope;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The virtual environment of `LLMTUI_TORCH_PYTHON`.
pub(super) fn real() -> String {
    std::env::var("LLMTUI_TORCH_PYTHON")
        .expect("LLMTUI_TORCH_PYTHON names a virtual environment with PyTorch")
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn both_engines_give_the_same_losses_and_wrong_variants_are_detected() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch_parity.sh");
    let status = Command::new("sh")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_llmtui"))
        .arg(real())
        .status()
        .unwrap();
    assert!(status.success());
}

/// Frames, texts processed piece by piece against the same texts processed at once, manual gradients against autograd, and the
/// number of kernel launches.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn the_worker_passes_its_own_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new(Path::new(&real()).join("bin/python"))
        .args([
            "-B",
            "-m",
            "unittest",
            "-v",
            "tests/torch/test_worker.py",
            "tests/torch/test_adamw8bit.py",
            "tests/torch/test_layers.py",
            "tests/torch/test_mixers.py",
            "tests/torch/test_experts.py",
            "tests/torch/test_latent.py",
            "tests/torch/test_gpt_oss.py",
            "tests/torch/test_distill.py",
            "tests/torch/test_muon.py",
            "tests/torch/test_values.py",
            "tests/torch/test_launches.py",
            "tests/torch/test_graphs.py",
        ])
        .current_dir(root)
        .env(
            "PYTHONPATH",
            std::env::join_paths(["assets/torch_worker", "tests/torch"].map(|it| root.join(it)))
                .unwrap(),
        )
        .status()
        .unwrap();
    assert!(status.success());
}

/// The state of a run that `args` train, with `--json`.
#[track_caller]
pub(super) fn trained(bench: &Bench, args: &[&str]) -> RunState {
    let out = bench.llmtui(args);
    let code = out.status.code();
    assert_eq!(code, Some(0), "{args:?}: {}", text(&out.stderr));
    let events: Vec<Envelope> = text(&out.stdout)
        .lines()
        .map(|line| llmtui::wire::decode_envelope(line).unwrap())
        .collect();
    RunState::from_events(&events)
}

/// The largest difference of two lists of as many values.
#[track_caller]
pub(super) fn largest_difference(one: &[f64], other: &[f64]) -> f64 {
    assert_eq!(one.len(), other.len(), "{one:?} {other:?}");
    let apart = one.iter().zip(other).map(|(a, b)| (a - b).abs());
    apart.fold(0.0, |most, it| {
        assert!(it.is_finite(), "{one:?} {other:?}");
        f64::max(most, it)
    })
}

/// Preference learning with a nonlinear loss and a frozen reference on the ranks; adapters; and a packed batch of documents.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn methods_and_adapters_give_the_same_losses() {
    let bench = Bench::new(&[]);
    let losses = |preset: &str, more: &[&str]| {
        let common = [
            "-s",
            "max_steps=6",
            "-s",
            "train.precision=f32",
            "-s",
            "train.log_every=1",
            "-s",
            "train.threads=1",
        ];
        let quiet = [
            "-s",
            "preflight.enabled=false",
            "-s",
            "health.enabled=false",
            "-s",
            "eval.every=3",
            "-s",
            "eval.batches=1",
        ];
        let args = [&["train", preset, "--json"][..], &common, &quiet, more].concat();
        let state = trained(&bench, &args);
        let of = |id: &str| {
            state.series[id]
                .recent()
                .map(|p| p.value)
                .collect::<Vec<f64>>()
        };
        [of("train/loss"), of("val/loss")].concat()
    };
    let python = format!("engine.torch.python={}", real());
    let torch =
        |ranks: &'static str| vec!["-s", "engine=torch", "-s", python.as_str(), "-s", ranks];
    for preset in ["dpo-demo", "kto-demo", "orpo-demo", "reward-demo"] {
        let here = losses(preset, &[]);
        for ranks in ["engine.torch.ranks=1", "engine.torch.ranks=2"] {
            let there = losses(preset, &torch(ranks));
            let apart = here
                .iter()
                .zip(&there)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f64::max);
            println!(
                "{preset} {ranks}: {} values, max |dloss| {apart:.2e}",
                here.len()
            );
            assert!(
                here.len() == there.len() && apart < 1e-5,
                "{preset} {ranks}: {here:?} {there:?}"
            );
        }
    }
}

/// A reference that moves goes through the ranks' own weights: the updates behind it are those of this program's engine, counts of
/// Adam included, and so are those after a resume.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn a_moving_reference_gives_the_same_losses() {
    let python = format!("engine.torch.python={}", real());
    let losses = |more: &[&str], stop_after: Option<&str>| {
        let bench = Bench::new(&[]);
        let common = "max_steps=8 train.precision=f32 train.log_every=1 train.threads=1 preflight.enabled=false health.enabled=false \
                      eval.batches=1 checkpoint.every=5 train.sync_ref_model=true train.ref_model_sync_steps=2";
        let common = common.split_whitespace().chain(more.iter().copied());
        let mut args = vec!["train", "dpo-demo", "--headless"];
        args.extend(common.flat_map(|setting| ["-s", setting]));
        args.extend(
            stop_after
                .into_iter()
                .flat_map(|step| ["--stop-after", step]),
        );
        let out = bench.llmtui(&args);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        if stop_after.is_some() {
            let out = bench.llmtui(&["train", "--resume", "auto", "--headless"]);
            assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        }
        let state = RunState::from_events(&bench.events());
        let losses = state.series["train/loss"].recent().map(|p| p.value);
        losses.collect::<Vec<f64>>()
    };
    let here = losses(&[], None);
    let variants: [&[&str]; 3] = [
        &["engine.torch.ranks=1"],
        &["engine.torch.ranks=2"],
        &["engine.torch.ranks=2", "engine.torch.shard=fsdp2"],
    ];
    for ranks in variants {
        let torch = [&["engine=torch", python.as_str()][..], ranks].concat();
        for stop_after in [None, Some("5")] {
            let there = losses(&torch, stop_after);
            let apart = here
                .iter()
                .zip(&there)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f64::max);
            println!("{ranks:?} {stop_after:?}: max |dloss| {apart:.2e}");
            assert!(
                here.len() == there.len() && apart < 1e-5,
                "{ranks:?} {stop_after:?}: {here:?} {there:?}"
            );
        }
    }
}

/// Answers computed on the ranks and sampled by this program equal those of its own engine, and so do their updates: by GRPO with
/// a reference that a cold start has moved, and by RLOO with adapters.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn tasks_give_the_same_records_on_both_engines() {
    let bench = Bench::new(&[]);
    let records = |name: &str, more: &[&str]| {
        let common = "max_steps=2 train.precision=f32 train.threads=1 preflight.enabled=false health.enabled=false eval.batches=1 \
                      eval.tasks=[made_sort] eval.task_limit=40 model.n_layer=2 model.n_kv_head=2";
        let common = common
            .split_whitespace()
            .flat_map(|setting| ["-s", setting]);
        let args: Vec<&str> = ["train", "sft", "--headless", "--runs-dir", name]
            .into_iter()
            .chain(common)
            .collect();
        let out = bench.llmtui(&[&args[..], more].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let run = std::fs::read_dir(bench.path(name))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        // After the last step: weights that exist only on the ranks.
        let folder = run.path().join("evals/step-000002");
        let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
        let lines = std::fs::read_to_string(file.path()).unwrap();
        let logps: Vec<f64> = lines
            .lines()
            .filter_map(|line| {
                let record: serde_json::Value = serde_json::from_str(line).unwrap();
                record["scored"][0]["logp"].as_f64()
            })
            .collect();
        assert_eq!(logps.len(), 40);
        logps
    };
    let own = records("own", &[]);
    let python = format!("engine.torch.python={}", real());
    for (name, ranks) in [("one", "1"), ("two", "2")] {
        let ranks = format!("engine.torch.ranks={ranks}");
        let there = records(name, &["-s", "engine=torch", "-s", &python, "-s", &ranks]);
        let largest = own
            .iter()
            .zip(&there)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(largest < 1e-4, "{name}: {largest}");
    }
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn answers_are_the_same_ones_on_both_engines() {
    let bench = Bench::new(&[]);
    let run = |preset: &str, more: &[&str]| {
        // A reward that some of an untrained model's answers earn: advantages are not all 0.
        let rewards = ["-s", "rewards=[{regex: {pattern: '[1-4]'}}]"];
        let common = "max_steps=8 train.precision=f32 train.log_every=1 train.threads=1 train.micro_batch_size=16 \
                      preflight.enabled=false health.enabled=false eval.every=4 eval.batches=1 rollout.cold_start_steps=3 \
                      rollout.epochs=2 rollout.side_by_side=7 rollout.temperature=0.8";
        let common = common
            .split_whitespace()
            .flat_map(|setting| ["-s", setting]);
        let args: Vec<&str> = ["train", preset, "--json"]
            .into_iter()
            .chain(common)
            .chain(rewards)
            .collect();
        let state = trained(&bench, &[&args[..], more].concat());
        let of = |id: &str| {
            let series = state.series.get(id).unwrap_or_else(|| panic!("{id}"));
            series.recent().map(|p| p.value).collect::<Vec<f64>>()
        };
        let ids = [
            "train/loss",
            "policy_loss",
            "entropy",
            "reward",
            "completions/mean_length",
            "eval/reward",
            // Rounding in the first pass over the answers, the policy step in the second: the same on both.
            "sampling/logp_difference",
        ];
        ids.map(of).concat()
    };
    let python = format!("engine.torch.python={}", real());
    let variants: [&[&str]; 3] = [
        &["-s", "engine.torch.ranks=1"],
        &["-s", "engine.torch.ranks=2"],
        &[
            "-s",
            "engine.torch.ranks=2",
            "-s",
            "engine.torch.shard=fsdp2",
        ],
    ];
    for (preset, settings) in [
        ("grpo-sort", ["-s", "method.grpo.beta=0.04"]),
        (
            "rloo-sort",
            ["-s", "adapter={lora: {rank: 4, dropout: 0.0}}"],
        ),
    ] {
        let here = run(preset, &settings);
        for ranks in variants {
            let torch = ["-s", "engine=torch", "-s", python.as_str()];
            let there = run(preset, &[&settings[..], &torch, ranks].concat());
            let apart = here
                .iter()
                .zip(&there)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f64::max);
            println!(
                "{preset} {ranks:?}: {} values, max |d| {apart:.2e}",
                here.len()
            );
            assert!(
                here.len() == there.len() && apart < 1e-5,
                "{preset} {ranks:?}: {here:?} {there:?}"
            );
        }
        // Different draws are detected.
        let other = run(
            preset,
            &[&settings[..], &["-s", "rollout.temperature=1.01"]].concat(),
        );
        assert_ne!(here, other, "{preset}");
    }
}

/// Dropout, in the decoder and before its adapters: in training only, the same after a resume, on
/// one rank as on several with recomputed activations.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn dropout_masks_are_the_same_after_a_resume() {
    let python = format!("engine.torch.python={}", real());
    let run = |settings: &[&str], stopped: bool| {
        let bench = Bench::new(&[]);
        let mut args = vec![
            "train",
            "tiny.yaml",
            "--headless",
            "-s",
            "engine=torch",
            "-s",
            &python,
        ];
        for setting in settings {
            args.extend(["-s", setting]);
        }
        if stopped {
            args.extend(["--stop-after", "4"]);
        }
        let out = bench.llmtui(&args);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        if stopped {
            let out = bench.llmtui(&["train", "--resume", "auto", "--headless"]);
            assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        }
        let events = bench.events();
        let state = RunState::from_events(&events);
        let val = state.series["val/loss"].recent().map(|p| p.value);
        (bench.losses(), val.collect::<Vec<f64>>())
    };
    let adapter = "adapter={lora: {rank: 4, dropout: 0.3}}";
    for more in [
        &["engine.torch.ranks=1"][..],
        &[
            "engine.torch.ranks=2",
            "engine.torch.shard=fsdp2",
            "train.activation_checkpointing=full",
        ],
    ] {
        for rate in ["model.dropout=0.2", adapter] {
            let settings = [&[rate], more].concat();
            let whole = run(&settings, false);
            assert_eq!(whole, run(&settings, true), "{settings:?}");
            let undropped = [&[rate, "adapter.lora.dropout=0"], more].concat();
            let undropped = match rate == adapter {
                true => run(&undropped, false),
                false => run(more, false),
            };
            assert_ne!(whole.0, undropped.0, "{settings:?}");
            println!("{settings:?}: {:?} {:?}", whole.0, whole.1);
        }
    }
}

/// A stopped rank (SIGSTOP) is named, and killed ranks are replaced: the losses are bit-exactly those of an undisturbed
/// run. `KILLS=20` kills as often: each engine stops after its fourth loss, and a resume continues.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn a_stopped_or_killed_rank_changes_no_bit() {
    /// Logged steps between two kills: more than between two checkpoints, so that each generation makes progress.
    const APART: usize = 12;
    const GIVES_UP: usize = 4;
    let python = format!("engine.torch.python={}", real());
    let kills = std::env::var("KILLS").map_or(1, |n| n.parse().unwrap());
    let steps = format!("max_steps={}", APART * (kills + 2));
    let settings = [
        &python,
        "engine.torch.ranks=2",
        &steps,
        "checkpoint.every=10",
        "engine.torch.patience=8",
    ];
    let run = |kills: usize, signal: &str| {
        let bench = Bench::new(&[]);
        let begin = |args: &[&str]| {
            Command::new(env!("CARGO_BIN_EXE_llmtui"))
                .args(["train", "--headless"])
                .args(args)
                .current_dir(bench.dir.path())
                .env("HOME", bench.dir.path())
                .env("XDG_RUNTIME_DIR", bench.dir.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut first = vec!["tiny.yaml", "-s", "engine=torch"];
        first.extend(settings.iter().flat_map(|setting| ["-s", *setting]));
        let mut child = begin(&first);
        for kill in 1..=kills {
            let (begun, before) = (std::time::Instant::now(), bench.losses_so_far());
            let launcher = loop {
                let launcher = launcher_of(child.id());
                if bench.losses_so_far() >= before + APART && !launcher.is_empty() {
                    break launcher;
                }
                assert!(begun.elapsed() < Duration::from_secs(120), "kill {kill}");
                llmtui::base::clock::pause(Duration::from_millis(20));
            };
            let which = if signal == "-STOP" {
                "--newest"
            } else {
                "--full"
            };
            let killed = Command::new("pkill")
                .args([signal, "-P", &launcher, which, "python"])
                .status();
            assert!(killed.unwrap().success());
            if kill % GIVES_UP == 0 {
                assert_eq!(child.wait().unwrap().code(), Some(3), "kill {kill}");
                child = begin(&["--resume", "auto"]);
            }
        }
        assert!(child.wait().unwrap().success());
        let warned = warnings(&bench.events());
        let lost: Vec<_> = warned
            .iter()
            .filter(|w| w.starts_with("ranks_lost"))
            .collect();
        assert_eq!(lost.len(), kills - kills / GIVES_UP, "{warned:?}");
        assert!(
            signal != "-STOP" || lost.iter().all(|w| w.contains("was stopped for 8 s")),
            "{lost:?}"
        );
        bench.losses()
    };
    let whole = run(0, "");
    assert_eq!(whole, run(1, "-STOP"), "stopped");
    assert_eq!(whole, run(kills, "-KILL"), "killed");
    println!("{} steps, {kills} kills, the same losses", whole.len());
}

impl Bench {
    fn losses_so_far(&self) -> usize {
        let runs = std::fs::read_dir(self.path("runs"));
        let runs = runs.into_iter().flatten().filter_map(Result::ok);
        let log = runs
            .map(|run| run.path().join("events.jsonl"))
            .find(|path| path.exists());
        let text = log
            .and_then(|path| std::fs::read_to_string(path).ok())
            .unwrap_or_default();
        text.matches("\"Stepped\"").count()
    }
}

/// The torchrun started by an engine.
fn launcher_of(engine: u32) -> String {
    let out = Command::new("pgrep")
        .args(["-P", &engine.to_string()])
        .output()
        .unwrap();
    text(&out.stdout).trim().to_string()
}
