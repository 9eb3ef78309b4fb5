//! The parent's side: starting the child, reading its lines within limits, and diagnosing its exit.

use super::serve::{END, Header, LINE, REFUSED};
use super::{ChildError, Limits, Parser, Request, VERB};
use crate::text::one_line;
use std::io::{BufRead, BufReader, Read, Write};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};

/// Lines buffered ahead of the reader.
const AHEAD: usize = 64;
/// Bytes of stderr kept, and characters of it shown in an error.
const MAX_STDERR: u64 = 16 << 10;
const MAX_SHOWN: usize = 400;

/// The lines of a parser, as they arrive. Nothing follows an error.
#[derive(Debug)]
pub struct Lines {
    receiver: Receiver<Result<String, ChildError>>,
    limits: Limits,
    received_bytes: u64,
    ended: bool,
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    child: process::Child,
    /// Closed when dropped, which closes the child's input.
    _hold_input: Sender<()>,
    stderr: Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lines {
    pub(super) fn from_process(
        program: &Path,
        parser: &Parser,
        request: Request,
        limits: &Limits,
    ) -> Result<Lines, ChildError> {
        let start = |why: String| ChildError::Start {
            program: program.to_path_buf(),
            why,
        };
        let mut child = Command::new(program)
            .arg(VERB)
            .arg(parser.id)
            .args(["--memory", &limits.memory.to_string()])
            .args(["--cpu-seconds", &limits.cpu_seconds.to_string()])
            // Tokens and passwords in the environment stay out of a compromised parser's reach.
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "LD_LIBRARY_PATH"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| start(e.to_string()))?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(start("it has no pipes".into()));
        };
        let (hold_input, held) = channel();
        std::thread::spawn(move || write_request(input, &request, &held));
        let (send_stderr, stderr) = channel();
        std::thread::spawn(move || {
            let _ = send_stderr.send(read_stderr(errors));
        });
        let (sender, receiver) = sync_channel(AHEAD);
        let line_bytes = limits.line_bytes;
        std::thread::spawn(move || read_output(BufReader::new(output), line_bytes, &sender));
        Ok(Lines {
            receiver,
            limits: *limits,
            received_bytes: 0,
            ended: false,
            process: Some(Process {
                child,
                _hold_input: hold_input,
                stderr,
            }),
        })
    }

    pub(super) fn from_thread(parser: Parser, request: Request, limits: &Limits) -> Lines {
        let (sender, receiver) = sync_channel(AHEAD);
        let line_bytes = limits.line_bytes;
        std::thread::spawn(move || parse_here(parser, &request, line_bytes, &sender));
        Lines {
            receiver,
            limits: *limits,
            received_bytes: 0,
            ended: false,
            process: None,
        }
    }

    /// The child's process id, while it runs; for tests.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    fn count(&mut self, line: String) -> Result<String, ChildError> {
        self.received_bytes += line.len() as u64;
        if self.received_bytes > self.limits.total_bytes {
            return Err(ChildError::Output(self.limits.total_bytes));
        }
        Ok(line)
    }

    /// Why the child closed its output without a result, from its exit status and stderr.
    fn diagnose_exit(&mut self) -> ChildError {
        let Some(process) = &mut self.process else {
            return ChildError::Crashed("it exited without output".into());
        };
        // Its output is closed: it has exited, or is about to.
        let status = process.child.wait();
        let message = process.stderr.recv().unwrap_or_default();
        if message.contains("memory allocation of") || message.contains("out of memory") {
            return ChildError::Memory(self.limits.memory);
        }
        let signal = status.as_ref().ok().and_then(|status| {
            use std::os::unix::process::ExitStatusExt;
            status.signal()
        });
        const SIGXCPU: i32 = 24;
        if signal == Some(SIGXCPU) {
            return ChildError::Processor(self.limits.cpu_seconds);
        }
        let shown: String = one_line(message.trim()).chars().take(MAX_SHOWN).collect();
        ChildError::Crashed(match (shown.is_empty(), status) {
            (false, _) => shown,
            (true, Ok(status)) => status.to_string(),
            (true, Err(e)) => e.to_string(),
        })
    }
}

impl Iterator for Lines {
    type Item = Result<String, ChildError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = match self.receiver.recv_timeout(self.limits.silence) {
            Ok(Ok(line)) if line.as_bytes().first() == Some(&END) => None,
            Ok(Ok(line)) if line.as_bytes().first() == Some(&LINE) => {
                Some(self.count(line[1..].to_string()))
            }
            Ok(Ok(line)) if line.as_bytes().first() == Some(&REFUSED) => {
                Some(Err(ChildError::Refused(one_line(&line[1..]))))
            }
            Ok(Ok(line)) => Some(Err(ChildError::Crashed(format!(
                "unexpected output: {}",
                one_line(&line).chars().take(MAX_SHOWN).collect::<String>()
            )))),
            Ok(Err(e)) => Some(Err(e)),
            Err(RecvTimeoutError::Timeout) => Some(Err(ChildError::Silent(self.limits.silence))),
            Err(RecvTimeoutError::Disconnected) => Some(Err(self.diagnose_exit())),
        };
        if !matches!(item, Some(Ok(_))) {
            self.ended = true;
            // End the child now, not when the lines are dropped.
            self.process = None;
        }
        item
    }
}

fn write_request(mut input: ChildStdin, request: &Request, held: &Receiver<()>) {
    let header = Header {
        request: Request {
            bytes: Vec::new(),
            ..request.clone()
        },
        follow: request.bytes.len() as u64,
    };
    let Ok(mut line) = serde_json::to_vec(&header) else {
        return;
    };
    line.push(b'\n');
    // A child that died early has closed its input; its output has the reason.
    let written = input
        .write_all(&line)
        .and_then(|()| input.write_all(&request.bytes))
        .and_then(|()| input.flush());
    if written.is_ok() {
        // Keep the input open until the holder is dropped.
        let _ = held.recv();
    }
}

fn read_stderr(mut errors: impl Read) -> String {
    let mut message = Vec::new();
    let _ = errors.by_ref().take(MAX_STDERR).read_to_end(&mut message);
    // The rest is read and discarded: a full pipe would block the child.
    let _ = std::io::copy(&mut errors, &mut std::io::sink());
    String::from_utf8_lossy(&message).into_owned()
}

fn read_output(
    mut output: impl BufRead,
    line_bytes: usize,
    sender: &SyncSender<Result<String, ChildError>>,
) {
    // Mark, line, newline.
    let most = line_bytes as u64 + 2;
    loop {
        let mut line = Vec::new();
        match output.by_ref().take(most).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.pop() != Some(b'\n') {
            if line.len() as u64 + 1 == most {
                let _ = sender.send(Err(ChildError::Output(line_bytes as u64)));
            }
            // Otherwise truncated in the middle of a line: the child died.
            return;
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        if sender.send(Ok(line)).is_err() {
            return;
        }
    }
}

/// Runs the parser on this thread, with the child's protocol.
fn parse_here(
    parser: Parser,
    request: &Request,
    line_bytes: usize,
    sender: &SyncSender<Result<String, ChildError>>,
) {
    let gone = || "nobody listens".to_string();
    let mut too_long = false;
    let mut emit = |line: &str| {
        if line.len() > line_bytes {
            too_long = true;
            return Err("the line is too long".to_string());
        }
        let line = format!("{}{line}", LINE as char);
        sender.send(Ok(line)).map_err(|_| gone())
    };
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| (parser.parse)(request, &mut emit)));
    let last = match result {
        _ if too_long => Err(ChildError::Output(line_bytes as u64)),
        Ok(Ok(())) => Ok((END as char).to_string()),
        Ok(Err(why)) => Err(ChildError::Refused(why)),
        Err(panic) => Err(ChildError::Crashed(panic_message(&*panic))),
    };
    let _ = sender.send(last);
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    one_line(message.unwrap_or("a panic without a message"))
}
