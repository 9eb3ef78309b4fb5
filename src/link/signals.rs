//! Signal handling of an engine process: ignore SIGHUP, save and stop on SIGTERM or SIGINT, and turn a file-size limit
//! into an error of the write that hit it. Also interrupts for interactive commands.

use crate::wire::{Command, Request, StopWhen};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, channel};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::error::TrySendError;

/// The effect of a closed terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// None: the process is detached.
    Ignore,
    /// Save and stop: the process belongs to the terminal.
    Stop,
}

/// Installs the handlers and returns once they are active. SIGTERM and SIGINT set `stop` (save, then stop); a second
/// one sends `Stop now`.
pub fn handle(stop: Arc<AtomicBool>, engine: SyncSender<Request>, hangup: Hangup) {
    let (ready, installed) = channel::<()>();
    super::on_own_runtime(async move {
        // Must stay alive: a handled SIGXFSZ turns the kill into an error of the write that hit the limit.
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

/// From now on SIGINT goes into a channel and no longer terminates the process.
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
