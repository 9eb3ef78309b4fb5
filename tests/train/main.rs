//! `llmtui train`, `preflight` and `bench` as a script sees them: lines, events, exit codes, files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

mod branch;
mod context;
mod dry_run;
mod gguf;
mod output;
mod preference;
mod resume;
mod saved;
mod score;

use llmtui::run::RunDir;
use llmtui::wire::{Envelope, decode_envelope};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");

/// The working directory of the program, with its runs and sockets.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .stdin(Stdio::null());
        command
    }

    fn go(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Trains the smoke preset with a short validation split, with the settings `words`.
    fn train(&self, words: &[&str], options: &[&str]) -> Output {
        let mut arguments = vec!["train", "smoke", "-s", "data.val_fraction=0.01"];
        arguments.extend(words.iter().flat_map(|w| ["-s", w]));
        arguments.extend(options);
        self.go(&arguments)
    }

    fn run(&self) -> RunDir {
        let runs = std::fs::read_dir(self.dir.path().join("runs")).unwrap();
        RunDir::open(&runs.last().unwrap().unwrap().path()).unwrap()
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

fn events(text: &str) -> Vec<Envelope> {
    text.lines().map(|l| decode_envelope(l).unwrap()).collect()
}
