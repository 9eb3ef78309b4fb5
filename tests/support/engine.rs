//! The real program as the engine of a very small model, and the conditions that tests wait for.

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::base::paths::Env;
use llmtui::link::launch::{EngineOptions, Launcher};
use llmtui::link::{Link, open};
use llmtui::run::RunDir;
use llmtui::run::index::summarize;
use llmtui::spec::{SpecSources, load};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use std::time::Duration;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");
/// No wait here takes longer, however busy the machine is.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A run of a very small model, and its engines. Those still alive at the end are killed.
pub struct Place {
    pub run: RunDir,
    pub launcher: Launcher,
    dir: tempfile::TempDir,
}

impl Place {
    /// `words` are `-s` settings on top of the small model.
    pub fn new(words: &[&str]) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let small = [
            "n_layer=1",
            "n_head=1",
            "d_model=8",
            "seq_len=8",
            "micro_batch_size=1",
            "max_steps=1000000",
            "threads=1",
            "eval_every=0",
            "sample_every=0",
            "save_every=50",
            "preflight.enabled=false",
        ];
        let words: Vec<String> = small.iter().chain(words).map(|w| w.to_string()).collect();
        let sources = SpecSources {
            config_dir: None,
            project_dir: dir.path().into(),
            ..SpecSources::default()
        };
        let loaded = load("quickstart", &words, &sources).unwrap();
        let run = RunDir::create(
            &dir.path().join("runs"),
            "small",
            &loaded.spec.to_yaml(),
            &loaded.asked,
            &SystemClock::new(),
        )
        .unwrap();
        let env = Env {
            // Where the program looks if XDG_RUNTIME_DIR is this folder.
            runtime_dir: dir.path().join("llmtui"),
            ..Env::default()
        };
        let launcher = Launcher {
            program: PROGRAM.into(),
            env,
        };
        Place { run, launcher, dir }
    }

    pub fn start(&self, options: EngineOptions) {
        self.launcher.start_detached(&self.run, &options).unwrap();
    }

    pub fn join(&self) -> Link {
        open(&self.run, &self.launcher.env).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = self.run.header().unwrap().pid;
        kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
    }

    pub fn step(&self) -> u64 {
        summarize(&self.run).unwrap().step
    }

    pub fn await_step(&self, step: u64) {
        until("a step", || self.step() >= step);
    }

    pub fn await_end(&self) {
        until("the engine's end", || !self.run.is_alive());
    }

    /// The program with this place's directories.
    pub fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .args(arguments)
            .arg("--runs-dir")
            .arg(self.dir.path().join("runs"));
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.run.is_alive() {
            self.signal(Signal::KILL);
        }
    }
}

pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !happened() {
        assert!(clock.elapsed() < TIMEOUT, "waited too long for {what}");
        llmtui::base::clock::pause(Duration::from_millis(20));
    }
}
