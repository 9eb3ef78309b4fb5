//! Stages as processes of this program, and the signals that reach them.

use crate::base::clock::{Clock, SystemClock};
use crate::base::files::is_locked;
use crate::cli::Context;
use crate::cli::exit::Failure;
use crate::link::launch::Launcher;
use crate::link::signals::{self, Hangup};
use crate::pipeline::PipelineDir;
use crate::run::{RunDir, index};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a stage is looked at.
const PAUSE: Duration = Duration::from_millis(50);
/// The first run of a pipeline appears within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// This program with the same runs directory.
///
/// # Errors
/// It cannot be found.
pub fn this_program(cx: &Context) -> anyhow::Result<Command> {
    let launcher = Launcher::this_program(&cx.env)?;
    let mut command = Command::new(launcher.program);
    command.arg("--runs-dir").arg(&cx.runs_dir);
    Ok(command)
}

/// Asked to stop by a signal.
#[derive(Debug, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens from now on. A pipeline of a terminal stops when the terminal closes.
    pub fn listen(detached: bool) -> Stop {
        let flag = Arc::new(AtomicBool::new(false));
        // Nobody reads the commands: a stage gets the signal itself.
        let (commands, _) = std::sync::mpsc::sync_channel(1);
        let hangup = match detached {
            true => Hangup::Ignore,
            false => Hangup::Stop,
        };
        signals::handle(Arc::clone(&flag), commands, hangup);
        Stop(flag)
    }

    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a stage to its end. A stop is passed on to it once; it saves and ends.
///
/// # Errors
/// It cannot be started or waited for.
pub fn run(mut command: Command, stop: &Stop) -> anyhow::Result<ExitStatus> {
    command.stdin(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|e| Failure::machine(format!("the stage cannot be started: {e}"), ""))?;
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.is_asked() && !std::mem::replace(&mut told, true) {
            terminate(&child);
        }
        std::thread::park_timeout(PAUSE);
    }
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may just have ended.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// Waits for the run that a detached pipeline trains, or goes on with.
///
/// # Errors
/// The pipeline ends, or does not get as far.
pub fn first_run(dir: &PipelineDir, process: &mut Child, cx: &Context) -> anyhow::Result<RunDir> {
    let clock = SystemClock::new();
    while clock.elapsed() < PATIENCE {
        if let Some(run) = dir.running()
            && let Ok(run) = index::resolve(&cx.runs_dir, &run)
            && is_locked(&run.lock_path())
        {
            return Ok(run);
        }
        if process.try_wait()?.is_some() {
            break;
        }
        std::thread::park_timeout(PAUSE);
    }
    let said = std::fs::read_to_string(dir.log_path()).unwrap_or_default();
    let lines: Vec<&str> = said.lines().rev().take(4).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    let what = format!("no stage of the pipeline trains: {}", lines.join("; "));
    let hint = format!("see {}", dir.log_path().display());
    Err(Failure::machine(crate::base::text::one_line(&what), hint).into())
}
