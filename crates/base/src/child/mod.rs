//! Parsing untrusted bytes where a crash is harmless: in a child process of this program with its own limits.
//!
//! Libraries that read binary formats panic and abort on crafted files. A [`Parser`] therefore runs in a child that
//! restricts its own memory, CPU time and file writes ([`serve()`]); results come back as lines of text,
//! one JSON value each. Any failure there becomes an error here, with its cause and a fix. Which bytes are untrusted,
//! and what the lines mean, is decided by the rooms that own a parser.

mod lines;
mod serve;

pub use lines::Lines;
pub use serve::{Confinement, serve};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The hidden subcommand that runs this program as the child.
pub const VERB: &str = "parse-child";

/// A parser of untrusted bytes. It may panic.
#[derive(Debug, Clone, Copy)]
pub struct Parser {
    /// The argument after [`VERB`].
    pub id: &'static str,
    /// Parses the request and passes on each result as one line. An error is one sentence on what is wrong with the
    /// file.
    pub parse: fn(&Request, &mut LineSink) -> Result<(), String>,
}

/// Receives one line (without a newline). An error means that the receiver is gone: stop.
pub type LineSink<'a> = dyn FnMut(&str) -> Result<(), String> + 'a;

/// The input of a parser.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Request {
    /// A file, read by the parser itself.
    pub path: Option<PathBuf>,
    /// Options for the parser.
    #[serde(default)]
    pub options: Value,
    /// Bytes already read: what is checked and what is used are then the same.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

impl Request {
    /// A request for a file.
    pub fn file(path: &Path) -> Request {
        Request {
            path: Some(path.to_path_buf()),
            ..Request::default()
        }
    }

    /// A request for bytes.
    pub fn bytes(bytes: Vec<u8>) -> Request {
        Request {
            bytes,
            ..Request::default()
        }
    }

    /// With options for the parser.
    pub fn with(self, options: Value) -> Request {
        Request { options, ..self }
    }
}

/// Resource limits of a parser.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of address space, the program itself (some 100 MB) included.
    pub memory: u64,
    /// Seconds of CPU time.
    pub cpu_seconds: u64,
    /// Maximum wait for the next line.
    pub silence: Duration,
    /// Maximum bytes per line.
    pub line_bytes: usize,
    /// Total bytes of all lines.
    pub total_bytes: u64,
}

impl Default for Limits {
    /// Enough for a description of a file: 2 GiB, 30 s, 16 MiB per line and 256 MiB in total.
    fn default() -> Limits {
        Limits {
            memory: 2 << 30,
            cpu_seconds: 30,
            silence: Duration::from_secs(60),
            line_bytes: 16 << 20,
            total_bytes: 256 << 20,
        }
    }
}

/// How parsers run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Child {
    /// The program that implements [`VERB`]. `None`: parse on a thread of this process, where a panic is caught but an abort
    /// (memory, stack) is not, and only the limits on lines and on the wait apply. For tests and for programs that use
    /// this library without its binary.
    pub program: Option<PathBuf>,
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Called once, at the start of the binary, to declare that it implements [`VERB`]. The library cannot know
/// whether its process is `llmtui`.
pub fn this_program_is(program: PathBuf) {
    // A second call would come from a test that starts `main` twice: the first one wins.
    let _ = PROGRAM.set(program);
}

impl Child {
    /// A child of the running `llmtui`; in-process if the running program is another.
    pub fn of_this_program() -> Child {
        Child {
            program: PROGRAM.get().cloned(),
        }
    }

    /// Starts `parser` on `request`; results arrive as it finds them. Dropping them ends the parser.
    ///
    /// # Errors
    /// The program cannot be started. Later failures are the last line.
    pub fn run(
        &self,
        parser: &Parser,
        request: Request,
        limits: &Limits,
    ) -> Result<Lines, ChildError> {
        match &self.program {
            Some(program) => Lines::from_process(program, parser, request, limits),
            None => Ok(Lines::from_thread(*parser, request, limits)),
        }
    }

    /// All lines of a parser with little output.
    ///
    /// # Errors
    /// The failure that ended the parser.
    pub fn collect(
        &self,
        parser: &Parser,
        request: Request,
        limits: &Limits,
    ) -> Result<Vec<String>, ChildError> {
        self.run(parser, request, limits)?.collect()
    }
}

/// Why a parser did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    #[error("{program} cannot be started to read the file safely: {why}")]
    Start { program: PathBuf, why: String },
    /// The parser rejected the input.
    #[error("{0}")]
    Refused(String),
    #[error("the parser crashed: {0}")]
    Crashed(String),
    #[error("parsing it takes more than {} of memory", crate::human::bytes(*.0))]
    Memory(u64),
    #[error("parsing it takes more than {0} s of CPU time")]
    Processor(u64),
    #[error("the parser was silent for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the parser's output exceeds the limit of {} bytes", crate::human::grouped(*.0))]
    Output(u64),
}

impl ChildError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            ChildError::Start { .. } => "check that the llmtui executable is still in place",
            ChildError::Refused(_) => "the file is damaged or of another type: download it again",
            ChildError::Crashed(_) => {
                "the file is damaged or malicious: get it again from a trusted source"
            }
            ChildError::Memory(_) | ChildError::Processor(_) | ChildError::Silent(_) => {
                "the file is larger than any known file of its type, or malicious: get it again from a trusted source"
            }
            ChildError::Output(_) => "the file has an overlong value: split it, or get it again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parser(parse: fn(&Request, &mut LineSink) -> Result<(), String>) -> Parser {
        Parser { id: "test", parse }
    }

    /// Long enough for a loaded machine to print a backtrace; only the silence test waits for it.
    const SHORT: Duration = Duration::from_secs(3);

    fn run(
        parse: fn(&Request, &mut LineSink) -> Result<(), String>,
    ) -> Result<Vec<String>, ChildError> {
        let limits = Limits {
            line_bytes: 1000,
            total_bytes: 10_000,
            silence: SHORT,
            ..Limits::default()
        };
        Child::default().collect(&parser(parse), Request::bytes(b"abc".to_vec()), &limits)
    }

    #[test]
    fn lines_come_in_order_and_end() {
        let lines = run(|request, emit| {
            emit(&request.bytes.len().to_string())?;
            emit("two")
        });
        assert_eq!(lines.unwrap(), ["3", "two"]);
    }

    #[test]
    fn a_parsers_rejection_is_the_error() {
        let error = run(|_, emit| {
            emit("one")?;
            Err("row 2 is half a row".into())
        });
        assert_eq!(
            error,
            Err(ChildError::Refused("row 2 is half a row".into()))
        );
    }

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let error = run(|_, _| panic!("index 7 out of 3")).unwrap_err();
        assert_eq!(error, ChildError::Crashed("index 7 out of 3".into()));
        assert!(error.hint().contains("trust"));
    }

    #[test]
    fn excessive_output_is_stopped_per_line_and_in_total() {
        let long = run(|_, emit| emit(&"x".repeat(1001)));
        assert_eq!(long, Err(ChildError::Output(1000)));
        let endless = run(|_, emit| {
            loop {
                emit(&"x".repeat(999))?;
            }
        });
        assert_eq!(endless, Err(ChildError::Output(10_000)));
    }

    #[test]
    fn a_parser_whose_receiver_is_gone_ends() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static ENDED: AtomicBool = AtomicBool::new(false);
        let endless = parser(|_, emit| {
            let end = loop {
                if let Err(e) = emit("x") {
                    break Err(e);
                }
            };
            ENDED.store(true, Ordering::Release);
            end
        });
        let mut lines = Child::default()
            .run(&endless, Request::default(), &Limits::default())
            .unwrap();
        assert_eq!(lines.next(), Some(Ok("x".into())));
        drop(lines);
        while !ENDED.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_silent_parser_times_out() {
        let error = run(|_, emit| {
            crate::clock::pause(Duration::from_secs(30));
            emit("late")
        });
        assert_eq!(error, Err(ChildError::Silent(SHORT)));
    }
}
