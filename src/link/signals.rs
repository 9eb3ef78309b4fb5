//! What an engine process does with signals: a hang-up is none of its business, a request to end means save and stop, and
//! a file-size limit is an error of the write that hit it. And interrupts for whoever talks at a terminal.

use crate::wire::{Command, Request, StopWhen};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, channel};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::error::TrySendError;

/// What a closed terminal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// The process belongs to no terminal.
    Ignore,
    /// The process belongs to the terminal: save and stop.
    Stop,
}

/// Installs the handlers and returns when they are in place. SIGTERM and SIGINT set `stop` (save, then stop); a second
/// one sends `Stop now`.
pub fn handle(stop: Arc<AtomicBool>, engine: SyncSender<Request>, hangup: Hangup) {
    let (ready, installed) = channel::<()>();
    super::on_own_runtime(async move {
        // Kept alive: a handled SIGXFSZ turns the kill into an error of the write that hit the limit.
        let _limit = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
        let mut signals = [
            signal(SignalKind::terminate()).ok(),
            signal(SignalKind::interrupt()).ok(),
            signal(SignalKind::hangup()).ok(),
        ];
        drop(ready);
        loop {
            let [terminate, interrupt, hang_up] = &mut signals;
            tokio::select! {
                () = heard(terminate) => {}
                () = heard(interrupt) => {}
                () = heard(hang_up) => if hangup == Hangup::Ignore { continue },
            }
            if stop.swap(true, Ordering::Relaxed) {
                let now = Command::Stop {
                    when: StopWhen::Now,
                };
                let _ = engine.try_send(Request {
                    id: 0,
                    command: now,
                });
            }
        }
    });
    let _ = installed.recv();
}

/// SIGINT goes into a channel from now on, and ends this process no more.
pub fn interrupts() -> tokio::sync::mpsc::Receiver<()> {
    let (send, receive) = tokio::sync::mpsc::channel(4);
    let (ready, installed) = channel::<()>();
    super::on_own_runtime(async move {
        let mut interrupt = signal(SignalKind::interrupt()).ok();
        drop(ready);
        loop {
            heard(&mut interrupt).await;
            if matches!(send.try_send(()), Err(TrySendError::Closed(()))) {
                return;
            }
        }
    });
    let _ = installed.recv();
    receive
}

async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
