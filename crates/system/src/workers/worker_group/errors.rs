//! The errors of a rank: the one it reports, or the tail of its stderr if it ended without a report.

use super::super::failure::{FailureKind, WorkerFailure};
use super::super::frame::Frame;
use crate::base::files::open_plain;
use crate::base::text::one_line;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes read from the end of a log.
const TAIL: u64 = 4_096;
/// Characters of a line that are reported.
const MAX_SHOWN: usize = 300;

/// The error that a worker reports.
pub(super) fn reported_error(rank: usize, frame: &Frame) -> WorkerFailure {
    let header = &frame.header;
    let kind = FailureKind::named(header["class"].as_str().unwrap_or_default());
    let message = one_line(
        header["message"]
            .as_str()
            .unwrap_or("an error without a message"),
    );
    let message: String = message.chars().take(400).collect();
    WorkerFailure::new(kind, Some(rank), format!("rank {rank}: {message}"))
}

/// The last line of a rank's stderr, as the end of a sentence; empty if there is none. `logs` is its machine's folder,
/// `rank` its number there.
pub(super) fn of_rank(logs: &Path, rank: usize) -> String {
    let last = find_log(logs, rank, 0).map_or_else(String::new, |path| last_line(&path));
    match last.is_empty() {
        true => String::new(),
        false => format!("; its last output: {last}"),
    }
}

/// The last non-blank line of a file; empty if there is none.
pub(in crate::workers) fn last_line(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = open_plain(path)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(end.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    one_line(last.unwrap_or_default().trim())
        .chars()
        .take(MAX_SHOWN)
        .collect()
}

/// torchrun writes `LOGS/<run>/attempt_0/<rank>/stderr.log`.
pub(in crate::workers) fn find_log(folder: &Path, rank: usize, depth: usize) -> Option<PathBuf> {
    let own = folder.join(rank.to_string()).join("stderr.log");
    if own.is_file() {
        return Some(own);
    }
    if depth > 3 {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
        .into_iter()
        .rev()
        .find_map(|inner| find_log(&inner, rank, depth + 1))
}
