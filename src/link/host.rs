//! An engine in this process: its thread, its log, its commands, its stop flag, and optionally the socket for viewers in
//! other processes. The engine itself sees an [`EngineIo`] and is unaware of sockets.

use super::address::AddressError;
use super::server::Server;
use super::{COMMANDS, Link, thread};
use crate::base::clock::{Clock, SystemClock};
use crate::base::files::Lock;
use crate::base::paths::Env;
use crate::run::{LogError, LogSender, LogThread, LogWriter, RunDir};
use crate::wire::{Event, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// How often an engine waiting for the disk checks the stop flag.
const STALL_PAUSE: Duration = Duration::from_millis(100);

/// Why an engine could not be started, or how it ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("the engine panicked")]
    Panicked,
}

/// The engine's connections to the outside.
#[derive(Debug)]
pub struct EngineIo {
    pub emitter: Emitter,
    pub commands: Receiver<Request>,
    /// Set from outside: checkpoint and stop.
    pub stop: Arc<AtomicBool>,
}

/// The engine's writer to the log. A full disk blocks it, and training, until there is space or a stop is requested.
#[derive(Debug)]
pub struct Emitter {
    log: LogSender,
    stop: Arc<AtomicBool>,
    lost: u64,
}

impl Emitter {
    /// Appends an event to the log.
    pub fn emit(&mut self, event: Event) {
        let mut owed = event;
        loop {
            owed = match self.log.emit(owed) {
                Ok(()) => break,
                Err(refused) if self.stopping() || matches!(refused.1, LogError::Closed) => {
                    self.lost += 1;
                    return;
                }
                Err(refused) => refused.0,
            };
        }
        while !self.stopping() && self.log.stalled().is_some() {
            self.log.wait(STALL_PAUSE);
        }
    }

    /// Events dropped because the disk stayed full until the stop.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A running engine; `T` is its result.
#[derive(Debug)]
pub struct Host<T> {
    run: RunDir,
    engine: JoinHandle<T>,
    log: LogThread,
    commands: SyncSender<Request>,
    growth: watch::Receiver<u64>,
    stop: Arc<AtomicBool>,
    server: Option<Server>,
    claim: Lock,
}

impl<T: Send + 'static> Host<T> {
    /// Starts `engine` on its own thread. `claim` is the run's lock, held until [`Host::wait`] returns. With `door`, the
    /// run's socket is open before the engine's first event.
    pub fn start(
        run: &RunDir,
        claim: Lock,
        door: Option<&Env>,
        engine: impl FnOnce(EngineIo) -> T + Send + 'static,
    ) -> Result<Host<T>, HostError> {
        let (grown, growth) = watch::channel(0);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (sender, log) = LogWriter::open(&run.events_path(), clock, {
            let grown = grown.clone();
            move |seq| {
                grown.send_replace(seq);
            }
        })?;
        grown.send_replace(log.begin_seq());
        drop(grown);
        let (commands, receiver) = sync_channel(COMMANDS);
        let server = door
            .map(|env| Server::start(run, env, growth.clone(), commands.clone()))
            .transpose()?;
        let stop = Arc::new(AtomicBool::new(false));
        let io = EngineIo {
            emitter: Emitter {
                log: sender,
                stop: Arc::clone(&stop),
                lost: 0,
            },
            commands: receiver,
            stop: Arc::clone(&stop),
        };
        Ok(Host {
            run: run.clone(),
            engine: std::thread::spawn(move || engine(io)),
            log,
            commands,
            growth,
            stop,
            server,
            claim,
        })
    }

    /// Opens the run's socket for viewers in other processes, later than [`Host::start`] would.
    pub fn serve(&mut self, env: &Env) -> Result<(), HostError> {
        let server = Server::start(&self.run, env, self.growth.clone(), self.commands.clone())?;
        self.server = Some(server);
        Ok(())
    }

    /// A viewer's end in this process.
    pub fn link(&self) -> Link {
        thread::link(
            &self.run.events_path(),
            self.growth.clone(),
            self.commands.clone(),
        )
    }

    /// The number of the last event in the log before this engine's first.
    pub fn begin_seq(&self) -> u64 {
        self.log.begin_seq()
    }

    /// Set it to make the engine save and stop.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// The engine's command queue, for callers without a link (signal handlers).
    pub fn commands(&self) -> SyncSender<Request> {
        self.commands.clone()
    }

    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// Waits for the engine, for its final events to be on disk, and briefly for viewers to read them. The run is free
    /// for another engine as soon as the log is closed.
    pub fn wait(self) -> Result<T, HostError> {
        let ending = self.engine.join();
        let logged = self.log.finish();
        drop(self.growth);
        if let Some(server) = &self.server {
            server.wait_closed();
        }
        drop(self.claim);
        if let Some(server) = self.server {
            server.join();
        }
        let ending = ending.map_err(|_| HostError::Panicked)?;
        logged?;
        Ok(ending)
    }
}
