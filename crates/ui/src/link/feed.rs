//! A run's log as a stream: existing lines, then appended ones. Viewers are always fed from the file, never from
//! memory, so a slow one costs nothing, misses nothing and gets nothing twice.

use crate::run::{Tail, log::seq_of};
use std::io;
use std::path::{Path, PathBuf};
use tokio::sync::watch;

/// Bytes of complete lines returned at a time.
const BATCH: usize = 64 * 1024;

/// A cursor over a log that is being written in this process.
#[derive(Debug)]
pub(super) struct Feed {
    path: PathBuf,
    tail: Option<Tail>,
    /// Last number on disk; closed when the log is.
    growth: watch::Receiver<u64>,
    /// Lines with smaller numbers are skipped.
    from_seq: u64,
}

impl Feed {
    pub fn new(path: &Path, growth: watch::Receiver<u64>, from_seq: u64) -> Feed {
        Feed {
            path: path.into(),
            tail: None,
            growth,
            from_seq,
        }
    }

    /// Puts the next complete lines into `lines` (cleared first); false once the log is closed and everything was returned.
    /// Waits if there is nothing yet. Cancel-safe: lines are consumed only by a call that returns them.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn next(&mut self, lines: &mut String) -> io::Result<bool> {
        loop {
            // Checked before reading: an append during the read wakes the wait below, one before
            // the close is still read.
            let over = self.growth.has_changed().is_err();
            self.growth.mark_unchanged();
            lines.clear();
            if self.read(lines)? {
                if !lines.is_empty() {
                    return Ok(true);
                }
            } else if over {
                return Ok(false);
            } else {
                let _ = self.growth.changed().await;
            }
        }
    }

    fn read(&mut self, lines: &mut String) -> io::Result<bool> {
        if self.tail.is_none() {
            self.tail = Some(Tail::open(&self.path)?);
        }
        let Some(tail) = &mut self.tail else {
            return Ok(false);
        };
        if !tail.read_lines(lines, BATCH)? {
            return Ok(false);
        }
        if self.from_seq > 1 {
            let begin = lines
                .split_inclusive('\n')
                .take_while(|line| seq_of(line).is_none_or(|seq| seq < self.from_seq))
                .map(str::len)
                .sum::<usize>();
            lines.drain(..begin);
            if !lines.is_empty() {
                self.from_seq = 0;
            }
        }
        Ok(true)
    }
}
