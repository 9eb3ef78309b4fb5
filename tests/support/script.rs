//! An engine that plays a script of events instead of training, and a place in a temporary directory for its run.

use llmtui::base::clock::SystemClock;
use llmtui::base::paths::Env;
use llmtui::link::{EngineIo, Host};
use llmtui::run::RunDir;
use llmtui::wire::{Command, Event, Num, Outcome, Request};
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// A run and a runtime directory that are removed with the test.
pub struct Place {
    pub run: RunDir,
    pub env: Env,
    _dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place::below("runs")
    }

    pub fn below(folder: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join(folder);
        let run = RunDir::create(&runs, "script", "", "", &SystemClock::new()).unwrap();
        let env = Env {
            runtime_dir: dir.path().join("sockets"),
            ..Env::default()
        };
        Place {
            run,
            env,
            _dir: dir,
        }
    }

    /// An engine thread that plays `script` as this place's run.
    pub fn host(&self, script: Script) -> Host<Outcome> {
        let claim = self.run.claim().unwrap();
        Host::start(&self.run, claim, None, move |io| play(&script, io)).unwrap()
    }
}

/// What the engine plays.
#[derive(Debug, Clone)]
pub struct Script {
    steps: u64,
    /// Wait for a command after this step.
    hold_at: Option<u64>,
    hold_at_end: bool,
    /// Never read commands; wait for the stop flag.
    ignoring_commands: bool,
}

impl Script {
    pub fn steps(steps: u64) -> Script {
        Script {
            steps,
            hold_at: None,
            hold_at_end: false,
            ignoring_commands: false,
        }
    }

    pub fn release_after(mut self, step: u64) -> Script {
        self.hold_at = Some(step);
        self
    }

    pub fn hold_at_end(mut self) -> Script {
        self.hold_at_end = true;
        self
    }

    pub fn ignoring_commands(mut self) -> Script {
        self.ignoring_commands = true;
        self
    }

    /// Ends a wait.
    pub fn go() -> Request {
        Request {
            id: 1,
            command: Command::Resume,
        }
    }
}

pub fn hello() -> Event {
    Event::Hello {
        run: "script".into(),
        engine: "0".into(),
        pid: std::process::id(),
        host: String::new(),
    }
}

/// Plays the script to its end, to a stop command or to the stop flag.
pub fn play(script: &Script, mut io: EngineIo) -> Outcome {
    io.emitter.emit(hello());
    let mut step = 0;
    let mut outcome = Outcome::Completed;
    while step < script.steps && outcome == Outcome::Completed {
        step += 1;
        io.emitter.emit(stepped(step));
        if script.hold_at == Some(step) {
            outcome = wait(&mut io);
        }
        if io.stop.load(Ordering::Relaxed) {
            outcome = Outcome::Stopped;
        }
    }
    if script.hold_at_end && outcome == Outcome::Completed {
        outcome = wait(&mut io);
    }
    while script.ignoring_commands && !io.stop.load(Ordering::Relaxed) {
        llmtui::base::clock::pause(Duration::from_millis(5));
    }
    io.emitter.emit(finished(outcome, step));
    outcome
}

/// Answers commands until one continues or stops the run.
fn wait(io: &mut EngineIo) -> Outcome {
    loop {
        let request = match io.commands.recv_timeout(Duration::from_millis(20)) {
            Ok(request) => request,
            Err(RecvTimeoutError::Timeout) if io.stop.load(Ordering::Relaxed) => {
                return Outcome::Stopped;
            }
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Outcome::Completed,
        };
        let id = request.id;
        match request.command {
            Command::Resume => return Outcome::Completed,
            Command::Stop { .. } => return Outcome::Stopped,
            Command::Note { .. } => io.emitter.emit(Event::Accepted { id }),
            _ => io.emitter.emit(Event::Rejected {
                id,
                why: "not in the script".into(),
            }),
        }
    }
}

fn stepped(step: u64) -> Event {
    Event::Stepped {
        step,
        tokens: step * 768,
        values: [
            ("train/loss", 4.0 / step as f64),
            ("grad_norm", 1.25),
            ("lr", 1e-3),
            ("entropy", 2.5),
            ("tok_per_sec", 123_456.789),
        ]
        .map(|(id, x)| (id.to_string(), Num(x)))
        .into(),
    }
}

fn finished(outcome: Outcome, step: u64) -> Event {
    Event::Finished {
        outcome,
        step,
        tokens: step * 768,
        val_loss: None,
        best: None,
        train_loss: None,
        seconds: 1.0,
        message: String::new(),
    }
}
