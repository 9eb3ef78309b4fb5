//! Pipelines as a script sees them: stages in order, stops, failures, resumes, the report of all.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

mod amended;
mod checks;
mod orphans;
mod plans;

use llmtui::base::clock::{Clock, SystemClock};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// A folder with a pipeline in a file.
    fn new(pipeline: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mine.yaml"), pipeline).unwrap();
        Place { dir }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmtui"));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .stdin(Stdio::null());
        command
    }

    fn go(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn folder(&self) -> PathBuf {
        let mut folders = std::fs::read_dir(self.dir.path().join("runs/pipelines")).unwrap();
        folders.next().unwrap().unwrap().path()
    }

    fn state(&self) -> Value {
        let text = std::fs::read_to_string(self.folder().join("state.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The state of every stage, as its word.
    fn words(&self) -> Vec<String> {
        let state = self.state();
        let stages = state["stages"].as_array().unwrap();
        let word = |stage: &Value| stage["status"].as_str().unwrap().to_string();
        stages.iter().map(word).collect()
    }

    /// The weights that a stage produced.
    fn weights(&self, stage: usize) -> Vec<u8> {
        let made = self.state()["stages"][stage]["made"]
            .as_str()
            .unwrap()
            .to_string();
        std::fs::read(PathBuf::from(made).join("model.safetensors")).unwrap()
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const MINE: &str = "name: mine
about: A small world, twice.
stages:
  - {name: base, train: smoke, set: {data.val_fraction: 0.01, train.threads: 1}}
  - {name: again, train: {extends: smoke}, set: {data.val_fraction: 0.01, train.threads: 1, checkpoint.every: 5, seed: 7}}
  - {name: gguf, export: {format: gguf, dtype: f32}}
  - {name: report, report: {}}
";

/// Later stages build on its checkpoint: that it is useless must not be visible only in its log.
#[test]
fn a_diverged_stage_is_reported_with_the_command_to_redo_it() {
    let place = Place::new(
        "name: hot\nstages:\n  - {name: base, train: quickstart, set: {max_steps: 60, lr: 3, preflight.enabled: false}}\n",
    );
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let printed = err(&output);
    assert!(printed.contains("stage base ended DIVERGED"), "{printed}");
    assert!(
        printed.contains("--redo base -s base.KEY=VALUE"),
        "{printed}"
    );
    let table = out(&output);
    assert!(table.contains("done, DIVERGED"), "{table}");
    let listed = place.go(&["runs"]);
    assert!(out(&listed).contains("done, DIVERGED"), "{}", out(&listed));
}

#[test]
fn stages_run_in_order_and_each_starts_from_the_previous_one() {
    let place = Place::new(MINE);
    let planned = place.go(&["train", "mine.yaml", "--dry-run"]);
    assert_eq!(code(&planned), 0, "{}", err(&planned));
    assert!(out(&planned).contains("again") && out(&planned).contains("dry run"));
    assert!(!place.dir.path().join("runs").exists());

    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 4]);
    let printed = out(&output);
    for word in [
        "stage 1 of 4: base (train)",
        "stage 4 of 4: report",
        "all stages done",
        "llmtui chat",
    ] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    let state = place.state();
    let run = |stage: usize| state["stages"][stage]["run"].as_str().unwrap().to_string();
    let header =
        std::fs::read_to_string(place.dir.path().join("runs").join(run(1)).join("run.json"));
    let header: Value = serde_json::from_str(&header.unwrap()).unwrap();
    assert_eq!(
        (&header["parent"]["run"], &header["name"]),
        (&Value::from(run(0)), &Value::from("mine-again"))
    );
    assert_ne!(place.weights(0), place.weights(1));

    let report = std::fs::read_to_string(place.folder().join("report.html")).unwrap();
    assert!(
        report.contains("mine-base")
            && report.contains("mine-again")
            && !report.contains("src=\"http")
    );
    let exported = std::fs::read_dir(place.folder().join("gguf")).unwrap();
    assert!(
        exported
            .flatten()
            .any(|file| file.file_name().to_string_lossy().ends_with(".gguf"))
    );
    let listed = out(&place.go(&["runs"]));
    assert!(listed.contains("finished, 4 of 4 stages"), "{listed}");

    // All is done: nothing is repeated. A single stage can be.
    let again = place.go(&["train", "--resume", "mine", "--headless"]);
    assert_eq!(code(&again), 0, "{}", err(&again));
    assert!(!out(&again).contains("stage 1 of 4"));
    let shown = place.go(&["train", "--resume", "mine", "--dry-run", "--redo", "base"]);
    assert!(out(&shown).contains("nothing started"), "{}", out(&shown));
    assert_eq!(place.words(), ["done"; 4], "a dry run changes nothing");
    let redone = place.go(&["train", "--resume", "mine", "--headless", "--redo", "gguf"]);
    assert!(out(&redone).contains("stage 3 of 4: gguf") && !out(&redone).contains("stage 4"));
    let markdown = place.go(&["report", "mine", "--to", "report.md"]);
    assert_eq!(code(&markdown), 0, "{}", err(&markdown));
    let markdown = std::fs::read_to_string(place.dir.path().join("report.md")).unwrap();
    assert!(markdown.starts_with("# mine\n") && markdown.contains("again (train)"));
}

#[test]
fn a_stopped_pipeline_resumes_to_the_same_weights() {
    let whole = Place::new(MINE);
    let skipped = ["--headless", "--skip", "gguf", "--skip", "report"];
    let output = whole.go(&[&["train", "mine.yaml"][..], &skipped].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(whole.words(), ["done", "done", "skipped", "skipped"]);

    let place = Place::new(MINE);
    let words = [&["train", "mine.yaml"][..], &skipped].concat();
    place.stop_when_saved(&words, "again");
    // On a fast machine the stage may have finished.
    let word = place.words()[1].clone();
    assert!(["stopped", "done"].contains(&word.as_str()), "{word}");

    // A single run that was stopped later is resumed first; after it the pipeline.
    let words = [
        "-s",
        "data.val_fraction=0.01",
        "--headless",
        "--stop-after",
        "3",
    ];
    let single = place.go(&[&["train", "smoke"][..], &words].concat());
    assert_eq!(code(&single), 0, "{}", err(&single));
    let first = out(&place.go(&["train", "--resume", "auto", "--headless"]));
    assert!(
        first.contains("step 20/20") && !first.contains("stage "),
        "{first}"
    );
    let output = place.go(&["train", "--resume", "auto", "--headless"]);
    if word == "stopped" {
        assert_eq!(code(&output), 0, "{}", err(&output));
        assert!(!out(&output).contains("stage 1 of 4"), "{}", out(&output));
    }
    assert_eq!(place.words(), ["done", "done", "skipped", "skipped"]);
    assert!(
        place.weights(1) == whole.weights(1),
        "the same bytes as without a stop"
    );
}

#[test]
fn a_failed_stage_is_named_and_can_be_fixed() {
    let place = Place::new(
        "stages:
  - {name: base, train: arithmetic, set: {max_steps: 5, micro_batch_size: 4, eval.batches: 1}}
  - {name: sft, train: arithmetic, set: {max_steps: 5, micro_batch_size: 4, eval.batches: 1, eval.tasks: [gone.yaml]}}
",
    )
    .with_tasks();
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 2, "{}{}", out(&output), err(&output));
    let printed = err(&output);
    assert!(
        printed.contains("stage 2 (sft) failed") && printed.contains("gone.jsonl"),
        "{printed}"
    );
    assert!(printed.contains("llmtui train --resume"), "{printed}");
    assert_eq!(place.words(), ["done", "failed"]);

    let wrong = place.go(&[
        "train",
        "--resume",
        "mine",
        "--headless",
        "-s",
        "base.max_steps=6",
    ]);
    assert!(
        code(&wrong) == 2 && err(&wrong).contains("--redo base"),
        "{}",
        err(&wrong)
    );
    let tasks = "sft.eval.tasks=[]";
    let mended = place.go(&["train", "--resume", "mine", "--headless", "-s", tasks]);
    assert_eq!(code(&mended), 0, "{}{}", out(&mended), err(&mended));
    assert_eq!(place.words(), ["done", "done"]);
}

#[test]
fn invalid_arguments_for_pipelines_are_rejected_before_anything_starts() {
    let place = Place::new(MINE);
    for (arguments, expected) in [
        (vec!["train", "mine.yaml", "--skip", "nope"], "has no stage"),
        (
            vec!["train", "mine.yaml", "-s", "max_steps=3"],
            "which stage?",
        ),
        (
            vec!["train", "mine.yaml", "-s", "base.nope=3"],
            "stage base",
        ),
        (
            vec!["train", "mine.yaml", "--stop-after", "3"],
            "--stop-after applies to one run",
        ),
        (
            vec!["train", "smoke", "--skip", "base"],
            "belong to pipelines",
        ),
    ] {
        let output = place.go(&arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", err(&output));
        assert!(
            err(&output).contains(expected),
            "{arguments:?}: {}",
            err(&output)
        );
        assert!(!place.dir.path().join("runs").exists(), "{arguments:?}");
    }
}

/// The recorded machine with eight H100.
fn eight() -> String {
    format!("{}/tests/machines/eight.json", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_eight_gpu_speedrun_is_planned_as_a_whole_without_data() {
    let place = Place::new(MINE);
    let planned = |arguments: &[&str]| {
        let mut command = place.command(&["train", "speedrun-8gpu", "--dry-run"]);
        // No hub is reachable: any request to it would fail.
        command
            .args(arguments)
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .output()
            .unwrap()
    };
    let there = planned(&["--hardware", &eight()]);
    assert_eq!(code(&there), 0, "{}", err(&there));
    let printed = out(&there);
    for word in [
        "memory of each",
        "18,000",
        "9.44B",
        "dpo",
        "on 8 × NVIDIA H100 80GB HBM3",
        "price rough",
        "not in it: downloads and exam",
        "their data at the hub were not read: base, mid, sft, dpo",
        "dry run: nothing started",
    ] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    let dollars = |line: &str| {
        line.split('$')
            .nth(1)
            .and_then(|n| n.split_whitespace().next()?.parse::<f64>().ok())
    };
    let base = printed
        .lines()
        .find(|line| line.starts_with("base "))
        .unwrap();
    // 6 · 482M · 9.44B FLOPs at 40 % of 989 TFLOP/s and $3.00 an hour.
    assert!((50.0..70.0).contains(&dollars(base).unwrap()), "{base}");
    assert!(!place.dir.path().join("runs").exists());

    // Without visible GPUs memory is known, time and price are not.
    let empty = planned(&["--hardware", &eight().replace("eight", "cpu")]);
    assert_eq!(code(&empty), 0, "{}", err(&empty));
    assert!(
        out(&empty).contains("for 8 GPUs; this machine has none"),
        "{}",
        out(&empty)
    );
    // Epochs over unread data do not determine steps.
    let epochs = planned(&["--hardware", &eight(), "-s", "sft.epochs=1"]);
    let printed = format!("{}{}", out(&epochs), err(&epochs));
    assert!(
        printed.contains("steps and time are unknown: sft"),
        "{printed}"
    );
    // What is too large for a GPU is rejected in terms of the spec.
    let large = planned(&[
        "--hardware",
        &eight(),
        "-s",
        "base.train.micro_batch_size=1024",
    ]);
    assert_eq!(code(&large), 2);
    assert!(
        err(&large).contains("stage base") && err(&large).contains("on each of 8 GPUs"),
        "{}",
        err(&large)
    );
}

#[test]
fn ranks_without_gpus_are_reported_before_a_pipeline_starts() {
    let place = Place::new(MINE);
    let cpu = eight().replace("eight", "cpu");
    let output = place.go(&["train", "speedrun-8gpu", "--headless", "--hardware", &cpu]);
    assert_eq!(code(&output), 2, "{}", out(&output));
    assert!(
        err(&output).contains("8 PyTorch ranks need one GPU each"),
        "{}",
        err(&output)
    );
    assert!(!place.dir.path().join("runs").exists());
}

/// The shipped stages for eight GPUs, scaled down to this processor, with rows in the formats of their data sets.
#[test]
fn the_eight_gpu_speedrun_runs_scaled_down_on_rows_in_its_formats() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/pipelines/speedrun-8gpu.yaml");
    let mut text = String::new();
    for line in std::fs::read_to_string(shipped).unwrap().lines() {
        let local = [
            ("fineweb", "web"),
            ("smoltalk", "chats"),
            ("gsm8k", "sums"),
            ("ultrafeedback", "pairs"),
        ];
        let source = local
            .iter()
            .find(|(name, _)| line.contains(name) && line.contains("- {hub"));
        let line = match (source, line.trim_start()) {
            (Some((_, file)), _) => {
                let rest = line.split_once("format: ").unwrap().1;
                format!("          - {{path: {file}.jsonl, format: {rest}")
            }
            (None, words) if words.starts_with("sources: ['HuggingFaceFW") => {
                "        sources: [{path: web.jsonl}]".into()
            }
            (None, words) if words.starts_with("engine:") || words.starts_with('#') => continue,
            (None, words) if words.starts_with("eval: {tasks") => {
                "    eval: {tasks: [made_sort], limit: 2, models: [base, mid, sft, dpo]}".into()
            }
            _ => line.to_string(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    for (from, to) in [
        ("vocab_size: 65536", "vocab_size: 400"),
        ("n_layer: 20", "n_layer: 1"),
        ("n_head: 10", "n_head: 2"),
        ("d_model: 1280", "d_model: 16"),
        ("d_ff: 3456", "d_ff: 32"),
        ("seq_len: 2048", "seq_len: 64"),
        ("grad_accum_steps: 2", "grad_accum_steps: 1"),
        ("micro_batch_size: 128", "micro_batch_size: 2"),
        ("micro_batch_size: 64", "micro_batch_size: 2"),
        ("micro_batch_size: 32", "micro_batch_size: 2"),
        ("val_fraction: 0.001", "val_fraction: 0.05"),
        ("val_fraction: 0.005", "val_fraction: 0.05"),
        ("val_fraction: 0.01\n", "val_fraction: 0.05\n"),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let place = Place::new(&text);
    let write = |name: &str, row: &dyn Fn(usize) -> Value| {
        let rows = (0..120).map(|i| row(i).to_string() + "\n");
        std::fs::write(place.dir.path().join(name), rows.collect::<String>()).unwrap();
    };
    let words = |i: usize| {
        format!(
            "the {i} birds flew over {} old houses and sat down",
            i * 7 % 31
        )
    };
    let turns = |i: usize, answer: String| serde_json::json!([{"role": "user", "content": words(i)}, {"role": "assistant", "content": answer}]);
    write(
        "web.jsonl",
        &|i| serde_json::json!({"text": words(i).repeat(4), "id": i}),
    );
    write(
        "chats.jsonl",
        &|i| serde_json::json!({"messages": turns(i, words(i + 1)), "source": "x"}),
    );
    write(
        "sums.jsonl",
        &|i| serde_json::json!({"question": words(i), "answer": format!("so many\n#### {i}")}),
    );
    write(
        "pairs.jsonl",
        &|i| serde_json::json!({"chosen": turns(i, words(i + 2)), "rejected": turns(i, "no".into()), "score_chosen": 8.0, "score_rejected": 2.0}),
    );
    let mut arguments = vec!["train", "mine.yaml", "--headless"];
    let sets: Vec<String> = ["base", "mid", "sft", "dpo"]
        .iter()
        .flat_map(|stage| {
            [
                "train.max_steps=2",
                "schedule.cosine.warmup_steps=1",
                "eval.every=2",
                "checkpoint.every=2",
                "train.threads=1",
            ]
            .map(|set| format!("{stage}.{set}"))
        })
        .collect();
    sets.iter().for_each(|set| arguments.extend(["-s", set]));
    let output = place.go(&arguments);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 8]);
}

const JUDGED: &str = "name: judged
stages:
  - {name: base, train: grpo-sort, set: {max_steps: 2, rollout.cold_start_steps: 1, rollout.group_size: 2, micro_batch_size: 4,
      rollout.side_by_side: 4, eval.every: 2, eval.batches: 1, checkpoint.every: 2, sample.every: 0, train.threads: 1}}
  - {name: rm, train: reward-demo, from: scratch, set: {max_steps: 2, micro_batch_size: 4, eval.every: 2, eval.batches: 1,
      checkpoint.every: 2, schedule.cosine.warmup_steps: 1, train.threads: 1}}
  - {name: grpo, train: grpo-sort, from: base, set: {max_steps: 2, rollout.cold_start_steps: 0, rollout.group_size: 2,
      micro_batch_size: 4, rollout.side_by_side: 4, eval.every: 2, eval.batches: 1, checkpoint.every: 2, sample.every: 0,
      train.threads: 1, rewards: [{model: {path: rm}, name: judge}]}}
";

#[test]
fn a_reward_model_of_one_stage_judges_the_answers_of_another() {
    let place = Place::new(JUDGED);
    let planned = place.go(&["train", "mine.yaml", "--dry-run"]);
    assert_eq!(code(&planned), 0, "{}{}", out(&planned), err(&planned));
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 3]);
    let spec = |place: &Place| {
        let run = place.state()["stages"][2]["run"]
            .as_str()
            .unwrap()
            .to_string();
        let folder = place.dir.path().join("runs").join(run);
        let events = std::fs::read_to_string(folder.join("events.jsonl")).unwrap();
        assert!(events.contains("rewards/judge"), "it judged");
        std::fs::read_to_string(folder.join("spec.yaml")).unwrap()
    };
    let made = |place: &Place| {
        place.state()["stages"][1]["made"]
            .as_str()
            .unwrap()
            .to_string()
    };
    let first = made(&place);
    assert!(spec(&place).contains(&first), "{}", spec(&place));
    // If retrained, it is a new run; when the next stage is redone, it uses that one too.
    let redone = place.go(&[
        "train",
        "--resume",
        "judged",
        "--headless",
        "--redo",
        "rm",
        "--redo",
        "grpo",
    ]);
    assert_eq!(code(&redone), 0, "{}{}", out(&redone), err(&redone));
    let second = made(&place);
    assert_ne!(first, second);
    assert!(spec(&place).contains(&second) && !spec(&place).contains(&first));
}

#[test]
fn a_reward_model_out_of_order_is_rejected_before_anything_starts() {
    let place = Place::new(JUDGED);
    let write = |from: &str, to: &str| {
        assert!(JUDGED.contains(from), "{from}");
        std::fs::write(place.dir.path().join("mine.yaml"), JUDGED.replace(from, to)).unwrap();
    };
    let refused = |arguments: &[&str], says: &str| {
        let output = place.go(&[&["train", "mine.yaml", "--headless"], arguments].concat());
        assert_eq!(code(&output), 2, "{}{}", out(&output), err(&output));
        assert!(err(&output).contains(says), "{says}: {}", err(&output));
        assert!(!place.dir.path().join("runs").exists(), "{says}");
    };
    refused(&["--skip", "rm"], "needs the reward model of rm");
    refused(
        &["-s", "base.rewards=[{model: {path: rm}}]"],
        "stage rm comes after it",
    );
    write("path: rm", "path: mr");
    refused(&[], "\"mr\" is neither an earlier training stage");
    write("path: rm", "path: base");
    refused(&[], "stage base trains a language model");
    write("train: grpo-sort, from: base", "train: grpo-sort");
    refused(&[], "it starts from rm, a reward model");
}

const LONG: &str = "name: long
stages:
  - {name: base, train: smoke, set: {train.threads: 1}}
  - {name: more, train: smoke, set: {max_steps: 20000, checkpoint.every: 10, train.threads: 1}}
  - {name: exam, eval: {tasks: [fine.yaml], models: [base]}}
";

impl Place {
    /// `fine.yaml`, a task that the models of `smoke` can be evaluated on, and `gone.yaml`, whose rows are missing.
    fn with_tasks(self) -> Place {
        for (name, rows) in [("fine", "rows.jsonl"), ("gone", "gone.jsonl")] {
            let text = format!(
                "name: {name}\nversion: 1\nsummary: s\nkind: text\nsource: {rows}\nprompt: '{{{{ text }}}}'\n"
            );
            std::fs::write(self.dir.path().join(format!("{name}.yaml")), text).unwrap();
        }
        let rows = "{\"text\": \"the king\"}\n{\"text\": \"and the queen\"}\n";
        std::fs::write(self.dir.path().join("rows.jsonl"), rows).unwrap();
        self
    }

    /// Starts a pipeline and requests a stop once the run called `name` has a checkpoint.
    fn stop_when_saved(&self, args: &[&str], name: &str) {
        let mut process = self.command(args).stdout(Stdio::null()).spawn().unwrap();
        let clock = SystemClock::new();
        let saved = || {
            let runs = std::fs::read_dir(self.dir.path().join("runs"));
            let mut runs = runs.into_iter().flatten().flatten();
            let run = runs.find(|run| run.file_name().to_string_lossy().contains(name));
            let steps = run.map(|run| std::fs::read_dir(run.path().join("checkpoints")));
            let mut steps = steps.into_iter().flatten().flatten().flatten();
            steps.any(|step| step.file_name().to_string_lossy().starts_with("step-"))
        };
        while !saved() {
            assert!(clock.elapsed() < Duration::from_secs(120), "no checkpoint");
            assert!(process.try_wait().unwrap().is_none(), "it ended");
            llmtui::base::clock::pause(Duration::from_millis(5));
        }
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(0));
    }

    /// The run of a stage.
    fn run(&self, stage: usize) -> PathBuf {
        let state = self.state();
        let id = state["stages"][stage]["run"].as_str().unwrap();
        self.dir.path().join("runs").join(id)
    }

    /// Trains the pipeline until its second stage has a checkpoint, then stops it.
    fn stop_in_the_second(&self) {
        self.stop_when_saved(&["train", "mine.yaml", "--headless"], "more");
        assert_eq!(self.words(), ["done", "stopped", "waiting"]);
    }
}

#[test]
fn a_stopped_stage_accepts_another_last_step_and_nothing_else() {
    let place = Place::new(LONG).with_tasks();
    place.stop_in_the_second();
    let asked = || std::fs::read_to_string(place.folder().join("pipeline.yaml")).unwrap();
    let before = asked();
    for extra in [&["--headless"][..], &["--dry-run"]] {
        let words = ["train", "--resume", "long", "-s", "more.lr=1e-5"];
        let refused = place.go(&[&words[..], extra].concat());
        assert_eq!(code(&refused), 2, "{}{}", out(&refused), err(&refused));
        let printed = err(&refused);
        assert!(
            printed.contains("stage more") && printed.contains("--redo more"),
            "{printed}"
        );
        assert_eq!(asked(), before, "it is not recorded");
    }
    let newest = || {
        let steps = std::fs::read_dir(place.run(1).join("checkpoints")).unwrap();
        let step = |name: String| name.strip_prefix("step-")?.parse::<u64>().ok();
        let steps = steps.flatten();
        steps
            .filter_map(|s| step(s.file_name().to_string_lossy().into_owned()))
            .max()
            .unwrap()
    };
    let words = [
        "train",
        "--resume",
        "long",
        "-s",
        "more.max_steps=5",
        "--headless",
    ];
    let short = place.go(&words);
    assert_eq!(code(&short), 2, "{}", out(&short));
    let printed = err(&short);
    assert!(
        printed.contains("nothing is left") && printed.contains("-s more.max_steps="),
        "{printed}"
    );
    let last = newest() + 10;
    let set = format!("more.max_steps={last}");
    let output = place.go(&["train", "--resume", "long", "-s", &set, "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!((place.words(), newest()), (vec!["done".into(); 3], last));
}

#[test]
fn a_failed_stage_keeps_its_cause_and_can_be_fixed() {
    let place = Place::new(LONG).with_tasks();
    let text = "name: sad\nstages:\n  - {name: base, train: smoke, set: {train.threads: 1}}\n  \
        - {name: exam, eval: {tasks: [gone.yaml], limit: 2}}\n";
    std::fs::write(place.dir.path().join("mine.yaml"), text).unwrap();
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 2, "{}{}", out(&output), err(&output));
    let state = place.state();
    let message = state["stages"][1]["message"].as_str().unwrap();
    assert!(message.contains("gone.jsonl"), "{message}");
    // Reported once, by the stage.
    let printed = err(&output);
    assert_eq!(printed.matches("gone.jsonl").count(), 1, "{printed}");
    assert!(
        printed.contains("stage 2 (exam) failed\n  try: "),
        "{printed}"
    );
    let listed = out(&place.go(&["runs"]));
    assert!(listed.contains("gone.jsonl"), "{listed}");

    let set = "exam.tasks=[fine.yaml]";
    let output = place.go(&["train", "--resume", "sad", "-s", set, "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 2]);

    // Lists show it next to runs: commands about a run explain what it is, and it is deleted as a whole.
    for verb in ["logs", "diagnose", "gc", "plan", "eval", "chat"] {
        let refused = place.go(&[verb, "sad"]);
        assert_eq!(code(&refused), 2, "{verb}: {}", out(&refused));
        let printed = err(&refused);
        assert!(
            printed.contains("is a pipeline") && printed.contains("(base)"),
            "{verb}: {printed}"
        );
    }
    // A disk without locks is a machine error, as when a run's folder cannot be deleted.
    let lock = place.folder().join("lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let kept = place.go(&["rm", "--yes", "sad"]);
    assert_eq!(code(&kept), 3, "{}", err(&kept));
    assert_eq!(place.words(), ["done"; 2]);
    std::fs::remove_dir(&lock).unwrap();
    let gone = place.go(&["rm", "--yes", "sad"]);
    assert_eq!(code(&gone), 0, "{}", err(&gone));
    let left = std::fs::read_dir(place.dir.path().join("runs/pipelines")).unwrap();
    assert_eq!(left.count(), 0);
    let runs = std::fs::read_dir(place.dir.path().join("runs")).unwrap();
    let names: Vec<String> = runs
        .flatten()
        .map(|run| run.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!names.iter().any(|name| name.contains("sad")), "{names:?}");
}

#[test]
fn only_folders_of_pipelines_are_deleted() {
    let place = Place::new(LONG);
    std::fs::write(place.dir.path().join("pipeline.yaml"), LONG).unwrap();
    let kept = place.go(&["rm", "--yes", "."]);
    assert_eq!(code(&kept), 2, "{}", out(&kept));
    assert!(place.dir.path().join("mine.yaml").exists());
}

#[test]
fn commands_for_a_single_spec_report_that_a_name_is_a_pipeline() {
    let place = Place::new(LONG);
    for verb in ["plan", "ladder", "preflight"] {
        for word in ["speedrun", "mine.yaml"] {
            let refused = place.go(&[verb, word]);
            assert_eq!(code(&refused), 2, "{verb}: {}", out(&refused));
            let printed = err(&refused);
            assert!(printed.contains("is a pipeline"), "{verb}: {printed}");
        }
    }
}
