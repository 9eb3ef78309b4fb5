//! What every part of a run works on: its spec, its data, its state, and the port to the world. What only one part needs
//! (checkpoints, batches, the step log) belongs to that part.

use super::emit::Port;
use super::state::TrainState;
use super::{EngineError, EngineJob, rescue};
use crate::data::Dataset;
use crate::spec::RunSpec;
use std::sync::Arc;

pub(super) struct RunContext<'a, 'p> {
    pub job: &'a EngineJob,
    pub spec: &'a RunSpec,
    pub port: &'a mut Port<'p>,
    pub data: Arc<Dataset>,
    pub state: TrainState,
}

impl RunContext<'_, '_> {
    /// Completed optimizer steps.
    pub fn step(&self) -> u64 {
        self.state.progress.step
    }

    /// Places for target tokens of one optimizer step; padding may take some of them.
    pub fn batch_tokens(&self) -> usize {
        let train = &self.spec.train;
        let rows = train.micro_batch_size * self.spec.method.needs().unit.sequences();
        train.grad_accum_steps * rows * self.spec.model.seq_len
    }

    /// Ends the run rather than save weights that are not finite.
    pub fn refuse_broken_weights(&mut self) -> Result<(), EngineError> {
        if self.state.weights_are_finite()? {
            return Ok(());
        }
        let (step, lr) = (self.step(), self.state.lr(self.spec));
        Err(self.fail_non_finite("a weight", f64::NAN, step, lr))
    }

    /// Warns, and words the error that ends the run.
    pub fn fail_non_finite(&mut self, what: &str, value: f64, step: u64, lr: f64) -> EngineError {
        let folder = self.job.run_dir.checkpoints_path();
        let message = rescue::non_finite(what, value, step, lr, &folder);
        self.port.warn(
            step,
            "non_finite",
            format!("{what} is {value}"),
            "nothing of this step is kept",
        );
        EngineError::Training(message)
    }
}
