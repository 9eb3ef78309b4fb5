//! Ways to end the loop before the last step.

use super::Trainer;
use crate::engine::EngineError;
use crate::wire::{CommandId, Outcome, Phase, StopWhen};

/// What the loop does after checking commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Go on.
    Continue,
    /// Leave the loop: a stop was requested and has been executed.
    Stop,
    /// Leave the loop with a checkpoint: a signal asked for it.
    SaveAndStop,
}

impl Trainer<'_, '_> {
    /// Executes a `Stop` command. If its checkpoint cannot be written, the stop is refused and the run continues.
    ///
    /// # Errors
    /// Weights that are non-finite: the run has failed.
    pub(super) fn stop(&mut self, id: CommandId, when: StopWhen) -> Result<Flow, EngineError> {
        let phase = self.cx.port.phase();
        self.cx.port.enter(Phase::Stopping, self.cx.step());
        let hint = ", or stop now without a checkpoint";
        if when == StopWhen::AfterCheckpoint && !self.save_for(id, hint)? {
            self.cx.port.enter(phase, self.cx.step());
            return Ok(Flow::Continue);
        }
        self.cx.port.accept(id);
        Ok(Flow::Stop)
    }

    /// The process was asked to end, or `--stop-after` is reached: saves, then ends in any case.
    ///
    /// # Errors
    /// Steps since the last checkpoint could not be saved: not an orderly stop.
    pub(super) fn save_and_stop(&mut self) -> Result<Outcome, EngineError> {
        self.cx.port.enter(Phase::Stopping, self.cx.step());
        self.checkpoints.save_at_the_end(&mut self.cx)?;
        Ok(Outcome::Stopped)
    }
}
