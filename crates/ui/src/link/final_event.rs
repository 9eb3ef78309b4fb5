//! The final event of an engine whose allocation failed: its end, with the reason. Another thread writes it while the engine's
//! threads are stopped anywhere, so it waits for nothing but the log.

use crate::base::clock::{Clock, SystemClock};
use crate::base::files::open_plain_with;
use crate::run::log::last_event;
use crate::wire::{Envelope, Event, Outcome, VERSION, encode};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

/// Waits for room in the queue, and for the line on the disk.
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: u32 = 100;

/// How far an engine is, and the queue of its log while it lives.
#[derive(Debug, Default)]
pub(super) struct EngineProgress {
    log: Mutex<Option<SyncSender<Event>>>,
    step: AtomicU64,
    tokens: AtomicU64,
    /// The final event is being written: nothing may follow it.
    ending: AtomicBool,
}

impl EngineProgress {
    pub fn of(log: SyncSender<Event>) -> Arc<EngineProgress> {
        Arc::new(EngineProgress {
            log: Mutex::new(Some(log)),
            ..EngineProgress::default()
        })
    }

    /// Before an event is logged. Never returns once the final event is being written: the process is about to exit.
    pub fn note(&self, event: &Event) {
        while self.ending.load(Ordering::Acquire) {
            std::thread::park();
        }
        if let Event::Stepped { step, tokens, .. } = event {
            self.step.store(*step, Ordering::Relaxed);
            self.tokens.store(*tokens, Ordering::Relaxed);
        }
    }

    /// The engine ends by itself: the log can close.
    pub fn close(&self) {
        if let Ok(mut log) = self.log.lock() {
            *log = None;
        }
    }
}

/// Writes the final event of one engine.
#[derive(Debug)]
pub struct FinalEventWriter {
    pub(super) engine: Arc<EngineProgress>,
    pub(super) events: PathBuf,
    pub(super) started: SystemClock,
}

/// Logs the run's end where the thread that holds it panics: the process ends then, and with it the engine.
#[derive(Debug)]
pub struct OnPanic {
    word: FinalEventWriter,
    what: &'static str,
}

impl OnPanic {
    /// Where a thread is started: the runtime panics if none can be had.
    pub(super) fn of_thread_start(word: FinalEventWriter) -> OnPanic {
        let what = "no thread can be started; raise the limit on processes or address space (ulimit -u, ulimit -v)";
        OnPanic { word, what }
    }

    /// On the thread that waits for the engine.
    pub fn of_main_thread(word: FinalEventWriter) -> OnPanic {
        let what = "the program's main thread panicked; its standard error says where";
        OnPanic { word, what }
    }
}

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.word.write(self.what);
        }
    }
}

impl FinalEventWriter {
    /// Logs that the run ended for lack of `what`. Returns whether the line is on the disk.
    pub fn write(&self, what: &str) -> bool {
        let log = match self.engine.log.try_lock() {
            Ok(log) => log.clone(),
            Err(TryLockError::Poisoned(log)) => log.into_inner().clone(),
            Err(TryLockError::WouldBlock) => None,
        };
        let Some(log) = log else { return false };
        self.engine.ending.store(true, Ordering::Release);
        let mut event = Event::Finished {
            outcome: Outcome::Starved,
            step: self.engine.step.load(Ordering::Relaxed),
            tokens: self.engine.tokens.load(Ordering::Relaxed),
            val_loss: None,
            best: None,
            train_loss: None,
            seconds: self.started.elapsed().as_secs_f64(),
            message: what.to_string(),
        };
        let end = event.clone();
        for _ in 0..PATIENCE {
            event = match log.try_send(event) {
                Ok(()) => break,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(event)) => event,
            };
            crate::base::clock::pause(PAUSE);
        }
        self.is_logged() || self.append(end).is_ok()
    }

    fn is_logged(&self) -> bool {
        (0..PATIENCE).any(|_| {
            crate::base::clock::pause(PAUSE);
            self.ends()
        })
    }

    /// Writes the line past the log's thread, which may be held as the engine's is: it writes nothing any more.
    fn append(&self, event: Event) -> io::Result<()> {
        let seq = last_event(&self.events)?.map_or(0, |last| last.seq);
        let line = encode(&Envelope {
            v: VERSION,
            seq: seq + 1,
            t: self.started.now(),
            event,
        });
        let mut file = open_plain_with(OpenOptions::new().read(true).append(true), &self.events)?;
        let length = file.metadata()?.len();
        let mut last = [b'\n'];
        file.read_exact_at(&mut last, length.saturating_sub(1))?;
        // Half a line that was begun: closed, readers pass over it.
        let close = if last[0] == b'\n' { "" } else { "\n" };
        file.write_all(format!("{close}{line}").as_bytes())?;
        file.sync_data()
    }

    /// Whether the log's last line is an end.
    fn ends(&self) -> bool {
        let last = last_event(&self.events);
        last.is_ok_and(|last| last.is_some_and(|last| matches!(last.event, Event::Finished { .. })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{LogWriter, log::read_all};

    #[test]
    fn an_engine_that_is_held_still_says_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let events = dir.path().join("events.jsonl");
        let (sender, _log) =
            LogWriter::open(&events, Arc::new(SystemClock::new()), |_| ()).unwrap();
        let word = FinalEventWriter {
            engine: EngineProgress::of(sender.queue_handle()),
            events: events.clone(),
            started: SystemClock::new(),
        };
        word.engine.note(&Event::Stepped {
            step: 7,
            tokens: 70,
            values: Default::default(),
        });
        assert!(word.write("no memory"));
        let last = read_all(&events).unwrap().pop().unwrap().event;
        assert!(
            matches!(&last, Event::Finished { outcome: Outcome::Starved, step: 7, tokens: 70, message, .. } if message == "no memory"),
            "{last:?}"
        );
        // The log's thread is held: it takes what is sent and writes nothing.
        let (stuck, _queue) = std::sync::mpsc::sync_channel(1);
        let long = encode(&Envelope {
            v: VERSION,
            seq: 40,
            t: crate::base::clock::UnixMillis(0),
            event: Event::Noted {
                step: 7,
                text: "y".repeat(200_000),
            },
        });
        std::fs::write(&events, long + "{\"v\":1,\"seq\":41").unwrap();
        let word = FinalEventWriter {
            engine: EngineProgress::of(stuck),
            ..word
        };
        assert!(word.write("no memory"));
        let last = read_all(&events).unwrap().pop().unwrap();
        assert!(matches!(last.event, Event::Finished { .. }));
        assert_eq!(last.seq, 41, "a fold passes over what it has seen");
        word.engine.close();
        assert!(!word.write("again"), "its log is closed");
    }
}
