//! Shared by every part of a run: its spec, its data, its state, and the port to the world. State that only one part needs
//! (checkpoints, batches, the step log) belongs to that part.

use super::broken::{self, NonFinite};
use super::emit::Port;
use super::eval::best::BestBy;
use super::extra::Extras;
use super::state::{Settings, TrainState};
use super::{EngineError, EngineJob};
use crate::data::{Dataset, Packing};
use crate::nn::generate::BrokenLogit;
use crate::run::state::NON_FINITE;
use crate::spec::RunSpec;
use crate::wire::{Event, Num};
use std::sync::Arc;

pub(super) struct RunContext<'a, 'p> {
    pub job: &'a EngineJob,
    pub spec: &'a RunSpec,
    pub port: &'a mut Port<'p>,
    pub data: Arc<Dataset>,
    /// Validation sets beside that of the data.
    pub extras: Extras,
    pub state: TrainState,
    /// What makes one evaluation better than another.
    pub best_by: BestBy,
    /// The reading that decides over the whole validation split, and the step at which it was measured.
    pub best_by_whole: Option<(u64, Num)>,
    /// An evaluation lacked that reading, and the log says so.
    pub lacks_best: bool,
}

impl RunContext<'_, '_> {
    /// Completed optimizer steps.
    pub fn step(&self) -> u64 {
        self.state.progress.step
    }

    /// Target tokens of one optimizer step, after a batch-size ramp: places in full rows, of rows padded to the longest of their
    /// batch what they hold on average. Answers that are yet to be written are as long as they may be.
    pub fn batch_tokens(&self) -> usize {
        let train = &self.spec.train;
        let rows = train.micro_batch_size * self.spec.method.needs().unit.sequences();
        let longest = rows * self.spec.model.seq_len;
        if self.data.packing() != Packing::Padded {
            return train.grad_accum_steps * longest;
        }
        let micro_steps = train.micro_steps(train.max_steps).max(1);
        let (seed, batch_size) = (self.spec.seed, train.micro_batch_size);
        let (read, _) = self.data.read(seed, micro_steps, batch_size);
        let answers = match self.spec.method.on_policy() {
            Some(_) => rows * self.spec.rollout.max_new_tokens,
            None => 0,
        };
        let each = (read / micro_steps as f64 + answers as f64).min(longest as f64);
        (each * train.grad_accum_steps as f64).round() as usize
    }

    /// Reports each setting that differs from `before`, as after a load; returns whether there is any.
    pub fn emit_adjusted(&mut self, step: u64, before: Settings) -> bool {
        let now = self.state.settings(self.spec);
        let changed = before.into_iter().zip(now).filter(|(old, new)| old != new);
        let mut any = false;
        for ((key, old), (_, new)) in changed {
            any = true;
            self.port.emit(Event::Adjusted {
                step,
                key: key.into(),
                old: Num(old),
                new: Num(new),
            });
        }
        any
    }

    /// Weights that are not finite are not saved.
    pub fn refuse_broken_weights(&mut self) -> Result<(), EngineError> {
        match self.broken_weights()? {
            Some(broken) => Err(self.fail_non_finite(&broken)),
            None => Ok(()),
        }
    }

    /// The fault of the weights.
    pub fn broken_weights(&mut self) -> Result<Option<NonFinite>, EngineError> {
        self.state.take_from_ranks()?;
        let broken = || NonFinite {
            what: "a weight",
            value: f64::NAN,
            step: self.step(),
            lr: self.state.lr(self.spec),
        };
        Ok((!self.state.weights_are_finite()?).then(broken))
    }

    /// The fault of weights that no answer can be drawn from. They are those of the last step.
    pub fn broken_logit(&self, logit: BrokenLogit) -> NonFinite {
        NonFinite {
            what: "a logit of an answer",
            value: f64::from(logit.value),
            step: self.step(),
            lr: self.state.lr(self.spec),
        }
    }

    /// Warns, and words the error that ends the run.
    pub fn fail_non_finite(&mut self, broken: &NonFinite) -> EngineError {
        let folder = self.job.run_dir.checkpoints_path();
        let message = broken::non_finite(broken, &folder);
        let NonFinite {
            what, value, step, ..
        } = *broken;
        self.port.warn(
            step,
            NON_FINITE,
            format!("{what} is {value}"),
            "nothing was saved for this step",
        );
        EngineError::Training(message)
    }
}
