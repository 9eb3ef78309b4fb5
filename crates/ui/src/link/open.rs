//! Connecting to a run in any state: the socket if an engine is running, else its log.

use super::follow::follow;
use super::{ConnectError, Link, connect, replay};
use crate::base::clock::{Clock, SystemClock};
use crate::base::paths::Env;
use crate::run::RunDir;
use std::time::Duration;

/// Time allowed for an engine between claiming the run and answering, and between closing its socket and releasing the run.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// How long an engine may be on its way. One of another machine listens there; it is asked again only because an engine that takes
/// over says so a moment after it has the lock.
fn patience(run: &RunDir) -> Duration {
    match run.holder().elsewhere {
        Some(_) => PATIENCE / 10,
        None => PATIENCE,
    }
}

/// Why a run cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the log of {run} cannot be read: {error}")]
    Log { run: String, error: std::io::Error },
}

/// Follows the log of a run whose engine cannot be reached.
fn watched(run: &RunDir, why: &str) -> Result<Link, OpenError> {
    follow(run, why).map_err(|error| OpenError::Log {
        run: run.id().into(),
        error,
    })
}

/// Connects to the run: every event from the first, then [`super::Incoming::CaughtUp`], then live events if there is an engine.
///
/// Blocks briefly while an engine is starting or ending. A live engine that nobody can reach is watched by way of its log.
///
/// # Errors
/// The log cannot be read.
pub fn open(run: &RunDir, env: &Env) -> Result<Link, OpenError> {
    let clock = SystemClock::new();
    if let Some(pid) = run.suspended_by() {
        return watched(run, &format!("process {pid} is suspended"));
    }
    while run.is_alive() {
        match connect(env, run, 1) {
            Ok(link) => return Ok(link),
            Err(ConnectError::Absent { .. }) if clock.elapsed() < patience(run) => {
                crate::base::clock::pause(PAUSE);
            }
            // The engine trains all the same: its log shows what it does.
            Err(e) => return watched(run, &e.to_string()),
        }
    }
    replay(&run.events_path()).map_err(|error| OpenError::Log {
        run: run.id().into(),
        error,
    })
}
