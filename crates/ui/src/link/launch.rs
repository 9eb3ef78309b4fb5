//! Starting engines in their own processes: a training run that outlives its viewer, and an inference engine.

use super::{ConnectError, Link, answers, stdio};
use crate::base::clock::{Clock, SystemClock};
use crate::base::files::{open_plain, open_plain_with};
use crate::base::paths::Env;
use crate::base::text::sanitize;
use crate::run::{RunDir, RunError};
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// An engine that neither answers nor dies within this time is given up on (its process continues).
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes of engine.log shown if an engine dies at once.
const LAST_WORDS: u64 = 2048;

/// How to start an engine process.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// The program: this one.
    pub program: PathBuf,
    /// Directory of the sockets.
    pub env: Env,
}

/// Arguments of the engine process besides the run's spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineOptions {
    /// Resume from the newest checkpoint.
    pub resume: bool,
    /// Train even if a preflight check fails.
    pub force: bool,
    /// Save and stop after this step.
    pub stop_after: Option<u64>,
    /// Number of compute threads, instead of the spec's.
    pub threads: Option<usize>,
    /// Resume without the optimizer's state.
    pub fresh_optimizer: bool,
    /// The folder of the run that must end before this one begins.
    pub after: Option<PathBuf>,
}

/// Why no engine started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{program} cannot be started: {error}")]
    Spawn {
        program: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {error}")]
    Log {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("the engine exited immediately ({status}): {words}")]
    Died { status: ExitStatus, words: String },
    #[error("preflight exited before its first check ({status}): {words}")]
    Checks { status: ExitStatus, words: String },
    /// A verb that was to answer, in its own words.
    #[error("{0}")]
    Verb(String),
    #[error("the engine of {run} does not respond; see {log}")]
    Silent { run: String, log: PathBuf },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl Launcher {
    /// A launcher for the running program.
    ///
    /// # Errors
    /// The system does not say which program runs.
    pub fn this_program(env: &Env) -> std::io::Result<Launcher> {
        let program = std::env::current_exe()?;
        // A program that was rebuilt while running is still available under this name (Linux).
        let program = if program.exists() {
            program
        } else {
            "/proc/self/exe".into()
        };
        Ok(Launcher {
            program,
            env: env.clone(),
        })
    }

    /// Starts the detached engine of `run` and returns once it answers at its socket, or has already exited cleanly. The
    /// process survives this one: it has its own session, no terminal, and writes to engine.log.
    ///
    /// # Errors
    /// Another engine holds the run, the process cannot be started, or it died before it answered; with its last words.
    pub fn start_detached(&self, run: &RunDir, options: &EngineOptions) -> Result<(), LaunchError> {
        run.check_idle()?;
        let log_path = run.engine_log_path();
        let log_error = |error| LaunchError::Log {
            path: log_path.clone(),
            error,
        };
        let log = open_plain_with(OpenOptions::new().create(true).append(true), &log_path)
            .map_err(log_error)?;
        let said_before = log.metadata().map_err(log_error)?.len();
        let errors = log.try_clone().map_err(log_error)?;
        let told_before = log_bytes(run);
        let mut command = self.engine(run, options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(errors));
        let mut child = command.spawn().map_err(|error| LaunchError::Spawn {
            program: self.program.clone(),
            error,
        })?;
        if let Err(e) = self.await_answer(run, &mut child, said_before) {
            // An engine that got as far as the log has recorded there how it ended.
            if !matches!(e, LaunchError::Died { .. }) || log_bytes(run) == told_before {
                return Err(e);
            }
        }
        // Reaps the engine if it ends while this process still runs.
        std::thread::spawn(move || child.wait());
        Ok(())
    }

    /// The command line of an engine process.
    fn engine(&self, run: &RunDir, options: &EngineOptions) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("engine")
            .arg(run.path())
            .arg("--runtime-dir")
            .arg(&self.env.runtime_dir);
        if options.resume {
            command.arg("--resume");
        }
        if options.force {
            command.arg("--force");
        }
        if options.fresh_optimizer {
            command.arg("--fresh-optimizer");
        }
        if let Some(after) = &options.after {
            command.arg("--after").arg(after);
        }
        if let Some(threads) = options.threads {
            command.arg("--threads").arg(threads.to_string());
        }
        if let Some(step) = options.stop_after {
            command.arg("--stop-after").arg(step.to_string());
        }
        command
    }

    fn await_answer(
        &self,
        run: &RunDir,
        child: &mut Child,
        said_before: u64,
    ) -> Result<(), LaunchError> {
        let clock = SystemClock::new();
        while clock.elapsed() < PATIENCE {
            if answers(&self.env, run)? {
                return Ok(());
            }
            if let Ok(Some(status)) = child.try_wait() {
                if status.success() {
                    return Ok(());
                }
                let log = run.engine_log_path();
                let words = match written_after(&log, said_before) {
                    words if words.is_empty() => {
                        format!("nothing was written to {}", log.display())
                    }
                    words => words,
                };
                return Err(LaunchError::Died { status, words });
            }
            crate::base::clock::pause(PAUSE);
        }
        Err(LaunchError::Silent {
            run: run.id().into(),
            log: run.engine_log_path(),
        })
    }

    /// Starts a process that loads the model of `checkpoint` and answers `Generate`. It ends with the link; terminal
    /// input does not reach it.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn infer(&self, checkpoint: &Path) -> Result<Link, LaunchError> {
        self.infer_with(checkpoint, &[], &[])
    }

    /// The same with adapters on it, the first of which answers, and further options of the process.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn infer_with(
        &self,
        checkpoint: &Path,
        adapters: &[PathBuf],
        options: &[String],
    ) -> Result<Link, LaunchError> {
        let mut command = Command::new(&self.program);
        command.arg("engine").arg("--infer").arg(checkpoint);
        for adapter in adapters {
            command.arg("--adapter").arg(adapter);
        }
        command.args(options);
        command.process_group(0);
        stdio::spawn(command).map_err(|error| LaunchError::Spawn {
            program: self.program.clone(),
            error,
        })
    }
}

/// Bytes of the run's log.
fn log_bytes(run: &RunDir) -> u64 {
    std::fs::metadata(run.events_path()).map_or(0, |meta| meta.len())
}

/// The last lines of a process's log that were written after its first `from` bytes, sanitized.
pub fn written_after(path: &Path, from: u64) -> String {
    let read = || {
        let mut file = open_plain(path)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.max(end.saturating_sub(LAST_WORDS))))?;
        let mut bytes = Vec::new();
        file.take(LAST_WORDS).read_to_end(&mut bytes)?;
        std::io::Result::Ok(bytes)
    };
    let words = read().unwrap_or_default();
    sanitize(String::from_utf8_lossy(&words).trim())
}
