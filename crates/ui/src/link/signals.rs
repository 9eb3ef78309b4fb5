//! Signal handling of an engine process: ignore SIGHUP, save and stop on SIGTERM, SIGINT, SIGQUIT or SIGUSR1, and turn a file-size limit
//! into an error of the write that hit it. Also interrupts for interactive commands.

use crate::base::clock::{Clock, SystemClock};
use crate::wire::{Command, Request, StopWhen};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
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

/// Signals closer to each other than this are one request: shells, schedulers and impatient hands send several.
const SAME: Duration = Duration::from_secs(1);

/// Writes that hit a file-size limit fail from now on; without this the process would be killed. No thread is started.
pub fn ignore_sigxfsz() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    if let Ok(runtime) = runtime {
        let _inside = runtime.enter();
        // Its handler outlives the runtime, and turns the kill into an error of the write that hit the limit.
        let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
    }
}

/// Signals that are heard, whether or not there is an engine yet that they could stop.
#[derive(Debug, Clone, Default)]
pub struct SignalHandlers(Arc<SignalState>);

#[derive(Debug, Default)]
struct SignalState {
    /// One came.
    any: AtomicBool,
    /// The engine's flag and its commands.
    engine: OnceLock<(Arc<AtomicBool>, SyncSender<Request>)>,
}

impl SignalHandlers {
    /// Signals go to this engine from now on; one that came before stops it at once.
    pub fn attach(&self, stop: Arc<AtomicBool>, engine: SyncSender<Request>) {
        let (stop, _) = self.0.engine.get_or_init(|| (stop, engine));
        if self.0.any.load(Ordering::SeqCst) {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// [`listen`] for an engine that is there already.
pub fn handle(stop: Arc<AtomicBool>, engine: SyncSender<Request>, hangup: Hangup) {
    listen(hangup).attach(stop, engine);
}

/// Installs the handlers and returns once they are active. SIGTERM, SIGINT, SIGQUIT and SIGUSR1 (of schedulers) set the
/// engine's stop flag (save, then stop); a later one sends `Stop now`. Without an engine they have no effect. Child processes
/// have the default handlers.
pub fn listen(hangup: Hangup) -> SignalHandlers {
    let hangup = match ignores_hangup() {
        true => Hangup::Ignore,
        false => hangup,
    };
    let listening = SignalHandlers::default();
    let heard_by = listening.clone();
    let (ready, installed) = channel::<()>();
    super::on_own_runtime(async move {
        let mut ends = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
        ]
        .map(|kind| signal(kind).ok());
        let mut hang_up = signal(SignalKind::hangup()).ok();
        drop(ready);
        let clock = SystemClock::new();
        let mut first = None;
        loop {
            let [terminate, interrupt, quit, user] = &mut ends;
            tokio::select! {
                () = next_signal(terminate) => {}
                () = next_signal(interrupt) => {}
                () = next_signal(quit) => {}
                () = next_signal(user) => {}
                () = next_signal(&mut hang_up) => if hangup == Hangup::Ignore { continue },
            }
            let now = clock.elapsed();
            heard_by.0.any.store(true, Ordering::SeqCst);
            let Some((stop, engine)) = heard_by.0.engine.get() else {
                continue;
            };
            stop.store(true, Ordering::Relaxed);
            if now.saturating_sub(*first.get_or_insert(now)) < SAME {
                continue;
            }
            let command = Command::Stop {
                when: StopWhen::Now,
            };
            let _ = engine.try_send(Request { id: 0, command });
        }
    });
    let _ = installed.recv();
    listening
}

/// Whether SIGHUP was ignored when this process began, as `nohup` has it: whoever asks for that wants the run to go on.
/// False where the kernel does not say.
fn ignores_hangup() -> bool {
    let status = crate::base::files::read_plain_text("/proc/self/status").unwrap_or_default();
    is_ignored(&status, rustix::process::Signal::HUP.as_raw())
}

/// `SigIgn:` of proc(5) has a bit for each signal, the first for signal 1, in hexadecimal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// From now on SIGINT goes into a channel and no longer terminates the process.
pub fn interrupts() -> tokio::sync::mpsc::Receiver<()> {
    let (send, receive) = tokio::sync::mpsc::channel(4);
    let (ready, installed) = channel::<()>();
    super::on_own_runtime(async move {
        let mut interrupt = signal(SignalKind::interrupt()).ok();
        drop(ready);
        loop {
            next_signal(&mut interrupt).await;
            if matches!(send.try_send(()), Err(TrySendError::Closed(()))) {
                return;
            }
        }
    });
    let _ = installed.recv();
    receive
}

async fn next_signal(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_the_parent_ignores_is_found_in_the_mask() {
        let status =
            |mask: &str| format!("Name:\tllmtui\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        for (mask, ignored) in [
            ("0000000000001001", true),
            ("0000000000001000", false),
            ("odd", false),
        ] {
            assert_eq!(is_ignored(&status(mask), 1), ignored, "{mask}");
        }
        assert!(is_ignored(&status("0000000000001000"), 13));
        assert!(!is_ignored("", 1));
    }
}
