//! Stages as processes of this program, and the signals that reach them.

use crate::base::text::one_line;
use crate::cli::Context;
use crate::cli::exit::Failure;
use crate::link::launch::Launcher;
use crate::link::signals::{self, Hangup};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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

    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes of a stage's last words that are kept.
const KEPT: usize = 8 << 10;
/// How long the last words are waited for: a process that the stage has left behind may hold its standard error open.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a stage to its end; returns how it ended and its error message, if it had one. A stop is passed on to it once; it saves and
/// ends.
///
/// # Errors
/// It cannot be started or waited for.
pub fn run(mut command: Command, stop: &Stop) -> anyhow::Result<(ExitStatus, Option<String>)> {
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|e| Failure::machine(format!("the stage cannot be started: {e}"), ""))?;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (over, ended) = std::sync::mpsc::channel::<()>();
    if let Some(from) = child.stderr.take() {
        let heard = Arc::clone(&heard);
        std::thread::spawn(move || {
            pass_on(from, &mut std::io::stderr(), &heard);
            drop(over);
        });
    }
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            let _ = ended.recv_timeout(PATIENCE);
            let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok((status, message(&String::from_utf8_lossy(&heard))));
        }
        if stop.is_asked() && !std::mem::replace(&mut told, true) {
            terminate(&child);
        }
        crate::base::clock::pause(PAUSE);
    }
}

/// Copies what a stage writes and keeps its end.
fn pass_on(mut from: impl Read, to: &mut impl Write, heard: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 {
            return;
        }
        // A closed standard error ends no stage.
        let _ = to.write_all(&buffer[..n]).and_then(|()| to.flush());
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.extend_from_slice(&buffer[..n]);
        let surplus = heard.len().saturating_sub(KEPT);
        heard.drain(..surplus);
    }
}

/// The last error message in what a stage wrote, on one line.
fn message(text: &str) -> Option<String> {
    let begins = "llmtui: ";
    let at = match text.rfind(&format!("\n{begins}")) {
        Some(at) => at + 1,
        None => text.starts_with(begins).then_some(0)?,
    };
    let said: Vec<&str> = text[at + begins.len()..]
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let said = said.join(" ").replace(" try: ", "; try: ");
    Some(one_line(&said)).filter(|said| !said.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_message_is_kept() {
        let text = "left out: x\nllmtui: a note\nllmtui: no task is called `a`\n  try: llmtui eval --list\n";
        let said = "no task is called `a`; try: llmtui eval --list";
        assert_eq!(message(text).as_deref(), Some(said));
        assert_eq!(message("llmtui: at once").as_deref(), Some("at once"));
        assert_eq!(message("progress\n"), None);

        let heard = Mutex::new(Vec::new());
        let (long, mut copy) = (
            format!("{}\nllmtui: end\n", "x".repeat(3 * KEPT)),
            Vec::new(),
        );
        pass_on(long.as_bytes(), &mut copy, &heard);
        assert_eq!(copy, long.as_bytes());
        let heard = heard.into_inner().unwrap();
        assert_eq!(heard.len(), KEPT);
        assert_eq!(
            message(&String::from_utf8(heard).unwrap()).as_deref(),
            Some("end")
        );
    }
}
