//! A run that waits for another one to end before it begins: two at a time would share processors and memory.

use super::emit::Port;
use super::{EngineError, EngineJob};
use crate::base::paths::Env;
use crate::base::text::one_line;
use crate::run::RunDir;
use crate::spec::RunSpec;
use crate::wire::{Command, Event};

/// What a run waits for.
#[derive(Debug, Clone)]
pub struct After {
    /// The run whose end it waits for, however that one ends.
    pub run: RunDir,
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
    let name = one_line(&after.run.folder());
    if after.run.is_alive() {
        let after = name.clone();
        port.emit(Event::Queued { after });
    }
    while after.run.is_alive() {
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
    match job.force {
        true => Ok(()),
        false => (after.check)(&job.spec, &job.env).map_err(EngineError::Machine),
    }
}
