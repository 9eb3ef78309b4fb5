//! A program that scores, as a child process: lines out, lines in, a time limit for each, one restart.

use super::command::Config;
use super::{Answer, Worker};
use crate::base::stderr_tail::StderrTail;
use crate::base::text::one_line;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::Duration;

/// Lines that wait to be asked for. With room for one alone, a line too many would wait outside until the one before it is taken, and
/// be taken for the next answer's score whenever that is asked for sooner than the reader wakes.
const READ_AHEAD: usize = 8;
/// Bytes of a line that errors show, and that are read of one at most.
const SHOWN: usize = 200;
const LONGEST: u64 = 1 << 20;
/// Bytes of its stderr that are kept for an error.
const KEPT: usize = 4096;
/// Milliseconds for which the exit status of a program that closed its output is waited for.
const GRACE: usize = 500;

/// A program with its child, which starts with the first answer.
#[derive(Debug)]
pub(super) struct Program {
    config: Config,
    running: Option<Running>,
    /// The answers to score, as lines, and how many of them were sent.
    lines: Vec<String>,
    sent: usize,
    /// Scores that came.
    scored: usize,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// To a thread that writes: a program that reads nothing fills its pipe, and its time limit counts from before.
    input: Sender<String>,
    lines: Receiver<std::io::Result<String>>,
    /// What it writes beside its scores goes on to this process's own, and its end into errors.
    errors: Option<StderrTail>,
}

impl Drop for Running {
    /// Ends whatever the command line started, not only its shell.
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Program {
    pub fn new(config: Config) -> Program {
        Program {
            config,
            running: None,
            lines: Vec::new(),
            sent: 0,
            scored: 0,
        }
    }

    /// A line that no answer asked for. It would be taken for the next answer's score, and each later one for that of the next.
    fn unasked(&self) -> Option<String> {
        self.running.as_ref()?.lines.try_recv().ok()?.ok()
    }

    /// The score of answer `number`; those behind it are sent as far ahead as the settings say.
    fn ask(&mut self, number: usize) -> Result<f64, String> {
        let running = match &mut self.running {
            Some(running) => running,
            none => {
                self.sent = number;
                none.insert(start(&self.config.run)?)
            }
        };
        let until = self.lines.len().min(number + self.config.ahead);
        for line in self.lines.get(self.sent..until).unwrap_or_default() {
            // A child that is gone says so on its other end.
            let _ = running.input.send(line.clone());
        }
        self.sent = self.sent.max(until);
        let limit = Duration::try_from_secs_f64(self.config.timeout).unwrap_or(Duration::MAX);
        let line = match running.lines.recv_timeout(limit) {
            Ok(Ok(line)) => line,
            Ok(Err(error)) => return Err(format!("its output cannot be read: {error}")),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("no score within {} s", self.config.timeout));
            }
            Err(RecvTimeoutError::Disconnected) => {
                // Its output is closed, which it may be while the program goes on.
                let status = match running.child.try_wait() {
                    Ok(Some(status)) => status.to_string(),
                    Ok(None) => ended_soon(&mut running.child),
                    Err(error) => error.to_string(),
                };
                return Err(format!("it ended without a score: {status}"));
            }
        };
        self.scored = number + 1;
        read(&line)
    }

    /// Ends it after an error, with the last line that it wrote to stderr.
    fn end(&mut self, error: String) -> String {
        let Some(mut running) = self.running.take() else {
            return error;
        };
        let errors = running.errors.take();
        drop(running);
        let errors = errors.map(StderrTail::end).unwrap_or_default();
        match errors.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(last) => format!("{error}; on stderr: {}", one_line(&cut(last))),
            None => error,
        }
    }
}

/// An answer as the program reads it.
fn line(answer: &Answer) -> String {
    let thinking = answer.thinking.as_ref();
    let line = json!({
        "prompt": answer.prompt,
        "answer": answer.text,
        "thought": thinking.map(|thinking| &thinking.thought),
        "completion": answer.completion(),
        "reference": answer.reference.answer,
        "metadata": answer.reference.metadata,
        "tokens": answer.tokens,
        "ended": answer.ended,
        "unfinished": answer.is_unfinished(),
    });
    line.to_string()
}

impl Worker for Program {
    fn begin(&mut self, answers: &[Answer]) -> Result<(), String> {
        // Scores that nobody waited for, as another reward failed, would be taken for these.
        if self.scored < self.sent {
            self.running = None;
        }
        self.lines = answers.iter().map(line).collect();
        (self.sent, self.scored) = (0, 0);
        Ok(())
    }

    /// What goes wrong goes wrong twice: the program is started again once, with this answer.
    fn score(&mut self, number: usize, _answer: &Answer) -> Result<f64, String> {
        // Where answers were sent ahead, a line that waits is this one's.
        if self.sent <= number
            && let Some(line) = self.unasked()
        {
            self.running = None;
            let line = shown(&line);
            return Err(format!(
                "it wrote {line} too many: write one line per answer"
            ));
        }
        let first = match self.ask(number) {
            Ok(score) => return Ok(score),
            Err(error) => self.end(error),
        };
        self.ask(number).map_err(|again| {
            let again = self.end(again);
            match again == first {
                true => format!("{first}; restarted, it did the same"),
                false => format!("{first}; restarted: {again}"),
            }
        })
    }
}

/// How a child ends that has closed its output: mostly at once.
fn ended_soon(child: &mut Child) -> String {
    for _ in 0..GRACE {
        if let Ok(Some(status)) = child.try_wait() {
            return status.to_string();
        }
        crate::base::clock::pause(Duration::from_millis(1));
    }
    "it closed its output but is still running".into()
}

/// A number, or an object with `score`.
fn read(line: &str) -> Result<f64, String> {
    let value: Option<Value> = serde_json::from_str(line.trim()).ok();
    let score = value.and_then(|value| value.as_f64().or_else(|| value["score"].as_f64()));
    score.filter(|x| x.is_finite()).ok_or_else(|| {
        let shown = shown(line);
        format!("it wrote {shown}, not a number or {{\"score\": number}}")
    })
}

/// The beginning of a line, in quotes.
fn shown(line: &str) -> String {
    format!("{:?}", cut(line))
}

fn cut(line: &str) -> String {
    line.trim().chars().take(SHOWN).collect()
}

fn start(run: &str) -> Result<Running, String> {
    let spawned = Command::new("sh")
        .args(["-c", run])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = spawned.map_err(|e| format!("it does not start: {e}"))?;
    let (Some(mut pipe), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("it does not start: no pipes".into());
    };
    let errors = StderrTail::capture(child.stderr.take(), std::io::stderr(), KEPT);
    let (send, lines) = sync_channel(READ_AHEAD);
    let read = move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            let mut bounded = std::io::Read::take(&mut output, LONGEST);
            let line = match bounded.read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) => Ok(String::from_utf8_lossy(&line).into_owned()),
                Err(error) => Err(error),
            };
            if send.send(line).is_err() {
                return;
            }
        }
    };
    let (input, answers) = channel::<String>();
    let write = move || {
        for line in answers {
            if writeln!(pipe, "{line}")
                .and_then(|()| pipe.flush())
                .is_err()
            {
                return;
            }
        }
    };
    let thread = || std::thread::Builder::new().name("reward".into());
    thread().spawn(read).map_err(|e| e.to_string())?;
    thread().spawn(write).map_err(|e| e.to_string())?;
    Ok(Running {
        child,
        input,
        lines,
        errors: Some(errors),
    })
}
