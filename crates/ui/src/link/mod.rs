//! Connections to an engine. A [`Link`] is two bounded channels and a note on what is at the other end; its kind
//! (thread, socket, stdio, replay) does not matter to its owner. Dropping a link detaches; it never stops a run.

mod address;
mod alarm;
mod bound;
mod feed;
mod final_event;
mod follow;
mod foreign;
mod host;
pub mod launch;
pub mod message;
mod open;
mod ownership;
mod pipe;
mod preflight;
mod replay;
mod reply;
mod route;
mod server;
pub mod signals;
mod socket;
pub mod stdio;
mod thread;
mod verbs;

pub use address::{AddressError, socket_path};
pub use final_event::{FinalEventWriter, OnPanic};
pub use foreign::foreign;
pub use host::{Emitter, Endpoint, EngineIo, Host, HostError};
pub use open::{OpenError, open};
pub use replay::replay;
pub use socket::{ConnectError, answers, connect, relay};

use crate::wire::{Command, CommandId, Envelope, MAX_LINE, Request, encode};
use tokio::sync::mpsc;

/// Events queued for a viewer; when full, the sender catches up from the log instead of queueing.
pub const EVENTS: usize = 4096;

/// Why a link ended where the engine wrote no last event: it was killed, or crashed.
pub const NO_FINAL_EVENT: &str = "the engine exited without a final event";
/// Commands queued for an engine; when full, the viewer reports "engine busy".
pub const COMMANDS: usize = 64;

/// A message from the other end. An envelope with `seq` 0 is a reply of the link itself (a busy engine, a ping): it is
/// not in the log and not part of the run's history.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    Event(Box<Envelope>),
    /// Everything in the log at the time of connecting has been delivered; what follows is live.
    CaughtUp,
    /// The other end is gone; `None` is a normal end (the log is complete, or we detached).
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
    #[error("the engine cannot be reached: only its log is shown")]
    ReadOnly,
    #[error("another program trains this run: it can only be watched")]
    Foreign,
    #[error(
        "the text is too long to send: {0} bytes with its escapes, of {MAX_LINE} at most; shorten it"
    )]
    TooLong(usize),
}

/// A connected engine.
#[derive(Debug)]
pub struct Link {
    events: mpsc::Receiver<Incoming>,
    commands: Option<mpsc::Sender<Request>>,
    next_id: CommandId,
    /// Why there are no commands.
    mute: SendError,
}

impl Link {
    /// `commands` is absent for a replay.
    pub fn new(events: mpsc::Receiver<Incoming>, commands: Option<mpsc::Sender<Request>>) -> Self {
        Link {
            events,
            commands,
            next_id: first_id(),
            mute: SendError::Replay,
        }
    }

    /// A live run that can only be watched.
    fn read_only(events: mpsc::Receiver<Incoming>) -> Self {
        Link {
            mute: SendError::ReadOnly,
            ..Link::new(events, None)
        }
    }

    /// Waits for the next message; `Closed(None)` forever once the sender is gone. Cancel-safe.
    pub async fn recv(&mut self) -> Incoming {
        self.events.recv().await.unwrap_or(Incoming::Closed(None))
    }

    /// Waits for the next message on a thread without async code.
    pub fn blocking_recv(&mut self) -> Incoming {
        self.events
            .blocking_recv()
            .unwrap_or(Incoming::Closed(None))
    }

    /// Takes a message that has already arrived.
    pub fn try_recv(&mut self) -> Option<Incoming> {
        self.events.try_recv().ok()
    }

    /// Sends a command without waiting; the answer event carries the returned id.
    ///
    /// # Errors
    /// The link takes no commands, is busy, or is closed; the command is longer than a line may be, at which the other end would
    /// hang up.
    pub fn send(&mut self, command: Command) -> Result<CommandId, SendError> {
        let commands = self.commands.as_ref().ok_or_else(|| self.mute.clone())?;
        let id = self.next_id;
        let request = Request { id, command };
        // Of the others none comes near.
        if matches!(
            request.command,
            Command::Generate { .. } | Command::Sample { .. }
        ) {
            let bytes = encode(&request).len();
            if bytes > MAX_LINE {
                return Err(SendError::TooLong(bytes));
            }
        }
        commands.try_send(request).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => SendError::Busy,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })?;
        self.next_id += 1;
        Ok(id)
    }

    /// True if an engine is at work that cannot be reached.
    pub fn is_read_only(&self) -> bool {
        self.mute == SendError::ReadOnly
    }

    /// True if commands can be sent at all.
    pub fn live(&self) -> bool {
        self.commands.as_ref().is_some_and(|c| !c.is_closed())
    }
}

/// Each link numbers its commands from its own offset, because the log shows every viewer the answers to all of them.
fn first_id() -> CommandId {
    (crate::run::id::random() >> 32) << 20 | 1
}

/// Runs `work` on a thread with its own runtime, so that link owners need none.
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
