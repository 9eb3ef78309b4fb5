//! The limit on open files (`ulimit -n`), looked at before anything starts. A process that runs out of descriptors in the
//! middle fails wherever it happens to open one: without its log, without its handlers of signals, or without a word.

use super::exit::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors below which a run could not open its log, socket, signals, data and a checkpoint at once.
const LEAST: u64 = 64;
/// What a process raises its own limit to where it may: many shards of data are held open at once.
const ENOUGH: u64 = 4096;

/// Raises the soft limit towards [`ENOUGH`].
///
/// # Errors
/// The hard limit is below [`LEAST`].
pub fn check() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    let now = limit.current.unwrap_or(u64::MAX);
    let raised = now.max(most.min(ENOUGH));
    if raised > now {
        let raised = Rlimit {
            current: Some(raised),
            maximum: limit.maximum,
        };
        // As it was, else: it may well be enough.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let held = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if held < LEAST {
        return Err(Failure::machine(
            format!("this process may open only {held} files, but needs up to {LEAST}"),
            format!("ulimit -n {ENOUGH}, or raise the hard limit where it was set"),
        ));
    }
    Ok(())
}
