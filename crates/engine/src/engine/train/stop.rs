//! Ways to end the loop before the last step.

use super::Trainer;
use crate::engine::EngineError;
use crate::wire::{CommandId, Outcome, Phase, StopWhen};

/// What the loop does after it has listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Go on.
    Continue,
    /// Leave the loop: a command asked for it and has what it wanted.
    Stop,
    /// Leave the loop with a checkpoint: a signal asked for it.
    SaveAndStop,
}

impl Trainer<'_, '_> {
    /// Obeys a `Stop` command. A stop after a checkpoint that cannot be written is refused: the run goes on.
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
    /// What was trained since the last checkpoint could not be saved: that is no orderly stop.
    pub(super) fn save_and_stop(&mut self) -> Result<Outcome, EngineError> {
        self.cx.port.enter(Phase::Stopping, self.cx.step());
        self.checkpoints.save_at_the_end(&mut self.cx)?;
        Ok(Outcome::Stopped)
    }
}
