//! Stages as processes of this program, and the signals that reach them.

use crate::base::stderr_tail::StderrTail;
use crate::cli::Context;
use crate::cli::exit::Failure;
use crate::link::launch::Launcher;
use crate::link::message;
use crate::link::signals::{self, Hangup};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a stage is looked at.
const PAUSE: Duration = Duration::from_millis(50);

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

    /// For what is done because of a stop.
    pub fn never() -> Stop {
        Stop(Arc::default())
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a stage to its end; returns how it ended and its error message, if it had one. A stop is passed on to it once; it saves and
/// ends.
///
/// # Errors
/// It cannot be started or waited for.
pub fn run(command: Command, stop: &Stop) -> anyhow::Result<(ExitStatus, Option<String>)> {
    run_with_stderr(command, stop, std::io::stderr())
}

/// [`run`] with the lines of its standard error written elsewhere.
///
/// # Errors
/// As there.
pub fn run_with_stderr(
    mut command: Command,
    stop: &Stop,
    heard_by: impl std::io::Write + Send + 'static,
) -> anyhow::Result<(ExitStatus, Option<String>)> {
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|e| Failure::machine(format!("the stage cannot be started: {e}"), ""))?;
    let words = StderrTail::capture(child.stderr.take(), heard_by, message::KEPT);
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, message::found(&words.end())));
        }
        if stop.is_requested() && !std::mem::replace(&mut told, true) {
            terminate(&child);
        }
        crate::base::clock::pause(PAUSE);
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
