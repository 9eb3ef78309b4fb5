//! An engine in this process: its thread, its log, its commands, its stop flag, and optionally the socket for viewers in
//! other processes. The engine itself sees an [`EngineIo`] and is unaware of sockets.

use super::address::AddressError;
use super::alarm::{Alarm, STALLED};
use super::bound::Socket;
use super::final_event::{EngineProgress, FinalEventWriter, OnPanic};
use super::route::EngineEnd;
use super::server::{Served, Server};
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
    #[error(
        "the engine's thread cannot be started: {0}; raise the limit on processes or address space (ulimit -u, ulimit -v)"
    )]
    Thread(std::io::Error),
    #[error("the run's lock: {0}")]
    Lock(std::io::Error),
    /// The run was taken from its engine.
    #[error("{0}")]
    Lost(String),
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
    /// For what ends the process while the engine runs.
    pub final_event: FinalEventWriter,
}

/// The engine's writer to the log. A full disk blocks it, and training, until there is space or a stop is requested;
/// viewers are notified, outside the log.
#[derive(Debug)]
pub struct Emitter {
    log: LogSender,
    stop: Arc<AtomicBool>,
    raise: watch::Sender<Option<Alarm>>,
    engine: Arc<EngineProgress>,
    lost: u64,
}

impl Drop for Emitter {
    fn drop(&mut self) {
        self.engine.close();
    }
}

impl Emitter {
    /// Appends an event to the log.
    pub fn emit(&mut self, event: Event) {
        self.engine.note(&event);
        let mut owed = event;
        loop {
            owed = match self.log.emit(owed) {
                Ok(()) => break,
                Err(refused) if self.stopping() || matches!(refused.1, LogError::Closed) => {
                    self.lost += 1;
                    return;
                }
                Err(refused) => {
                    let (event, error) = *refused;
                    self.raise_stall_alarm(&error);
                    event
                }
            };
        }
        let mut told = false;
        while !self.stopping()
            && let Some(error) = self.log.stalled()
        {
            if !std::mem::replace(&mut told, true) {
                self.raise_stall_alarm(&error);
            }
            self.log.wait(STALL_PAUSE);
        }
        if told {
            self.raise
                .send_if_modified(|alarm| alarm.take_if(|alarm| alarm.code == STALLED).is_some());
        }
    }

    fn raise_stall_alarm(&self, error: &LogError) {
        let alarm = Alarm {
            code: STALLED,
            message: format!("the log cannot be written, so training waits: {error}"),
            hint: "free disk space if the disk is full, or stop the run",
        };
        self.raise.send_if_modified(|now| {
            let news = now.as_ref() != Some(&alarm);
            *now = Some(alarm);
            news
        });
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
    raise: watch::Sender<Option<Alarm>>,
    server: Option<Server>,
    claim: Lock,
    progress: Arc<EngineProgress>,
    started: SystemClock,
}

/// How viewers in other processes reach an engine.
#[derive(Debug)]
pub struct Endpoint {
    env: Env,
    socket: Option<Socket>,
}

impl Endpoint {
    /// A socket in the runtime directory, or inside the run's folder.
    ///
    /// # Errors
    /// Neither can be had, or another engine answers there.
    pub fn open(env: &Env, run: &RunDir) -> Result<Endpoint, AddressError> {
        Ok(Endpoint {
            env: env.clone(),
            socket: Some(Socket::bind(env, run)?),
        })
    }

    /// No socket yet: a place is sought while the engine runs.
    pub fn deferred(env: &Env) -> Endpoint {
        Endpoint {
            env: env.clone(),
            socket: None,
        }
    }
}

impl<T: Send + 'static> Host<T> {
    /// Starts `engine` on its own thread. `claim` is the run's lock, held until [`Host::wait`] returns. With an open `door`,
    /// viewers can connect before the engine's first event.
    ///
    /// # Errors
    /// The log cannot be opened, or no thread can be started.
    pub fn start(
        run: &RunDir,
        claim: Lock,
        door: Option<Endpoint>,
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
        let stop = Arc::new(AtomicBool::new(false));
        let (raise, _) = watch::channel(None);
        let progress = EngineProgress::of(sender.queue_handle());
        let started = SystemClock::new();
        let final_event = FinalEventWriter {
            engine: Arc::clone(&progress),
            events: run.events_path(),
            started,
        };
        let io = EngineIo {
            final_event,
            emitter: Emitter {
                log: sender,
                stop: Arc::clone(&stop),
                raise: raise.clone(),
                engine: Arc::clone(&progress),
                lost: 0,
            },
            commands: receiver,
            stop: Arc::clone(&stop),
        };
        let engine = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || engine(io))
            .map_err(HostError::Thread)?;
        let mut host = Host {
            run: run.clone(),
            engine,
            log,
            commands,
            growth,
            stop,
            raise,
            server: None,
            claim,
            progress,
            started,
        };
        if let Some(door) = door {
            host.serve_at(door)?;
        }
        Ok(host)
    }

    /// Opens the run's socket for viewers in other processes, later than [`Host::start`] would.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn serve(&mut self, env: &Env) -> Result<(), HostError> {
        self.serve_at(Endpoint::open(env, &self.run)?)
    }

    fn serve_at(&mut self, door: Endpoint) -> Result<(), HostError> {
        let _end = OnPanic::of_thread_start(self.final_event());
        let served = Served {
            run: self.run.clone(),
            env: door.env,
            growth: self.growth.clone(),
            engine: self.end(),
            raise: self.raise.clone(),
            claim: self.claim.identity().map_err(HostError::Lock)?,
        };
        self.server = Some(Server::start(door.socket, served));
        Ok(())
    }

    /// The engine as viewers reach it.
    fn end(&self) -> EngineEnd {
        let mut alarms = self.raise.subscribe();
        // One that was raised before is news to who comes now.
        alarms.mark_changed();
        EngineEnd {
            commands: self.commands.clone(),
            stop: Arc::clone(&self.stop),
            alarms,
        }
    }

    /// A viewer's end in this process.
    pub fn link(&self) -> Link {
        let _end = OnPanic::of_thread_start(self.final_event());
        thread::link(&self.run.events_path(), self.growth.clone(), self.end())
    }

    /// Writes the engine's final event if an allocation fails.
    pub fn final_event(&self) -> FinalEventWriter {
        FinalEventWriter {
            engine: Arc::clone(&self.progress),
            events: self.run.events_path(),
            started: self.started,
        }
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
    ///
    /// # Errors
    /// The engine panicked, the log was lost, or its last lines could not be written.
    pub fn wait(self) -> Result<T, HostError> {
        let ending = self.engine.join();
        let logged = self.log.finish();
        let lost = self.raise.borrow().clone().filter(Alarm::is_fatal);
        drop(self.growth);
        if let Some(server) = &self.server {
            server.wait_closed();
        }
        drop(self.claim);
        if let Some(server) = self.server {
            server.join();
        }
        let ending = ending.map_err(|_| HostError::Panicked)?;
        if let Some(lost) = lost {
            return Err(HostError::Lost(lost.message));
        }
        logged?;
        Ok(ending)
    }
}
