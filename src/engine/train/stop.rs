//! Ways in which the loop ends before its last step.

use super::Trainer;
use crate::engine::EngineError;
use crate::wire::{CommandId, Phase, StopWhen};

/// What the loop does after it has listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Go on.
    Continue,
    /// Leave the loop: asked for by a command or a signal.
    Stop,
}

impl Trainer<'_, '_> {
    /// Obeys a `Stop` command. A stop after a checkpoint that cannot be written is refused: the run goes on.
    pub(super) fn stop(&mut self, id: CommandId, when: StopWhen) -> Result<Flow, EngineError> {
        let phase = self.cx.port.phase();
        self.cx.port.enter(Phase::Stopping, self.cx.step());
        if when == StopWhen::AfterCheckpoint
            && let Err(error) = self.checkpoints.save(&mut self.cx)
        {
            self.cx.port.reject(
                id,
                format!("{error}; make room, or stop now without a checkpoint"),
            );
            self.cx.port.enter(phase, self.cx.step());
            return Ok(Flow::Continue);
        }
        self.cx.port.accept(id);
        Ok(Flow::Stop)
    }

    /// The process was asked to end, or `--stop-after` is reached: save what can be saved, then end in any case.
    pub(super) fn save_and_stop(&mut self) {
        self.cx.port.enter(Phase::Stopping, self.cx.step());
        if self.checkpoints.saved_at() != Some(self.cx.step()) {
            self.checkpoints.save_or_warn(&mut self.cx);
        }
    }
}
