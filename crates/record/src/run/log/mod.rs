//! `events.jsonl`: appended by one thread of one process, read by anyone. A line counts only once its newline is written.

mod tail;
mod writer;

pub use tail::{Tail, kind_of, last_event, read_all, scan_events, seq_of};
pub use writer::{LogSender, LogThread, LogWriter, QUEUE};

use std::io;
use std::path::PathBuf;

/// Why the log cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("{path}: {error}")]
    Foreign {
        path: PathBuf,
        error: crate::wire::DecodeError,
    },
    /// A write failed; the writer keeps retrying.
    #[error("{path} cannot be written: {why}; the run waits until it can")]
    Stalled { path: PathBuf, why: String },
    #[error("the log is closed")]
    Closed,
}
