//! The training loop, in the order in which one would tell it.

use super::checkpoint::store::Store;
use super::due::is_due;
use super::emit::Port;
use super::eval::Extent;
use super::experience::Experience;
use super::mix::Mix;
use super::prepare::{prepare, start_event};
use super::state::TrainState;
use super::step::StepLog;
use super::stop::Flow;
use super::{EngineError, EngineJob, Summary, preflight};
use crate::data::Dataset;
use crate::metrics::id;
use crate::spec::RunSpec;
use crate::wire::{Event, Outcome, Phase};
use std::sync::Arc;

/// What says nothing of a model that is evaluated by its answers.
const NOT_OF_ANSWERS: [&str; 4] = [
    id::VAL_LOSS,
    id::VAL_PPL,
    id::VAL_BPB,
    id::VAL_TOKEN_ACCURACY,
];

/// A run in progress.
pub(super) struct Trainer<'a, 'p> {
    pub job: &'a EngineJob,
    pub spec: &'a RunSpec,
    pub port: &'a mut Port<'p>,
    pub summary: &'a mut Summary,
    pub data: Arc<Dataset>,
    pub state: TrainState,
    pub store: Store,
    /// Step of the newest checkpoint that this process wrote or began from.
    pub saved_at: Option<u64>,
    pub log: StepLog,
    /// What is told of the sources of a mix.
    pub mix: Mix,
    /// Where the batches of the steps come from.
    pub experience: Box<dyn Experience>,
}

/// Prepares, checks and trains.
pub(super) fn begin(
    job: &EngineJob,
    port: &mut Port<'_>,
    summary: &mut Summary,
) -> Result<Outcome, EngineError> {
    let mut trainer = prepare(job, port, summary)?;
    trainer.summarize();
    trainer.port.emit(start_event(&trainer));
    let mut metrics = crate::metrics::declarations();
    if job.spec.model.moe.is_none() {
        metrics.retain(|metric| !id::OF_EXPERTS.contains(&metric.id.as_str()));
    }
    let own = job.spec.method.readings();
    metrics.retain(|known| own.iter().all(|metric| metric.id != known.id));
    for metric in own {
        let validation = metric.validation_info();
        metrics.retain(|known| known.id != validation.id);
        metrics.push(metric.info());
        // Methods that learn from their own answers are evaluated by answers.
        metrics.extend(job.spec.method.on_policy().is_none().then_some(validation));
    }
    if let Some(rollouts) = trainer.experience.rollouts() {
        metrics.extend(rollouts.declarations());
        metrics.retain(|metric| !NOT_OF_ANSWERS.contains(&metric.id.as_str()));
    }
    metrics.extend(trainer.mix.declarations());
    trainer.port.emit(Event::MetricsDeclared { metrics });
    if job.resume {
        let step = trainer.step();
        trainer.port.emit(Event::RolledBack { step });
    }
    if trainer.saved_at.is_none() && job.spec.preflight.enabled {
        preflight::gate(&mut trainer)?;
    }
    let outcome = trainer.train();
    trainer.summarize();
    outcome
}

impl Trainer<'_, '_> {
    /// N + 1 rounds for N steps: the last one evaluates, samples and saves, and is no special case.
    fn train(&mut self) -> Result<Outcome, EngineError> {
        let max_steps = self.spec.train.max_steps;
        loop {
            self.port.enter(Phase::Training, self.step());
            if self.obey()? == Flow::Stop {
                return Ok(Outcome::Stopped);
            }
            let (step, done) = (self.step(), &self.state.progress);
            // Where answers begin is what their rise is measured against.
            let first = step == 0 && self.spec.method.on_policy().is_some();
            if first && done.evaluated_at.is_none()
                || is_due(step, self.spec.eval.every, max_steps, done.evaluated_at)
            {
                self.evaluate_now(self.extent())?;
                let broken_off = self.state.progress.evaluated_at != Some(step);
                if broken_off && self.port.stop_is_waiting() {
                    // Done again at a resume.
                    if self.port.stop_flag() {
                        self.save_and_stop();
                        return Ok(Outcome::Stopped);
                    }
                    continue;
                }
            }
            if is_due(
                step,
                self.spec.sample.every,
                max_steps,
                self.state.progress.sampled_at,
            ) {
                self.sample_on_schedule();
            }
            if is_due(step, self.spec.checkpoint.every, max_steps, self.saved_at) {
                self.refuse_broken_weights()?;
                self.save_or_warn();
            }
            if step >= max_steps {
                return Ok(Outcome::Completed);
            }
            if self.job.stop_after.is_some_and(|last| step >= last) || self.port.stop_flag() {
                self.save_and_stop();
                return Ok(Outcome::Stopped);
            }
            self.port.enter(Phase::Training, step);
            self.one_step()?;
            self.emit_step_if_due();
            self.summarize();
        }
    }

    pub(super) fn step(&self) -> u64 {
        self.state.progress.step
    }

    /// True where the evaluation reads the whole split: after the last step, or when the spec names no number of batches.
    pub(super) fn extent(&self) -> Extent {
        match self.spec.eval.batches {
            Some(batches) if self.step() < self.spec.train.max_steps => Extent::Batches(batches),
            _ => Extent::Whole,
        }
    }

    /// Keeps what `Finished` will tell up to date, so that it tells it after a panic, too.
    pub(super) fn summarize(&mut self) {
        let progress = &self.state.progress;
        self.summary.progress.clone_from(progress);
        let done = progress.step >= self.spec.train.max_steps;
        let measured_here = progress.evaluated_at == Some(progress.step);
        self.summary.final_val_loss = progress.val_loss.filter(|_| done && measured_here);
    }
}
