//! Pipelines as a script sees them: stages in order, stops, failures, resumes, the report of all.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

mod amended;
mod arguments;
mod checks;
mod eight_gpus;
mod judges;
mod order;
mod orphans;
mod plans;
mod stops;

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

const LONG: &str = "name: long
stages:
  - {name: base, train: smoke, set: {train.threads: 1}}
  - {name: more, train: smoke, set: {max_steps: 20000, checkpoint.every: 10, train.threads: 1}}
  - {name: exam, eval: {tasks: [fine.yaml], models: [base]}}
";
