//! One optimizer step: micro-batches forward and backward, the norm, the update. And its line in the log.

use super::due::log_is_due;
use super::rollouts::SHARE;
use super::train::Trainer;
use super::update::{At, Gradients, Rates, apply, gradients};
use super::{EngineError, rescue};
use crate::base::stats::median;
use crate::metrics::id;
use crate::wire::{Event, Num, Values};
use std::time::Duration;

/// What one step measured.
#[derive(Debug, Clone, Default)]
struct Step {
    gradients: Gradients,
    /// Tokens of the step that are not padding.
    tokens: u64,
    lr: f64,
    clipped: bool,
}

/// What has piled up since the last `Stepped` event.
#[derive(Debug, Default)]
pub(super) struct StepLog {
    last: Step,
    steps: u32,
    tokens: u64,
    /// Tokens of each source in the step in hand.
    by_source: Vec<u64>,
    busy: Duration,
    waited: Duration,
    /// Of answers that the step learns from: writing and scoring.
    answering: Duration,
}

impl Trainer<'_, '_> {
    /// Places for target tokens of one optimizer step; padding may take some of them.
    pub(super) fn batch_tokens(&self) -> usize {
        let train = &self.spec.train;
        let rows = train.micro_batch_size * self.spec.method.needs().unit.sequences();
        train.grad_accum_steps * rows * self.spec.model.seq_len
    }

    /// Does one update. When the loss or the gradient is not finite, nothing is updated and the run ends.
    pub(super) fn one_step(&mut self) -> Result<(), EngineError> {
        let begun = self.port.clock.elapsed();
        self.log.last = self.gradients()?;
        self.refuse_non_finite()?;
        let rates = Rates {
            lr: self.log.last.lr,
            clip_norm: self.state.clip_norm(self.spec),
        };
        let norm = self.log.last.gradients.norm;
        let (model, optimizer) = (&mut self.state.models.policy, &mut *self.state.optimizer);
        self.log.last.clipped = apply(model, optimizer, norm, rates)?;

        let tokens = self.log.last.tokens;
        let by_source = std::mem::take(&mut self.log.by_source);
        let progress = &mut self.state.progress;
        if by_source.len() > 1 {
            progress.source_tokens.resize(by_source.len(), 0);
            for (sum, tokens) in progress.source_tokens.iter_mut().zip(by_source) {
                *sum += tokens;
            }
        }
        progress.step += 1;
        progress.tokens += tokens;
        progress.micro_step += self.spec.train.grad_accum_steps as u64;
        progress.train_loss = Some(Num(self.log.last.gradients.loss));
        self.log.steps += 1;
        self.log.tokens += tokens;
        self.log.busy += self.port.clock.elapsed() - begun;
        Ok(())
    }

    /// Takes the batches of the step and sums the gradient over them.
    fn gradients(&mut self) -> Result<Step, EngineError> {
        let asked = self.port.clock.elapsed();
        let at = At {
            seed: self.spec.seed,
            micro_step: self.state.progress.micro_step,
        };
        let step = self
            .experience
            .step(at.micro_step, &mut self.state.models)?;
        let waited = self.port.clock.elapsed() - asked;
        match self.experience.rollouts() {
            Some(_) => self.log.answering += waited,
            None => self.log.waited += waited,
        }
        let method = &*self.spec.method;
        let found = gradients(method, &mut self.state.models.policy, &step.batches, at)?;
        self.log.by_source = step.by_source();
        let tokens = step.n_tokens();
        self.experience.recycle(step);
        Ok(Step {
            gradients: found,
            tokens,
            lr: self.state.lr(self.spec),
            clipped: false,
        })
    }

    /// Ends the run at the first loss or gradient that is not finite: the weights are still those of the step before.
    fn refuse_non_finite(&mut self) -> Result<(), EngineError> {
        let Step { gradients, lr, .. } = &self.log.last;
        let (loss, grad_norm, lr) = (gradients.loss, gradients.norm, *lr);
        let (what, value) = if !loss.is_finite() {
            ("the training loss", loss)
        } else if !grad_norm.is_finite() {
            ("the gradient norm", grad_norm)
        } else {
            return Ok(());
        };
        let step = self.step() + 1;
        // The point itself belongs into the log: charts mark where it happened.
        let tokens = self.state.progress.tokens + self.log.last.tokens;
        let values = self.values();
        self.port.emit(Event::Stepped {
            step,
            tokens,
            values,
        });
        Err(self.fail_non_finite(what, value, step, lr))
    }

    /// Warns and words the failure.
    pub(super) fn fail_non_finite(
        &mut self,
        what: &str,
        value: f64,
        step: u64,
        lr: f64,
    ) -> EngineError {
        let message = rescue::non_finite(what, value, step, lr, self.store.folder());
        self.port.warn(
            step,
            "non_finite",
            format!("{what} is {value}"),
            "nothing of this step is kept",
        );
        EngineError::Training(message)
    }

    /// Sends the `Stepped` event of the step just done, when its turn has come.
    pub(super) fn emit_step_if_due(&mut self) {
        self.port.emit_telemetry();
        let train = &self.spec.train;
        let last = self.job.stop_after.unwrap_or(u64::MAX).min(train.max_steps);
        if !log_is_due(self.step(), train.log_every, last) {
            return;
        }
        let mut values = self.values();
        if let Some(rollouts) = self.experience.rollouts() {
            let readings = rollouts.readings().into_iter();
            values.extend(readings.map(|(id, value)| (id, Num(value))));
        }
        let log = std::mem::take(&mut self.log);
        let seconds = log.busy.as_secs_f64().max(1e-9);
        let mut set = |id: &str, value: f64| values.insert(id.to_string(), Num(value));
        set(id::TOK_PER_SEC, log.tokens as f64 / seconds);
        set(id::STEP_MS, 1e3 * seconds / f64::from(log.steps.max(1)));
        set(id::DATA_WAIT, log.waited.as_secs_f64() / seconds);
        if let Some(ratio) = self.update_ratio() {
            set(id::UPDATE_RATIO, ratio);
        }
        if self.experience.rollouts().is_some() {
            set(SHARE, log.answering.as_secs_f64() / seconds);
        }
        for (metric, value) in self.mix.readings(&self.state.progress.source_tokens) {
            set(&metric, value);
        }
        let (step, tokens) = (self.step(), self.state.progress.tokens);
        self.port.emit(Event::Stepped {
            step,
            tokens,
            values,
        });
    }

    /// How far the last update moved the matrices relative to their size, the median of them; none where the optimizer
    /// does not measure it.
    fn update_ratio(&self) -> Option<f64> {
        let infos = self.state.models.policy.params().trainable();
        let norms = self.state.optimizer.last_norms();
        let matrices = infos.zip(norms).filter(|(info, _)| info.shape.len() == 2);
        let ratios: Vec<f64> = matrices.map(|(_, norms)| norms.update_ratio()).collect();
        median(&ratios)
    }

    /// The repeatable readings of the last step.
    fn values(&self) -> Values {
        let last = &self.log.last;
        let found = &last.gradients;
        let mut values: Values = [
            (id::TRAIN_LOSS, found.loss),
            (id::GRAD_NORM, found.norm),
            (id::LR, last.lr),
            (id::CLIPPED, f64::from(u8::from(last.clipped))),
        ]
        .map(|(id, value)| (id.to_string(), Num(value)))
        .into();
        if let Some(experts) = found.experts {
            let readings = [
                (id::EXPERT_LOAD, experts.busiest),
                (id::EXPERT_ENTROPY, experts.entropy),
                (id::AUX_LOSS, experts.aux_loss),
                (id::Z_LOSS, experts.z_loss),
            ];
            values.extend(readings.map(|(id, value)| (id.to_string(), Num(value))));
        }
        let own = self.spec.method.readings().iter().map(|metric| metric.id);
        for id in [id::ENTROPY].into_iter().chain(own) {
            if let Some(mean) = found.readings.mean(id) {
                values.insert(id.into(), Num(mean));
            }
        }
        values
    }
}
