//! A connecting rank: its identification, and the thread that reads its messages from then on.

use super::super::PROTOCOL;
use super::super::failure::{FailureKind, WorkerFailure};
use super::super::frame::Frame;
use crate::base::clock::Clock;
use crate::base::text::one_line;
use serde_json::Value;
use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Write timeout: a rank that takes longer does not read.
const WRITE: Duration = Duration::from_secs(60);

/// An event on a rank's connection.
pub(super) enum Received {
    Frame(Frame),
    Closed,
}

/// The engine's end of a rank.
pub(super) struct RankEnd {
    pub stream: UnixStream,
    /// Process id on its own machine.
    pub pid: i32,
    /// Time of the last heartbeat, in milliseconds of the clock.
    pub beat: Arc<AtomicU64>,
    /// Its hello message.
    pub about: Value,
}

impl RankEnd {
    /// Reads a rank's hello within `start`, which identifies it among `ranks`. Later messages are sent to `sender`.
    ///
    /// # Errors
    /// It has another protocol version, or is not one of the ranks.
    pub fn admit(
        stream: UnixStream,
        ranks: usize,
        start: Duration,
        clock: &Arc<dyn Clock>,
        sender: &SyncSender<(usize, Received)>,
    ) -> Result<(usize, RankEnd), WorkerFailure> {
        let fault = |e: io::Error| {
            WorkerFailure::new(
                FailureKind::Start,
                None,
                format!("a rank's connection: {e}"),
            )
        };
        stream.set_nonblocking(false).map_err(fault)?;
        stream.set_write_timeout(Some(WRITE)).map_err(fault)?;
        stream.set_read_timeout(Some(start)).map_err(fault)?;
        let mut input = BufReader::with_capacity(1 << 20, stream.try_clone().map_err(fault)?);
        let hello = Frame::read(&mut input).map_err(fault)?;
        let hello = hello.map_or(Value::Null, |frame| frame.header);
        stream.set_read_timeout(None).map_err(fault)?;
        let (rank, pid) = identified(&hello, ranks)
            .map_err(|what| WorkerFailure::new(FailureKind::Version, None, what))?;
        let beat = Arc::new(AtomicU64::new(clock.elapsed().as_millis() as u64));
        let end = RankEnd {
            stream,
            pid,
            beat: beat.clone(),
            about: Value::Null,
        };
        let (sender, clock) = (sender.clone(), clock.clone());
        std::thread::Builder::new()
            .name(format!("rank-{rank}"))
            .spawn(move || listen(rank, input, &*clock, &beat, &sender))
            .map_err(fault)?;
        Ok((rank, end))
    }
}

/// Rank and process id of a hello.
///
/// # Errors
/// What is wrong with it.
fn identified(hello: &Value, ranks: usize) -> Result<(usize, i32), String> {
    let number = |key: &str| hello[key].as_u64();
    if number("protocol") != Some(PROTOCOL) {
        return Err(format!(
            "protocol version mismatch: worker {}, llmtui {PROTOCOL}",
            hello["protocol"]
        ));
    }
    let rank = number("rank")
        .and_then(|rank| usize::try_from(rank).ok())
        .filter(|rank| *rank < ranks);
    let pid = number("pid").and_then(|pid| i32::try_from(pid).ok());
    match (rank, pid, number("world") == Some(ranks as u64)) {
        (Some(rank), Some(pid), true) => Ok((rank, pid)),
        _ => Err(format!(
            "unexpected greeting {}: it needs a rank from 0 to {}, a process id, and a world of {ranks}",
            one_line(&hello.to_string()),
            ranks.saturating_sub(1)
        )),
    }
}

/// Passes on what a rank sends, until it closes; heartbeats only move `beat`.
fn listen(
    rank: usize,
    mut input: BufReader<UnixStream>,
    clock: &dyn Clock,
    beat: &AtomicU64,
    sender: &SyncSender<(usize, Received)>,
) {
    loop {
        let received = match Frame::read(&mut input) {
            Ok(Some(frame)) => {
                beat.store(clock.elapsed().as_millis() as u64, Ordering::Relaxed);
                if frame.kind() == "beat" {
                    continue;
                }
                Received::Frame(frame)
            }
            Ok(None) | Err(_) => Received::Closed,
        };
        let closed = matches!(received, Received::Closed);
        if sender.send((rank, received)).is_err() || closed {
            return;
        }
    }
}
