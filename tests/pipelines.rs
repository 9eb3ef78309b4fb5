//! Pipelines as a script sees them: stages in order, stops, failures, resumes, the report of all.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use llmtui::base::clock::{Clock, SystemClock};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// With a pipeline in a file.
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

    /// Of every stage its state's word.
    fn words(&self) -> Vec<String> {
        let state = self.state();
        let stages = state["stages"].as_array().unwrap();
        let word = |stage: &Value| stage["status"].as_str().unwrap().to_string();
        stages.iter().map(word).collect()
    }

    /// The weights that a stage made.
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

#[test]
fn stages_follow_each_other_and_each_starts_from_the_one_before() {
    let place = Place::new(MINE);
    let planned = place.go(&["train", "mine.yaml", "--dry-run"]);
    assert_eq!(code(&planned), 0, "{}", err(&planned));
    assert!(out(&planned).contains("again") && out(&planned).contains("dry run"));
    assert!(!place.dir.path().join("runs").exists());

    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 4]);
    let said = out(&output);
    for word in [
        "stage 1 of 4: base (train)",
        "stage 4 of 4: report",
        "all stages done",
        "llmtui chat",
    ] {
        assert!(said.contains(word), "{word}: {said}");
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

    // All is done: nothing is done again. One stage can be.
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
fn a_stopped_pipeline_goes_on_to_the_same_weights() {
    let whole = Place::new(MINE);
    let skipped = ["--headless", "--skip", "gguf", "--skip", "report"];
    let output = whole.go(&[&["train", "mine.yaml"][..], &skipped].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(whole.words(), ["done", "done", "skipped", "skipped"]);

    let place = Place::new(MINE);
    let mut command = place.command(&[&["train", "mine.yaml"][..], &skipped].concat());
    let mut process = command.stdout(Stdio::null()).spawn().unwrap();
    // Its second stage has a checkpoint: then it is asked to stop.
    let clock = SystemClock::new();
    let saved = || {
        let runs = std::fs::read_dir(place.dir.path().join("runs"))
            .into_iter()
            .flatten()
            .flatten();
        let again = |run: &std::fs::DirEntry| run.file_name().to_string_lossy().contains("again");
        let run = runs.into_iter().find(again);
        run.is_some_and(|run| {
            let folder = std::fs::read_dir(run.path().join("checkpoints"));
            folder
                .into_iter()
                .flatten()
                .flatten()
                .any(|c| c.file_name().to_string_lossy().starts_with("step-"))
        })
    };
    while !saved() {
        assert!(clock.elapsed() < Duration::from_secs(120), "no checkpoint");
        assert!(process.try_wait().unwrap().is_none(), "it ended");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
    // On a fast machine the stage may have been over.
    let word = place.words()[1].clone();
    assert!(["stopped", "done"].contains(&word.as_str()), "{word}");

    // A single run that was stopped later goes first; after it the pipeline.
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
fn a_stage_that_fails_is_named_and_can_be_mended() {
    let place = Place::new(
        "stages:
  - {name: base, train: arithmetic, set: {max_steps: 5, micro_batch_size: 4, eval.batches: 1}}
  - {name: sft, train: arithmetic, set: {max_steps: 5, micro_batch_size: 4, eval.batches: 1,
      data.sources: [{synthetic: {sort: {}}, rows: 200}]}}
",
    );
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 2, "{}{}", out(&output), err(&output));
    let said = err(&output);
    assert!(
        said.contains("stage 2 (sft) failed") && said.contains("not in the vocabulary"),
        "{said}"
    );
    assert!(said.contains("llmtui train --resume"), "{said}");
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
    let sources = "sft.data.sources=[{synthetic: {arithmetic: {operations: [add]}}, rows: 200}]";
    let mended = place.go(&["train", "--resume", "mine", "--headless", "-s", sources]);
    assert_eq!(code(&mended), 0, "{}{}", out(&mended), err(&mended));
    assert_eq!(place.words(), ["done", "done"]);
}

#[test]
fn what_does_not_fit_pipelines_is_refused_before_anything_starts() {
    let place = Place::new(MINE);
    for (arguments, expected) in [
        (vec!["train", "mine.yaml", "--skip", "nope"], "has no stage"),
        (
            vec!["train", "mine.yaml", "-s", "max_steps=3"],
            "of which stage?",
        ),
        (
            vec!["train", "mine.yaml", "-s", "base.nope=3"],
            "stage base",
        ),
        (
            vec!["train", "mine.yaml", "--stop-after", "3"],
            "--stop-after is for one run",
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
