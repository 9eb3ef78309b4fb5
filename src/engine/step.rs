//! One optimizer step: micro-batches forward and backward, the norm, the update. And its line in the log.

use super::due::log_is_due;
use super::train::Trainer;
use super::{EngineError, rescue};
use crate::base::stats::median;
use crate::data::Batch;
use crate::methods::{StepContext, micro_step, weighted_sum};
use crate::metrics::id;
use crate::nn::{ExpertLoad, StepPosition, TokenBatch, TokenOutputs};
use crate::optim::clip_scale;
use crate::wire::{Event, Num, Values};
use candle_core::Tensor;
use std::time::Duration;

/// What one step measured.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    loss: f64,
    entropy: f64,
    accuracy: f64,
    /// Tokens of the step that are no padding.
    tokens: u64,
    grad_norm: f64,
    lr: f64,
    clipped: bool,
    experts: Option<ExpertLoad>,
}

/// What has piled up since the last `Stepped` event.
#[derive(Debug, Default)]
pub(super) struct StepLog {
    last: Reading,
    steps: u32,
    tokens: u64,
    /// Tokens of each source in the step in hand.
    by_source: Vec<u64>,
    busy: Duration,
    waited: Duration,
}

impl Trainer<'_, '_> {
    /// Places for target tokens of one optimizer step; padding may take some of them.
    pub(super) fn batch_tokens(&self) -> usize {
        let train = &self.spec.train;
        train.grad_accum_steps * train.micro_batch_size * self.spec.model.seq_len
    }

    /// Does one update. When the loss or the gradient is no number, nothing is updated and the run ends.
    pub(super) fn one_step(&mut self) -> Result<(), EngineError> {
        let begun = self.port.clock.elapsed();
        let mut reading = self.gradients()?;
        reading.lr = self.state.lr(self.spec);
        let clip_norm = self.state.clip_norm(self.spec);
        let scale = clip_scale(reading.grad_norm, clip_norm);
        reading.clipped = scale < 1.0;
        self.log.last = reading;
        self.refuse_non_finite()?;
        let params = self.state.model.params_mut();
        self.state.optimizer.step(params, reading.lr, scale)?;
        self.state.model.end_step()?;

        let tokens = reading.tokens;
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
        progress.train_loss = Some(Num(reading.loss));
        self.log.steps += 1;
        self.log.tokens += tokens;
        self.log.busy += self.port.clock.elapsed() - begun;
        Ok(())
    }

    /// Sums the gradient over the micro-steps; the loss is the mean over all their supervised tokens.
    fn gradients(&mut self) -> Result<Reading, EngineError> {
        let asked = self.port.clock.elapsed();
        let step = self.loader.step(self.state.progress.micro_step);
        self.log.waited += self.port.clock.elapsed() - asked;
        let context = StepContext {
            step_tokens: step.supervised().max(1),
        };
        let mut reading = Reading {
            tokens: step.n_tokens(),
            ..Reading::default()
        };
        self.state.model.params_mut().zero_grads()?;
        for (at, batch) in step.batches.iter().enumerate() {
            let model = &mut self.state.model;
            model.set_step_position(StepPosition {
                seed: self.spec.seed,
                micro_step: self.state.progress.micro_step + at as u64,
                share: 1.0 / step.batches.len() as f64,
            });
            let found = micro_step(&*self.spec.method, model, &view(batch), &context)?;
            reading.loss += found.loss;
            reading.entropy += found.entropy / context.step_tokens as f64;
            reading.accuracy += found.correct / context.step_tokens as f64;
        }
        self.log.by_source = step.by_source();
        self.loader.recycle(step);
        reading.experts = self.state.model.expert_load();
        reading.grad_norm = self.state.model.params().grad_norm()?;
        Ok(reading)
    }

    /// Ends the run at the first number that is none: the weights are still those of the step before.
    fn refuse_non_finite(&mut self) -> Result<(), EngineError> {
        let Reading {
            loss,
            grad_norm,
            lr,
            ..
        } = self.log.last;
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
        let log = std::mem::take(&mut self.log);
        let seconds = log.busy.as_secs_f64().max(1e-9);
        let mut set = |id: &str, value: f64| values.insert(id.to_string(), Num(value));
        set(id::TOK_PER_SEC, log.tokens as f64 / seconds);
        set(id::STEP_MS, 1e3 * seconds / f64::from(log.steps.max(1)));
        set(id::DATA_WAIT, log.waited.as_secs_f64() / seconds);
        if let Some(ratio) = self.update_ratio() {
            set(id::UPDATE_RATIO, ratio);
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
        let infos = self.state.model.params().trainable();
        let norms = self.state.optimizer.last_norms();
        let matrices = infos.zip(norms).filter(|(info, _)| info.shape.len() == 2);
        let ratios: Vec<f64> = matrices.map(|(_, norms)| norms.update_ratio()).collect();
        median(&ratios)
    }

    /// The repeatable readings of the last step.
    fn values(&self) -> Values {
        let last = self.log.last;
        let mut values: Values = [
            (id::TRAIN_LOSS, last.loss),
            (id::GRAD_NORM, last.grad_norm),
            (id::ENTROPY, last.entropy),
            (id::LR, last.lr),
            (id::CLIPPED, f64::from(u8::from(last.clipped))),
        ]
        .map(|(id, value)| (id.to_string(), Num(value)))
        .into();
        if let Some(experts) = last.experts {
            let readings = [
                (id::EXPERT_LOAD, experts.busiest),
                (id::EXPERT_ENTROPY, experts.entropy),
                (id::AUX_LOSS, experts.aux_loss),
                (id::Z_LOSS, experts.z_loss),
            ];
            values.extend(readings.map(|(id, value)| (id.to_string(), Num(value))));
        }
        if self.spec.method.metrics().contains(&id::TOKEN_ACCURACY) {
            values.insert(id::TOKEN_ACCURACY.into(), Num(last.accuracy));
        }
        values
    }
}

/// A batch as the model reads it.
pub(super) fn view(batch: &Batch) -> TokenBatch<'_> {
    TokenBatch {
        inputs: &batch.inputs,
        targets: &batch.targets,
        batch_size: batch.batch_size,
        seq_len: batch.seq_len,
        weights: (!batch.weights.is_empty()).then_some(&*batch.weights),
        first: (!batch.first.is_empty()).then_some(&*batch.first),
    }
}

/// Σ of the log-probabilities of supervised tokens, accumulated in f64 in a fixed order.
pub(super) fn weighted(out: &TokenOutputs) -> candle_core::Result<f64> {
    weighted_values(&out.logp, out.weights.as_ref())
}

/// Σ w · x of small tensors; without weights Σ x.
pub(super) fn weighted_values(
    values: &Tensor,
    weights: Option<&Tensor>,
) -> candle_core::Result<f64> {
    let host = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
    let weights = weights.map(host).transpose()?;
    Ok(weighted_sum(&host(values)?, weights.as_deref()))
}
