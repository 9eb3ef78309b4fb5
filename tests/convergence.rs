//! bf16 matmuls train as well as f32 ones: whole runs of a preset in both, seed by seed, by the real program. Takes long.
//!
//! ```text
//! cargo test --release --test convergence -- --ignored --nocapture
//! ```
//!
//! `LLMTUI_CONVERGENCE=quickstart:2000:3` chooses another preset, number of steps and number of seeds; a fourth part sets
//! values of the spec, as in `shakespeare:1000:3:micro_batch_size=8,grad_accum_steps=1`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use llmtui::nn::Precision;
use llmtui::run::RunDir;
use llmtui::run::log::read_all;
use llmtui::wire::{Event, Outcome};
use std::path::Path;
use std::process::{Command, Stdio};

const DEFAULT: &str = "shakespeare:1000:3";
/// Largest difference of the mean validation losses, in nats.
const TOLERANCE: f64 = 0.01;
const FIRST_SEED: u64 = 1337;

struct Options {
    preset: String,
    steps: u64,
    seeds: u64,
    settings: Vec<String>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a switch for people who run this test"
)]
fn options() -> Options {
    let words = std::env::var("LLMTUI_CONVERGENCE").unwrap_or(DEFAULT.into());
    let parts: Vec<&str> = words.splitn(4, ':').collect();
    let [preset, steps, seeds, ref settings @ ..] = parts[..] else {
        panic!("LLMTUI_CONVERGENCE=preset:steps:seeds[:key=value,…], not {words}")
    };
    let settings = settings.iter().flat_map(|words| words.split(','));
    Options {
        preset: preset.into(),
        steps: steps.parse().unwrap(),
        seeds: seeds.parse().unwrap(),
        settings: settings.map(String::from).collect(),
    }
}

/// Loss over the whole validation split at the end of a run.
fn final_loss(options: &Options, precision: &str, seed: u64) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        format!("precision={precision}"),
        format!("seed={seed}"),
        format!("max_steps={}", options.steps),
        "eval_every=0".into(),
        "sample_every=0".into(),
        "save_every=0".into(),
        "preflight.enabled=false".into(),
        "log_every=100".into(),
    ];
    let runs = dir.path().join("runs");
    let status = Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args([
            "train",
            &options.preset,
            "--headless",
            "--json",
            "--runs-dir",
        ])
        .arg(&runs)
        .args(
            words
                .iter()
                .chain(&options.settings)
                .flat_map(|word| ["-s", word.as_str()]),
        )
        .env("XDG_RUNTIME_DIR", dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{precision}, seed {seed}: {status}");
    val_loss(&runs)
}

fn val_loss(runs: &Path) -> f64 {
    let entry = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap();
    let run = RunDir::open(&entry.path()).unwrap();
    let last = read_all(&run.events_path()).unwrap().pop().unwrap();
    match last.event {
        Event::Finished {
            outcome: Outcome::Completed,
            val_loss,
            ..
        } => val_loss.unwrap().0,
        other => panic!("the run ended with {other:?}"),
    }
}

#[test]
#[ignore = "six runs of a preset: minutes to hours"]
fn bf16_ends_at_the_loss_of_f32() {
    if Precision::Bf16.resolve().is_err() {
        println!("this processor has no bf16: nothing to compare");
        return;
    }
    let options = options();
    println!("{}, {} steps", options.preset, options.steps);
    println!("| seed | f32 | bf16 | difference |\n|---|---|---|---|");
    let mut differences = Vec::new();
    for seed in FIRST_SEED..FIRST_SEED + options.seeds {
        let [f32, bf16] = ["f32", "bf16"].map(|p| final_loss(&options, p, seed));
        println!("| {seed} | {f32:.4} | {bf16:.4} | {:+.4} |", bf16 - f32);
        differences.push(bf16 - f32);
    }
    let mean = differences.iter().sum::<f64>() / differences.len() as f64;
    println!("| mean | | | {mean:+.4} |");
    assert!(mean.abs() <= TOLERANCE, "means differ by {mean:+.4} nats");
}
