//! A run that waits for another one to end before it begins: two at a time would share processors and memory.

use super::emit::Port;
use super::{EngineError, EngineJob};
use crate::base::files::is_locked;
use crate::base::paths::Env;
use crate::base::text::one_line;
use crate::run::{RunDir, index};
use crate::spec::RunSpec;
use crate::wire::{Command, Event};
use std::path::PathBuf;

/// What a run waits for.
#[derive(Debug, Clone)]
pub struct After {
    /// The run whose end it waits for, however that one ends. Of one that ends before its own turn the wait passes on to the run that
    /// it waited for.
    pub run: RunDir,
    /// The lock of what trains other runs behind that one, such as a pipeline: while it is held the wait goes on.
    pub lock: fn(&RunDir) -> Option<PathBuf>,
    /// Whether the machine has what the run needs, asked when its turn has come; an error says what is missing.
    pub check: fn(&RunSpec, &Env) -> Result<(), String>,
}

/// Waits for the run that the job is to come after. A stop ends the wait; other commands are rejected.
///
/// # Errors
/// [`EngineError::Stopped`]; [`EngineError::Machine`] if the run does not fit the machine when its turn has come.
pub(super) fn wait(job: &EngineJob, port: &mut Port<'_>) -> Result<(), EngineError> {
    let Some(after) = &job.after else {
        return Ok(());
    };
    // Runs that once waited for each other, or for this one, make no circle.
    let mut seen = vec![job.run_dir.path().to_path_buf()];
    let mut next = Some(after.run.clone());
    while let Some(run) = next.take_if(|run| !seen.iter().any(|path| path == run.path())) {
        until_end(&run, (after.lock)(&run), port)?;
        seen.push(run.path().to_path_buf());
        next = index::waits_for(&run);
    }
    match job.force {
        true => Ok(()),
        false => (after.check)(&job.spec, &job.env).map_err(EngineError::Machine),
    }
}

/// Waits until no engine holds the run, and nothing the lock.
fn until_end(run: &RunDir, lock: Option<PathBuf>, port: &mut Port<'_>) -> Result<(), EngineError> {
    let goes_on = || run.is_alive() || lock.as_deref().is_some_and(is_locked);
    let name = one_line(&run.folder());
    if goes_on() {
        let after = name.clone();
        port.emit(Event::Queued { after });
    }
    while goes_on() {
        port.emit_telemetry();
        if port.stop_requested() {
            return Err(EngineError::Stopped);
        }
        let Some(request) = port.wait_for_command() else {
            continue;
        };
        if matches!(request.command, Command::Stop { .. }) {
            port.accept(request.id);
            return Err(EngineError::Stopped);
        }
        port.reject(request.id, format!("the run waits for {name} to end"));
    }
    Ok(())
}
