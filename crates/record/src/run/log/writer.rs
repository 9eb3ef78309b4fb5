//! The thread that owns the log: it numbers events, appends them, and only then notifies viewers.

use super::LogError;
use super::tail::{TailError, last_within};
use crate::base::clock::Clock;
use crate::base::files::open_plain_with;
use crate::wire::{Envelope, Event, MAX_LINE, VERSION, encode};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Events queued between the engine and the log; when full, the engine blocks.
pub const QUEUE: usize = 1024;
/// Events per write.
const BATCH: usize = 256;
/// Retry interval of a failed write.
const RETRY: Duration = Duration::from_millis(250);
/// How long an emitter waits for room in the queue before the log is reported as stalled.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens logs.
#[derive(Debug)]
pub struct LogWriter;

impl LogWriter {
    /// Opens the log at `path`, creating it if absent: a torn last line is truncated, numbering continues after the last
    /// complete one. `grown` is called on the log's thread with the last number after every append.
    ///
    /// The caller holds the run's lock: two writers would interleave their lines.
    ///
    /// # Errors
    /// The log cannot be opened, read to its end or truncated.
    pub fn open(
        path: &Path,
        clock: Arc<dyn Clock>,
        grown: impl FnMut(u64) + Send + 'static,
    ) -> Result<(LogSender, LogThread), LogError> {
        let (file, length, last_seq) = open_end(path)?;
        Ok(start(Appender {
            path: path.into(),
            sink: file,
            length,
            torn: false,
            seq: last_seq,
            step: 0,
            clock,
            grown,
        }))
    }
}

/// The engine's end; one per log.
#[derive(Debug)]
pub struct LogSender {
    path: PathBuf,
    events: SyncSender<Event>,
    health: Receiver<Health>,
    stalled: Option<String>,
    closing: Arc<AtomicBool>,
}

impl Drop for LogSender {
    /// No more events: queued ones get one final attempt on a failing disk, so that closing never blocks forever.
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
    }
}

/// Health reports from the writer to the emitter; only changes are sent.
#[derive(Debug)]
enum Health {
    Stalled(String),
    Recovered,
}

impl LogSender {
    /// Queues an event. Waits briefly for room; an error returns the event, which still has to be logged.
    ///
    /// # Errors
    /// The log has closed, or the disk took nothing for as long as it is waited for.
    pub fn emit(&mut self, event: Event) -> Result<(), Box<(Event, LogError)>> {
        let mut event = event;
        let mut patience = PATIENCE;
        let pause = Duration::from_millis(5);
        loop {
            self.listen();
            event = match self.events.try_send(event) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(event)) => {
                    return Err(Box::new((event, LogError::Closed)));
                }
                Err(TrySendError::Full(event)) => event,
            };
            if patience.is_zero() {
                let why = self.stalled.clone().unwrap_or("the disk is slow".into());
                let path = self.path.clone();
                return Err(Box::new((event, LogError::Stalled { path, why })));
            }
            if let Ok(health) = self.health.recv_timeout(pause) {
                self.update_health(health);
            }
            patience = patience.saturating_sub(pause);
        }
    }

    /// The queue itself, for an end that this sender cannot tell any more. The log stays open while it is held.
    pub fn queue_handle(&self) -> SyncSender<Event> {
        self.events.clone()
    }

    /// Why nothing reaches the disk at the moment; `None` if all is well. Queued events are not lost.
    pub fn stalled(&mut self) -> Option<LogError> {
        self.listen();
        let why = self.stalled.clone()?;
        Some(LogError::Stalled {
            path: self.path.clone(),
            why,
        })
    }

    /// Waits up to `timeout` for a change of the log's health.
    pub fn wait(&mut self, timeout: Duration) {
        if let Ok(health) = self.health.recv_timeout(timeout) {
            self.update_health(health);
        }
    }

    fn listen(&mut self) {
        while let Ok(health) = self.health.try_recv() {
            self.update_health(health);
        }
    }

    fn update_health(&mut self, health: Health) {
        self.stalled = match health {
            Health::Stalled(why) => Some(why),
            Health::Recovered => None,
        };
    }
}

/// A full disk may be freed; a limit of the process persists unless it is raised.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::FileTooLarge => {
            "the limit on file sizes is reached (ulimit -f; `prlimit --pid PID --fsize=unlimited` raises it)".into()
        }
        _ => error.to_string(),
    }
}

/// The log's thread.
#[derive(Debug)]
pub struct LogThread {
    thread: JoinHandle<Result<u64, LogError>>,
    closing: Arc<AtomicBool>,
    begin: u64,
}

impl LogThread {
    /// The last number in the log when it was opened.
    pub fn begin_seq(&self) -> u64 {
        self.begin
    }

    /// Waits until everything queued is on disk (the sender must be dropped) and returns the last sequence number. A
    /// failing disk gets one more attempt after the sender was dropped.
    ///
    /// # Errors
    /// The last lines could not be written.
    pub fn finish(self) -> Result<u64, LogError> {
        self.closing.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or(Err(LogError::Closed))
    }
}

/// What the writer needs of a file; tests substitute a full disk.
trait Sink: Send + 'static {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Truncates the file to `length` bytes: removes a partial append.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    /// Opens the file anew by its name: a handle that a file server has forgotten never works again.
    fn reopen(&mut self, path: &Path) -> io::Result<()>;
}

impl Sink for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn reopen(&mut self, path: &Path) -> io::Result<()> {
        // Not created: a log that is gone is not this one.
        *self = open_plain_with(OpenOptions::new().read(true).append(true), path)?;
        Ok(())
    }
}

struct Appender<S, G> {
    path: PathBuf,
    sink: S,
    /// Bytes of complete lines.
    length: u64,
    /// A part of a line may stand behind them.
    torn: bool,
    seq: u64,
    /// Newest step mentioned, for the writer's own warnings.
    step: u64,
    clock: Arc<dyn Clock>,
    grown: G,
}

fn start<S: Sink, G: FnMut(u64) + Send + 'static>(
    appender: Appender<S, G>,
) -> (LogSender, LogThread) {
    let (events, queue) = mpsc::sync_channel(QUEUE);
    let (health_tx, health) = mpsc::channel();
    let closing = Arc::new(AtomicBool::new(false));
    let sender = LogSender {
        path: appender.path.clone(),
        events,
        health,
        stalled: None,
        closing: Arc::clone(&closing),
    };
    let flag = Arc::clone(&closing);
    let begin = appender.seq;
    let thread = std::thread::spawn(move || appender.run(&queue, &health_tx, &flag));
    (
        sender,
        LogThread {
            thread,
            closing,
            begin,
        },
    )
}

impl<S: Sink, G: FnMut(u64)> Appender<S, G> {
    fn run(
        mut self,
        queue: &Receiver<Event>,
        health_tx: &Sender<Health>,
        closing: &AtomicBool,
    ) -> Result<u64, LogError> {
        while let Ok(first) = queue.recv() {
            let mut batch = String::new();
            let mut durable = self.number(first, &mut batch);
            for event in queue.try_iter().take(BATCH - 1) {
                durable |= self.number(event, &mut batch);
            }
            self.append(batch, health_tx, closing)?;
            if durable {
                // A log that cannot be synced still has the lines; the next checkpoint tries again.
                let _ = self.sink.sync();
            }
            (self.grown)(self.seq);
        }
        Ok(self.seq)
    }

    /// Numbers the event and adds its line to the batch. Returns true if the line must survive a power failure.
    fn number(&mut self, event: Event, batch: &mut String) -> bool {
        let durable = matches!(event, Event::Checkpointed { .. } | Event::Finished { .. });
        if let Event::Stepped { step, .. } | Event::RolledBack { step } = event {
            self.step = step;
        }
        let mut line = self.line(event);
        if line.len() > MAX_LINE {
            line = self.line(Event::Warned {
                step: self.step,
                code: "event_too_long".into(),
                message: format!("an event of {} bytes was too large to log", line.len()),
                hint: format!("lines of the log are limited to {MAX_LINE} bytes"),
            });
        }
        self.seq += 1;
        batch.push_str(&line);
        durable
    }

    fn line(&self, event: Event) -> String {
        encode(&Envelope {
            v: VERSION,
            seq: self.seq + 1,
            t: self.clock.now(),
            event,
        })
    }

    /// Appends the whole batch, waiting for the disk as long as it takes; a wait is logged afterwards.
    fn append(
        &mut self,
        mut batch: String,
        health_tx: &Sender<Health>,
        closing: &AtomicBool,
    ) -> Result<(), LogError> {
        let mut stalled_since = None;
        loop {
            // Checked before the attempt: if the log is closed during it, there is one more.
            let last_try = closing.load(Ordering::Relaxed);
            match self.try_append(&mut batch) {
                Ok(()) => break,
                Err(error) if last_try => {
                    let path = self.path.clone();
                    return Err(LogError::Io { path, error });
                }
                Err(error) => {
                    if stalled_since.is_none() {
                        stalled_since = Some(self.clock.elapsed());
                        let _ = health_tx.send(Health::Stalled(why(&error)));
                    }
                    if error.kind() == io::ErrorKind::StaleNetworkFileHandle
                        && self.sink.reopen(&self.path).is_ok()
                        && self.repair_tail().is_ok()
                    {
                        continue;
                    }
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "`finish` ends this wait: it has unparked us"
                    )]
                    std::thread::park_timeout(RETRY);
                }
            }
        }
        if let Some(since) = stalled_since {
            let _ = health_tx.send(Health::Recovered);
            batch.clear();
            let waited = self.clock.elapsed().saturating_sub(since);
            let warning = self.stall_warning(waited);
            self.number(warning, &mut batch);
            return self.append(batch, health_tx, closing);
        }
        Ok(())
    }

    fn stall_warning(&self, waited: Duration) -> Event {
        Event::Warned {
            step: self.step,
            code: "log_stalled".into(),
            message: format!(
                "the log could not be written for {}",
                crate::base::human::duration(waited)
            ),
            hint: "the disk was full or failed; nothing was lost, the run waited".into(),
        }
    }

    /// Appends the batch at once; if that fails, line by line, so that the remaining space holds complete lines. Written
    /// lines are removed from the batch.
    fn try_append(&mut self, batch: &mut String) -> io::Result<()> {
        if self.append_whole(batch).is_ok() {
            batch.clear();
            return Ok(());
        }
        while let Some(end) = batch.find('\n') {
            self.append_whole(&batch[..=end])?;
            batch.drain(..=end);
        }
        Ok(())
    }

    /// Appends all of `text` or nothing.
    fn append_whole(&mut self, text: &str) -> io::Result<()> {
        self.repair_tail()?;
        let appended = self.sink.append(text.as_bytes());
        match appended {
            Ok(()) => self.length += text.len() as u64,
            Err(_) => {
                self.torn = true;
                self.repair_tail()?;
            }
        }
        appended
    }

    /// Cuts off what a failed append left behind; what cannot be cut off now is before the next append.
    fn repair_tail(&mut self) -> io::Result<()> {
        if self.torn {
            self.sink.cut(self.length)?;
            self.torn = false;
        }
        Ok(())
    }
}

/// Opens for appending after the last complete line: (file, length, last sequence number).
fn open_end(path: &Path) -> Result<(File, u64, u64), LogError> {
    let io_error = |error| LogError::Io {
        path: path.into(),
        error,
    };
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    let file = open_plain_with(&mut options, path).map_err(io_error)?;
    let size = file.metadata().map_err(io_error)?.len();
    let length = behind_last_newline(&file, size).map_err(io_error)?;
    if length < size {
        file.set_len(length).map_err(io_error)?;
    }
    let seq = last_seq(path, length)?;
    Ok((file, length, seq))
}

fn behind_last_newline(file: &File, size: u64) -> io::Result<u64> {
    let mut buffer = vec![0; 64 * 1024];
    let mut end = size;
    while end > 0 {
        let n = end.min(buffer.len() as u64) as usize;
        let begin = end - n as u64;
        file.read_exact_at(&mut buffer[..n], begin)?;
        if let Some(i) = buffer[..n].iter().rposition(|&b| b == b'\n') {
            return Ok(begin + i as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// The number of the last readable line of a log of `length` bytes; 0 in an empty one.
fn last_seq(path: &Path, length: u64) -> Result<u64, LogError> {
    match last_within(path, length) {
        Ok(last) => Ok(last.map_or(0, |envelope| envelope.seq)),
        Err(TailError::Io(error)) => Err(LogError::Io {
            path: path.into(),
            error,
        }),
        Err(TailError::Foreign(error)) => Err(LogError::Foreign {
            path: path.into(),
            error,
        }),
    }
}

#[cfg(test)]
mod tests;
