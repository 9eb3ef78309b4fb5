//! What viewers must be told although it cannot be in the log: the log stalls, or the run's folder is gone.

use super::reply::envelope;
use crate::base::clock::Clock;
use crate::wire::{Envelope, Event};
use tokio::sync::watch;

/// What is wrong now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Alarm {
    /// Stable id, as in `Warned`.
    pub code: &'static str,
    pub message: String,
    pub hint: &'static str,
}

/// Code of the alarm that nothing can be logged at present.
pub(super) const STALLED: &str = "log_stalled";

/// Code of the alarm that the engine's process is stopped by a signal.
const SUSPENDED: &str = "suspended";

/// The run's folder was moved or deleted.
pub(super) const RUN_GONE: &str = "run_gone";
/// Another engine took the run.
pub(super) const LOCK_LOST: &str = "lock_lost";

/// The engine's process is stopped by a signal: nothing comes from it, and nothing reaches it.
pub(super) fn suspended(pid: u32) -> Alarm {
    Alarm {
        code: SUSPENDED,
        message: format!(
            "process {pid} is suspended by a signal: training is halted and commands are not received; `kill -CONT {pid}` resumes it"
        ),
        hint: "steps since the last checkpoint exist only in its memory: do not kill it",
    }
}

impl Alarm {
    /// True where the engine has nothing left to work for.
    pub(super) fn is_fatal(&self) -> bool {
        [RUN_GONE, LOCK_LOST].contains(&self.code)
    }

    /// As a message of the link itself.
    pub(super) fn envelope(&self, clock: &dyn Clock) -> Envelope {
        let event = Event::Warned {
            step: 0,
            code: self.code.into(),
            message: self.message.clone(),
            hint: self.hint.into(),
        };
        envelope(event, clock)
    }
}

/// The newest alarm; `None` while all is well.
pub(super) type Alarms = watch::Receiver<Option<Alarm>>;

/// Waits for the next alarm; for ever once nobody can raise one. Cancel-safe.
pub(super) async fn next(alarms: &mut Alarms) -> Alarm {
    loop {
        if alarms.changed().await.is_err() {
            return std::future::pending().await;
        }
        let now = alarms.borrow_and_update().clone();
        if let Some(alarm) = now {
            return alarm;
        }
    }
}
