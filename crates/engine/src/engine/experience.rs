//! The source of a step's batches: functions of (weights, seed, step), so that a resume needs no cursor.

use super::EngineError;
use super::rollouts::Rollouts;
use super::state::TrainState;
use crate::data::{Loader, StepBatches, StepStart};
use crate::wire::MetricInfo;
use std::time::Duration;

/// A source of batches.
pub trait Experience {
    /// The micro-batches of the optimizer step whose first micro-step is `micro_step`, with every column that the method
    /// needs but the reference's of a fixed data set. Only what is made of the models' answers may depend on them, and
    /// what several steps learn from is kept in the state. `Ok(None)` when `broken_off` said so while answers were written: they are
    /// written again when the step is asked for again.
    ///
    /// # Errors
    /// A model that refuses a batch.
    fn step(
        &mut self,
        micro_step: u64,
        state: &mut TrainState,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<StepBatches>, EngineError>;

    /// Takes a step back whose memory may be used again.
    fn recycle(&mut self, step: StepBatches);

    /// Metrics of where its batches come from, besides those of rollouts.
    fn declarations(&self) -> Vec<MetricInfo> {
        Vec::new()
    }

    /// Their readings of the last step.
    fn readings(&self) -> &[(String, f64)] {
        &[]
    }

    /// Time in which answers of the model were written since the last call, where it may write some besides rollouts.
    fn take_writing(&mut self) -> Option<Duration> {
        None
    }

    /// Whether some steps learn from answers of the model: losses of steps are then not alike.
    fn has_own_answers(&self) -> bool {
        false
    }

    /// The metric of the last step's loss, where that is of another kind than `train/loss` in the same run: one curve of both would
    /// jump at every change between them.
    fn other_loss(&self) -> Option<&'static str> {
        None
    }

    /// The model's own completions, for RL methods.
    fn rollouts(&mut self) -> Option<&mut Rollouts> {
        None
    }
}

/// A fixed data set: batches are ready ahead of their use. The step adds the reference's column.
impl Experience for Loader {
    fn step(
        &mut self,
        micro_step: u64,
        state: &mut TrainState,
        _broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<StepBatches>, EngineError> {
        Ok(Some(self.batches(StepStart {
            step: state.progress.step + 1,
            micro_step,
        })))
    }

    fn recycle(&mut self, step: StepBatches) {
        self.give_back(step);
    }
}
