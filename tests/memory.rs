//! Planned memory compared with measured memory: real runs in their own processes, whose peak the kernel reports.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of a test fails as a test does, and the long test prints its table"
)]

use llmtui::base::clock::{Clock, SystemClock};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");
const MIB: f64 = 1_048_576.0;
/// Resident pages of the program's own file in an optimized build, which a plan includes. An unoptimized program has twice as
/// many, which is not the run's.
const CODE: f64 = 27.0 * MIB;
/// The relative error allowed for a plan.
const TOLERANCE: f64 = 0.10;

/// One run: its name, the `-s` settings on top of a preset, and its steps.
struct Case {
    name: &'static str,
    preset: &'static str,
    set: &'static [&'static str],
    steps: u64,
}

const fn case(name: &'static str, set: &'static [&'static str], steps: u64) -> Case {
    Case {
        name,
        preset: "quickstart",
        set,
        steps,
    }
}

/// The same on another preset.
const fn of(preset: &'static str, case: Case) -> Case {
    Case { preset, ..case }
}

/// Settings of every run: a short evaluation, only at the end.
const BRIEF: &[&str] = &["data.val_fraction=0.003", "eval.every=0"];

/// Planned and measured bytes.
#[derive(Debug, Clone, Copy)]
struct Peak {
    planned: f64,
    measured: f64,
}

impl Peak {
    fn error(self) -> f64 {
        self.measured / self.planned - 1.0
    }
}

fn words<'a>(case: &'a Case, folder: &Path) -> impl Fn(&[&str]) -> Command + use<'a> {
    let folder = folder.to_path_buf();
    let (runtime, state) = (folder.join("r"), folder.join("s"));
    move |verb: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .args(verb)
            .args(BRIEF.iter().chain(case.set).flat_map(|w| ["-s", w]))
            .current_dir(&folder)
            .env("XDG_RUNTIME_DIR", &runtime)
            .env("XDG_STATE_HOME", &state)
            .env("XDG_CONFIG_HOME", folder.join("c"))
            .stdin(Stdio::null());
        command
    }
}

/// Plans a run, and executes it.
fn peak(case: &Case) -> Peak {
    let folder = tempfile::tempdir().unwrap();
    let command = words(case, folder.path());
    let planned = command(&["plan", case.preset, "--json"]).output().unwrap();
    let planned: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    let steps = format!("train.max_steps={}", case.steps);
    let child = command(&["train", case.preset, "--headless", "-s", &steps])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Peak {
        planned: planned["total"]["p50_bytes"].as_f64().unwrap(),
        measured: watch(child, case.name),
    }
}

/// The peak memory of a process: the kernel's mark only rises, so the last reading before the end is the one.
/// Code beyond [`CODE`] is subtracted.
fn watch(mut child: Child, name: &str) -> f64 {
    let status = format!("/proc/{}/status", child.id());
    let mut most: f64 = 0.0;
    let clock = SystemClock::new();
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let bytes = |name| bytes(&text, name).unwrap_or(0.0);
        let more_code = (bytes("RssFile:") - CODE).max(0.0);
        most = most.max(bytes("VmHWM:") - more_code);
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{name}: {status}");
            return most;
        }
        if clock.elapsed() > Duration::from_secs(600) {
            child.kill().unwrap();
            panic!("{name} takes too long");
        }
        llmtui::base::clock::pause(Duration::from_millis(3));
    }
}

/// A field of `/proc/PID/status` in bytes.
fn bytes(status: &str, name: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = value.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1024.0)
}

fn compare(cases: &[Case]) {
    let mut off = Vec::new();
    println!("| run | planned | measured | |");
    println!("|---|---|---|---|");
    for case in cases {
        let peak = peak(case);
        println!(
            "| {} | {:.1} MiB | {:.1} MiB | {:+.1} % |",
            case.name,
            peak.planned / MIB,
            peak.measured / MIB,
            100.0 * peak.error()
        );
        if peak.error().abs() > TOLERANCE {
            off.push((case.name, peak));
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

/// Each of the three moments that may need most: activations, half of them recomputed, and the copy used by checks.
/// Large in memory, small in arithmetic.
const SMALL: &[Case] = &[
    case(
        "activations of 8 layers",
        &[
            "model.n_layer=8",
            "model.seq_len=128",
            "train.micro_batch_size=24",
            "preflight.enabled=false",
        ],
        2,
    ),
    case(
        "every 4 layers kept",
        &[
            "model.n_layer=12",
            "model.seq_len=128",
            "train.micro_batch_size=24",
            "train.activation_checkpointing={every_n: {n: 4}}",
        ],
        2,
    ),
    case(
        "a large vocabulary, checks first",
        &[
            "model.n_layer=1",
            "model.d_model=256",
            "model.vocab_size=20000",
            "train.micro_batch_size=2",
        ],
        2,
    ),
    of(
        "grpo-arithmetic",
        case("answers after a cold start", ANSWERS, 8),
    ),
    of("ppo-demo", case("PPO, a separate critic", PPO, 8)),
    of(
        "ppo-demo",
        case("PPO, a critic on the policy's trunk", SHARED, 8),
    ),
    of(
        "ppo-demo",
        case("PPO, larger, without a cold start", LARGER, 2),
    ),
];

const ANSWERS: &[&str] = &["rollout.cold_start_steps=2"];
const PPO: &[&str] = &[
    "rollout.cold_start_steps=2",
    "method.ppo.critic_warmup_steps=1",
];
const SHARED: &[&str] = &[
    "rollout.cold_start_steps=2",
    "method.ppo.critic_warmup_steps=0",
    "method.ppo.critic=shared",
];
const LARGER: &[&str] = &[
    "rollout.cold_start_steps=0",
    "method.ppo.critic_warmup_steps=0",
    "model.d_model=384",
    "train.micro_batch_size=64",
];

#[test]
fn real_runs_use_the_planned_memory() {
    compare(SMALL);
}

const M: &[&str] = &[
    "model.n_layer=6",
    "model.n_head=6",
    "model.d_model=384",
    "model.seq_len=512",
    "train.micro_batch_size=4",
];

/// The sizes on which training is measured. `cargo long --test memory` prints the table; takes minutes.
const TABLE: &[Case] = &[
    case("S 12 × 64, the quickstart", &[], 30),
    case(
        "S 64 × 128, all checkpointed",
        &[
            "model.seq_len=128",
            "train.micro_batch_size=64",
            "train.activation_checkpointing=full",
        ],
        4,
    ),
    case(
        "S 64 × 128, f32",
        &[
            "model.seq_len=128",
            "train.micro_batch_size=64",
            "train.precision=f32",
        ],
        4,
    ),
    case("S of subwords, 16 × 128", SUBWORDS, 4),
    case("M 4 × 512", M, 4),
    case("M 16 × 256, every 3 layers", M_EVERY, 3),
    case("M 4 × 512 without checks", M_QUIET, 4),
    case("L 4 × 512", L, 3),
];

const SUBWORDS: &[&str] = &[
    "model.seq_len=128",
    "train.micro_batch_size=16",
    "data.tokenizer={bpe: {vocab_size: 1024}}",
];

const M_EVERY: &[&str] = &[
    "model.n_layer=6",
    "model.n_head=6",
    "model.d_model=384",
    "model.seq_len=256",
    "train.micro_batch_size=16",
    "train.activation_checkpointing={every_n: {n: 3}}",
];

const M_QUIET: &[&str] = &[
    "model.n_layer=6",
    "model.n_head=6",
    "model.d_model=384",
    "model.seq_len=512",
    "train.micro_batch_size=4",
    "preflight.enabled=false",
];

const L: &[&str] = &[
    "model.n_layer=8",
    "model.n_head=8",
    "model.n_kv_head=4",
    "model.d_model=512",
    "model.d_ff=1408",
    "model.position=rope",
    "model.norm=rmsnorm",
    "model.mlp=swiglu",
    "model.vocab_size=8192",
    "model.seq_len=512",
    "train.micro_batch_size=4",
];

#[test]
#[ignore = "minutes"]
fn the_table_of_planned_and_measured_memory() {
    compare(TABLE);
}

/// Three models of 150 MB in f32 are read tensor by tensor: held at once they would take 450 MB.
#[test]
fn a_merge_holds_tensors_and_not_models() {
    const MODEL: &[&str] = &["model.d_model=512", "model.n_layer=12", "model.n_head=8"];
    let case = case("merge", MODEL, 0);
    let folder = tempfile::tempdir().unwrap();
    let command = words(&case, folder.path());
    let made = command(&["init", case.preset, "--to", "model"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let weights = folder.path().join("model/model.safetensors");
    let model = weights.metadata().unwrap().len() as f64;
    assert!(model > 140.0 * MIB);
    let child = Command::new(PROGRAM)
        .args(["merge", "model", "model", "model"])
        .args(["--method", "linear", "--to", "merged"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let most = watch(child, "merge");
    assert!(most < 0.9 * model, "{most} bytes beside models of {model}");
    assert!(folder.path().join("merged/model.safetensors").is_file());
}
