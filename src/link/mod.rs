//! Ways to hold an engine. A [`Link`] is two bounded channels and a word on what is at the other end; how it was made
//! (thread, socket, stdio, replay) no longer matters to its holder. Dropping a link detaches; it never stops a run.

mod address;
mod feed;
mod host;
pub mod launch;
mod open;
mod pipe;
mod preflight;
mod replay;
mod route;
mod server;
pub mod signals;
mod socket;
pub mod stdio;
mod thread;

pub use address::{AddressError, secure_dir, socket_path};
pub use host::{Emitter, EngineIo, Host, HostError};
pub use open::{OpenError, open};
pub use replay::replay;
pub use socket::{ConnectError, answers, connect, relay};

use crate::wire::{Command, CommandId, Envelope, Request};
use tokio::sync::mpsc;

/// Events waiting for a viewer; when full, the sender reads the gap from the log instead of queueing.
pub const EVENTS: usize = 4096;
/// Commands waiting for an engine; when full, the viewer says "engine busy".
pub const COMMANDS: usize = 64;

/// What arrives from the other end. An envelope with `seq` 0 is an answer of the link itself (a busy engine, a ping): it is
/// not in the log and no part of the run's history.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    Event(Box<Envelope>),
    /// Everything that was in the log when the link was made has been delivered; what follows is live.
    CaughtUp,
    /// The other end is gone; `None` is a normal end (the log is finished, or we detached).
    Closed(Option<String>),
}

/// Why a command could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the engine is busy: {COMMANDS} commands are waiting; try again in a moment")]
    Busy,
    #[error("the engine is gone")]
    Closed,
    #[error("this run is finished: there is no engine to command")]
    Replay,
}

/// A held engine.
#[derive(Debug)]
pub struct Link {
    events: mpsc::Receiver<Incoming>,
    commands: Option<mpsc::Sender<Request>>,
    next_id: CommandId,
}

impl Link {
    /// `commands` is absent on a replay.
    pub fn new(events: mpsc::Receiver<Incoming>, commands: Option<mpsc::Sender<Request>>) -> Self {
        Link {
            events,
            commands,
            next_id: first_id(),
        }
    }

    /// Waits for the next arrival; `Closed(None)` for ever once the sender is gone. Cancel-safe.
    pub async fn recv(&mut self) -> Incoming {
        self.events.recv().await.unwrap_or(Incoming::Closed(None))
    }

    /// Waits for the next arrival on a thread that runs no async code.
    pub fn blocking_recv(&mut self) -> Incoming {
        self.events
            .blocking_recv()
            .unwrap_or(Incoming::Closed(None))
    }

    /// Takes an arrival that is already there.
    pub fn try_recv(&mut self) -> Option<Incoming> {
        self.events.try_recv().ok()
    }

    /// Sends a command without waiting; the answer event carries the returned id.
    pub fn send(&mut self, command: Command) -> Result<CommandId, SendError> {
        let commands = self.commands.as_ref().ok_or(SendError::Replay)?;
        let id = self.next_id;
        commands
            .try_send(Request { id, command })
            .map_err(|e| match e {
                mpsc::error::TrySendError::Full(_) => SendError::Busy,
                mpsc::error::TrySendError::Closed(_) => SendError::Closed,
            })?;
        self.next_id += 1;
        Ok(id)
    }

    /// True when commands can be sent at all.
    pub fn live(&self) -> bool {
        self.commands.as_ref().is_some_and(|c| !c.is_closed())
    }
}

/// Command ids of a link begin at a place of their own: the log tells every viewer of the answers to all of them.
fn first_id() -> CommandId {
    (crate::run::id::random() >> 32) << 20 | 1
}

/// Runs `work` on a thread with a runtime of its own, so that holders of a link need none.
fn on_own_runtime(work: impl Future<Output = ()> + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        {
            runtime.block_on(work);
        }
    })
}
