//! The engine on ranks: a fake torchrun implements the protocol and every kind of failure, so that the engine's reactions
//! are tested without Python. Real PyTorch, on the CPU with gloo: `LLMTUI_TORCH_PYTHON=/path/to/venv cargo test --test torch --
//! --ignored --test-threads 1`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test may fail loudly, and this one is told by the environment what to play"
)]

mod distill;
mod experts;
mod gpt_oss;
mod hybrid;
mod latent;
mod muon;
mod nodes;
mod rank;
mod real;
mod rules;
mod values;

use llmtui::run::{RunState, Tail};
use llmtui::wire::{Envelope, Event, Outcome};
use rank::Fake;
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SPEC: &str = "
extends: quickstart
name: tiny
model: {n_layer: 1, n_head: 2, d_model: 16, seq_len: 16}
train: {max_steps: 8, micro_batch_size: 3, grad_accum_steps: 2, threads: 1, log_every: 1, precision: f32}
schedule: constant
eval: {every: 4, batches: 1}
sample: {every: 100}
checkpoint: {every: 2}
preflight: {enabled: false}
health: {enabled: false}
";

/// A folder with a spec, and this test binary as its Python.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// `plays`: the behavior of the ranks, by generation.
    fn new(plays: &[&str]) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tiny.yaml"), SPEC).unwrap();
        let bin = dir.path().join("venv/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(dir.path().join("plays"), plays.join("\n")).unwrap();
        let about = json!({"python": "3.12", "torch": "2.15.0", "distributed": true, "sum": 12.0, "gpus": 0});
        let test = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = -I ]; then echo '{about}'; exit 0; fi\nexport LLMTUI_PLAY='{}'\nexport LLMTUI_ARGS=\"$*\"\n\
             exec '{}' a_rank_of_this_test --exact --nocapture\n",
            dir.path().display(),
            test.display()
        );
        let python = bin.join("python");
        std::fs::write(&python, script).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        Bench { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn llmtui(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_llmtui"))
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("HOME", self.dir.path())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn train(&self, more: &[&str]) -> Output {
        let own = [
            "train",
            "tiny.yaml",
            "--headless",
            "-s",
            "engine=torch",
            "-s",
            "engine.torch.python=venv",
            "-s",
            "engine.torch.ranks=2",
        ];
        self.llmtui(&[&own[..], more].concat())
    }

    /// The log of the only run.
    fn events(&self) -> Vec<Envelope> {
        let run = self.run();
        let mut tail = Tail::open(&run.join("events.jsonl")).unwrap();
        std::iter::from_fn(|| tail.next_event().unwrap()).collect()
    }

    fn run(&self) -> PathBuf {
        let mut runs: Vec<PathBuf> = std::fs::read_dir(self.path("runs"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        runs.sort();
        runs.pop().unwrap()
    }

    fn losses(&self) -> Vec<(u64, f64)> {
        let state = RunState::from_events(&self.events());
        state.series["train/loss"]
            .recent()
            .map(|p| (p.step, p.value))
            .collect()
    }

    /// Asserts that no process started by this bench is left.
    fn assert_no_processes_left(&self) {
        let started = std::fs::read_to_string(self.path("pids")).unwrap_or_default();
        for pid in started.lines() {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert!(
                !stat.contains("a_rank_of_this_test"),
                "process {pid} is left: {stat}"
            );
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn warnings(events: &[Envelope]) -> Vec<String> {
    let reported = events.iter().filter_map(|e| match &e.event {
        Event::Warned { code, message, .. } => Some(format!("{code}: {message}")),
        _ => None,
    });
    reported.collect()
}

fn ending(events: &[Envelope]) -> (Outcome, String) {
    match &events.last().unwrap().event {
        Event::Finished {
            outcome, message, ..
        } => (*outcome, message.clone()),
        other => panic!("{other:?}"),
    }
}

// ---- the ranks of the fake torchrun ----

/// One process acts as torchrun and all its ranks, or as a single rank; it does nothing unless the script requests it.
#[test]
fn a_rank_of_this_test() {
    let Ok(dir) = std::env::var("LLMTUI_PLAY") else {
        return;
    };
    let args: Vec<String> = std::env::var("LLMTUI_ARGS")
        .unwrap()
        .split(' ')
        .map(String::from)
        .collect();
    let after = |flag: &str| Some(args[args.iter().position(|a| a == flag)? + 1].clone());
    let ranks: usize = after("--nproc-per-node").map_or(1, |n| n.parse().unwrap());
    let variable = |key: &str| std::env::var(key).unwrap().parse::<usize>().unwrap();
    let (first, world) = (variable("LLMTUI_FIRST_RANK"), variable("LLMTUI_WORLD_SIZE"));
    let before = std::fs::read_to_string(Path::new(&dir).join("pids")).unwrap_or_default();
    let generation: usize = match after("--rdzv-id") {
        Some(id) => id.rsplit("-g").next().unwrap().parse().unwrap(),
        None => before.lines().count() + 1,
    };
    let plays = std::fs::read_to_string(Path::new(&dir).join("plays")).unwrap();
    let play = plays
        .lines()
        .nth(generation - 1)
        .unwrap_or("well")
        .to_string();
    let mut pids = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(Path::new(&dir).join("pids"))
        .unwrap();
    writeln!(pids, "{}", std::process::id()).unwrap();
    if play == "no ranks" {
        eprintln!("ModuleNotFoundError: no module named nothing");
        std::process::exit(1);
    }
    let socket = args.last().unwrap().clone();
    let threads: Vec<_> = (first..first + ranks)
        .map(|rank| {
            let (play, socket) = (play.clone(), socket.clone());
            std::thread::spawn(move || Fake::new(rank, world, &socket, &play).serve())
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    std::process::exit(0);
}

// ---- the engine's reactions ----

#[test]
fn a_run_on_ranks_trains_evaluates_saves_and_logs_like_any_other() {
    let bench = Bench::new(&["well"]);
    let out = bench.train(&[]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let events = bench.events();
    let state = RunState::from_events(&events);
    assert_eq!((state.step, state.word()), (8, "finished"));
    assert_eq!(state.evaluations.len(), 2);
    // Two micro-batches of a millisecond on each rank.
    for rank in 0..2 {
        let id = format!("rank/{rank}/forward_ms");
        assert!(state.metric(&id).is_some(), "{id} is declared");
        assert!((state.latest(&id).unwrap() - 2.0).abs() < 1e-9, "{id}");
        let id = format!("rank/{rank}/reserved_bytes");
        assert!(state.metric(&id).is_some(), "{id} is declared");
        assert_eq!(state.host[&id], 1000.0 + f64::from(rank), "{id}");
    }
    assert!(state.log.iter().any(|line| {
        line.text
            .contains("PyTorch 2.15.0: 2 processes (ddp) on cpu")
    }));
    // Each update raises the log-probability by a tenth.
    let losses = bench.losses();
    assert!(
        losses.len() == 8 && (losses[0].1 - losses[7].1 - 0.7).abs() < 0.1,
        "{losses:?}"
    );
    let checkpoint = bench.run().join("checkpoints/step-000008");
    assert!(
        checkpoint.join("manifest.json").exists() && checkpoint.join("model.safetensors").exists()
    );
    bench.assert_no_processes_left();
}

/// These ranks predict the next character in the vocabulary; the engine's own weights predict something else.
#[test]
fn samples_are_generated_on_the_ranks() {
    let bench = Bench::new(&["well"]);
    let settings = [
        "sample.prompt=a",
        "sample.every=4",
        "sample.sampling.temperature=0",
        "sample.sampling.max_new_tokens=20",
        "sample.sampling.context=roll",
    ];
    let more: Vec<&str> = settings.into_iter().flat_map(|set| ["-s", set]).collect();
    let out = bench.train(&more);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let samples: Vec<String> = bench
        .events()
        .into_iter()
        .filter_map(|reported| match reported.event {
            Event::Sampled { prompt, text, .. } => Some(format!("{prompt}{text}")),
            _ => None,
        })
        .collect();
    // Longer than the context of 16: the window rolls there too.
    let alphabet = "abcdefghijklmnopqrstu".to_string();
    assert_eq!(samples, vec![alphabet; samples.len()]);
    assert!(samples.len() >= 2, "{samples:?}");
}

/// Without torchrun; a lost generation is nevertheless followed by another one.
#[test]
fn a_single_rank_trains_and_is_replaced() {
    for (plays, phrase) in [
        (&["crash", "well"][..], "rank 0"),
        (
            &["no ranks"],
            "the rank ended before it connected (exit status: 1): ModuleNotFoundError",
        ),
    ] {
        let bench = Bench::new(plays);
        let out = bench.train(&["-s", "engine.torch.ranks=1", "-s", "checkpoint.every=2"]);
        let events = bench.events();
        let reported = warnings(&events).join("\n") + &ending(&events).1;
        assert!(reported.contains(phrase), "{reported}");
        let ends_well = plays.last() == Some(&"well");
        assert_eq!(
            out.status.code() == Some(0),
            ends_well,
            "{}",
            text(&out.stderr)
        );
        let logs = bench.run().join("torch/gen-1/0");
        assert!(logs.join("stderr.log").is_file());
        bench.assert_no_processes_left();
    }
}

/// An average of the weights comes back with the rest of the state.
#[test]
fn a_run_with_an_average_goes_on_after_a_loss() {
    for (plays, settings) in [
        (&["well"][..], &["train.ema_decay=0.9"][..]),
        (&["crash", "well"], &["train.ema_decay=0.9"]),
        (
            &["crash", "well"],
            &["train.ema_decay=0.9", "optimizer=lion"],
        ),
    ] {
        let bench = Bench::new(plays);
        let more: Vec<&str> = settings.iter().flat_map(|set| ["-s", set]).collect();
        let out = bench.train(&more);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let state = RunState::from_events(&bench.events());
        assert_eq!((state.step, state.word()), (8, "finished"), "{settings:?}");
        bench.assert_no_processes_left();
    }
}

/// Answers use the ranks' weights too, on any number of ranks.
#[test]
fn tasks_are_evaluated_on_the_ranks() {
    let bench = Bench::new(&["well"]);
    std::fs::write(
        bench.path("rows.jsonl"),
        "{\"q\": \"a\", \"a\": \"bcde\"}\n{\"q\": \"xb\", \"a\": \"cde\"}\n{\"q\": \"d\", \"a\": \"x\"}",
    )
    .unwrap();
    let task = "name: alphabet\nversion: 1\nsummary: s\nkind: answer\nsource: rows.jsonl\nprompt: '{{ q }}'\ntarget: '{{ a }}'\n\
                delimiter: ''\nanswer: {until: ['f'], max_new_tokens: 8}\n";
    std::fs::write(bench.path("alphabet.yaml"), task).unwrap();
    let out = bench.train(&["-s", "eval.tasks=[alphabet.yaml]"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let found: Vec<f64> = bench
        .events()
        .into_iter()
        .filter_map(|reported| match reported.event {
            Event::Evaluated { values, .. } => Some(values.get("eval/alphabet")?.0),
            _ => None,
        })
        .collect();
    assert!(found.len() >= 2, "{found:?}");
    assert!(
        found.iter().all(|right| (right - 2.0 / 3.0).abs() < 1e-9),
        "{found:?}"
    );
    bench.assert_no_processes_left();
}

#[test]
fn ranks_that_die_hang_or_freeze_are_named_and_the_run_continues_from_its_checkpoint() {
    for (play, phrase) in [
        ("crash", "rank 1"),
        ("hang", "no progress: rank 1 did not answer within 2 s"),
        ("frozen", "rank 1"),
    ] {
        let bench = Bench::new(&[play, "well"]);
        let out = bench.train(&["-s", "engine.torch.patience=2"]);
        assert_eq!(out.status.code(), Some(0), "{play}: {}", text(&out.stderr));
        let events = bench.events();
        let warned = warnings(&events);
        assert!(
            warned
                .iter()
                .any(|w| w.starts_with("ranks_lost") && w.contains(phrase)),
            "{play}: {warned:?}"
        );
        let back = events
            .iter()
            .any(|e| matches!(e.event, Event::RolledBack { step: 4 }));
        assert!(back, "{play}");
        // The fifth and the sixth step are repeated, with the same losses as in an undisturbed run.
        let quiet = Bench::new(&["well"]);
        quiet.train(&[]);
        assert_eq!(bench.losses(), quiet.losses(), "{play}");
        bench.assert_no_processes_left();
    }
}

/// Checkpoints after a loss had nothing of the probes, and readings began over.
#[test]
fn what_probes_have_seen_is_that_of_an_undisturbed_run_after_a_loss() {
    let carried = |plays: &[&str], every: &str| {
        let bench = Bench::new(plays);
        let out = bench.train(&["-s", "health.enabled=true", "-s", every]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let state = bench.run().join("checkpoints/step-000008/state.json");
        let state = std::fs::read_to_string(state).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        state["progress"]["probes"].clone()
    };
    // Back to a checkpoint, and to the beginning.
    for every in ["checkpoint.every=2", "checkpoint.every=100"] {
        let quiet = carried(&["well"], every);
        assert!(quiet.get("spikes").is_some(), "{quiet}");
        assert_eq!(carried(&["crash", "well"], every), quiet, "{every}");
    }
}

/// Rollouts computed on the ranks and sampled by this program: the same after ranks were lost, and so is their update.
#[test]
fn an_rl_method_generates_the_same_answers_after_a_loss() {
    let settings = [
        "-s",
        "method={grpo: {beta: 0.1}}",
        "-s",
        "rollout={group_size: 4, max_new_tokens: 4, epochs: 2, side_by_side: 5, cold_start_steps: 2}",
        "-s",
        "rewards=[{regex: {pattern: '1'}}]",
        "-s",
        "data={sources: [{synthetic: {sort: {min_length: 3, max_length: 4, max_value: 9}}, as: prompt, rows: 64}], tokenizer: char}",
        "-s",
        "train.micro_batch_size=8",
        "-s",
        "model.seq_len=64",
    ];
    let run = |plays: &[&str]| {
        let bench = Bench::new(plays);
        let out = bench.train(&settings);
        assert_eq!(
            out.status.code(),
            Some(0),
            "{}{}",
            text(&out.stderr),
            text(&out.stdout)
        );
        let state = RunState::from_events(&bench.events());
        let of = |id: &str| -> Vec<(u64, f64)> {
            let series = state.series.get(id).unwrap_or_else(|| panic!("{id}"));
            series.recent().map(|p| (p.step, p.value)).collect()
        };
        bench.assert_no_processes_left();
        [
            "policy_loss",
            "completions/mean_length",
            "reward",
            "sampling/logp_difference",
        ]
        .map(of)
    };
    let quiet = run(&["well"]);
    // Two steps of a cold start, then six on answers.
    assert_eq!(quiet[1].len(), 6);
    assert_eq!(run(&["crash", "well"]), quiet);
    // The next ranks are lost while they get the reference.
    assert_eq!(run(&["crash", "no reference", "well"]), quiet);
}

/// Before its first checkpoint a process goes back to what it began from, moments and all.
#[test]
fn an_optimizer_that_began_afresh_does_so_again_after_a_loss() {
    let trained = |play: &str| {
        let bench = Bench::new(&["well", play, "well"]);
        let rare = ["-s", "max_steps=12", "-s", "checkpoint.every=100"];
        let out = bench.train(&[&rare[..], &["--stop-after", "4"]].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let run = bench.run();
        let again = [
            "train",
            "--resume",
            run.to_str().unwrap(),
            "--headless",
            "--fresh-optimizer",
        ];
        let out = bench.llmtui(&again);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let lost = warnings(&bench.events())
            .iter()
            .any(|w| w.starts_with("ranks_lost"));
        assert_eq!(lost, play == "crash");
        bench.assert_no_processes_left();
        std::fs::read(run.join("checkpoints/step-000012/optimizer.safetensors")).unwrap()
    };
    assert!(trained("crash") == trained("well"));
}

#[test]
fn permanent_failures_end_the_run_with_a_message() {
    for (play, outcome, phrases) in [
        (
            "memory",
            Outcome::Starved,
            ["out of memory", "micro_batch_size"],
        ),
        ("bug", Outcome::Failed, ["rank 1: KeyError", "torch folder"]),
        (
            "old protocol",
            Outcome::Starved,
            ["worker 99", "engine check"],
        ),
        (
            "no ranks",
            Outcome::Starved,
            ["no module named nothing", "engine install torch"],
        ),
    ] {
        let bench = Bench::new(&[play, "well"]);
        let out = bench.train(&[]);
        let (found, message) = ending(&bench.events());
        assert_eq!(found, outcome, "{play}: {message} {}", text(&out.stderr));
        for phrase in phrases {
            assert!(message.contains(phrase), "{play}: {phrase}: {message}");
        }
        assert!(!message.contains('\u{1b}'));
        bench.assert_no_processes_left();
    }
}

#[test]
fn generations_without_progress_end_the_run() {
    let bench = Bench::new(&["crash", "crash", "crash", "crash", "crash"]);
    let out = bench.train(&[]);
    let (outcome, message) = ending(&bench.events());
    assert_eq!(outcome, Outcome::Starved, "{}", text(&out.stderr));
    assert!(
        message.contains("2 restarts got no further than step 5"),
        "{message}"
    );
    bench.assert_no_processes_left();
}

#[test]
fn a_non_finite_norm_ends_the_run_as_on_any_engine() {
    let bench = Bench::new(&["nan"]);
    let out = bench.train(&[]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
    let (outcome, message) = ending(&bench.events());
    assert_eq!(outcome, Outcome::Failed);
    assert!(
        message.contains("the gradient norm became NaN at step 4"),
        "{message}"
    );
}

#[test]
fn a_run_changes_its_engine_at_a_resume_and_logs_it() {
    let bench = Bench::new(&["well"]);
    let out = bench.train(&["--stop-after", "4"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let run = bench.run();
    let spec = std::fs::read_to_string(run.join("spec.yaml")).unwrap();
    let weights = std::fs::read(run.join("checkpoints/step-000004/model.safetensors")).unwrap();
    assert!(spec.contains("torch"));
    // The same spec with this program in the section.
    let at = spec.find("engine:").unwrap();
    let end = spec[at + 1..]
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .map(|line| line.len() + 1)
        .sum::<usize>();
    let first = spec[at..].find('\n').unwrap() + 1;
    let rest = &spec[at + first + end..];
    let candle = format!("{}engine:\n  candle: {{}}\n{rest}", &spec[..at]);
    std::fs::write(run.join("spec.yaml"), candle).unwrap();
    let out = bench.llmtui(&["train", "--resume", run.to_str().unwrap(), "--headless"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let warned = warnings(&bench.events());
    assert!(
        warned
            .iter()
            .any(|w| w.contains("engine candle instead of torch")),
        "{warned:?}"
    );
    // The resume started from the ranks' state.
    assert_eq!(
        std::fs::read(run.join("checkpoints/step-000004/model.safetensors")).unwrap(),
        weights
    );
}

#[test]
fn unsupported_features_of_ranks_are_reported_before_anything_starts() {
    let bench = Bench::new(&["well"]);
    for (setting, phrase) in [
        ("engine.torch.offload=true", "there is nothing to offload"),
        ("optimizer=soap", "adamw, adamw8bit, lion and muon only"),
        ("engine.torch.python=nowhere", "no Python found"),
    ] {
        let out = bench.train(&["-s", setting]);
        let printed = text(&out.stderr) + &text(&out.stdout);
        assert_ne!(out.status.code(), Some(0), "{setting}");
        assert!(printed.contains(phrase), "{setting}: {printed}");
    }
    let out = bench.llmtui(&["engine", "check"]);
    assert!(
        text(&out.stdout).contains("engine install torch"),
        "{}",
        text(&out.stdout)
    );
    let out = bench.llmtui(&["engine", "check", "--python", "venv"]);
    assert!(
        text(&out.stdout).contains("PyTorch 2.15.0"),
        "{}",
        text(&out.stdout)
    );
    let out = bench.llmtui(&["engine", "install", "torch", "--dry-run"]);
    assert!(!text(&out.stdout).contains("pip") || out.status.success());
}
