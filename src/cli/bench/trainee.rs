//! A model training on random tokens, and a profile of its steps.

use super::sizes::Setup;
use crate::base::clock::{Clock, SystemClock};
use crate::base::rng::{Rng, Stream};
use crate::data::Batch;
use crate::engine::update::{At, Rates, apply, gradients};
use crate::kernels::matmul::ComputeDtype;
use crate::methods::MethodConfig;
use crate::nn::Model;
use crate::optim::{OptimizerConfig, UpdateRule};
use serde::Serialize;
use std::time::Duration;

/// Learning rate of the measured steps.
const LR: f64 = 1e-4;

pub struct Trainee {
    pub model: Model,
    pub batch_size: usize,
    optimizer: Box<dyn UpdateRule>,
    method: MethodConfig,
    batch: [Batch; 1],
    clock: SystemClock,
    /// Time in clipping and the optimizer since the profile began.
    optimizing: Duration,
    /// Whole steps since then.
    total: Duration,
    steps: u32,
}

/// One kernel's part of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    pub name: &'static str,
    /// Mean over the measured steps.
    pub ms: f64,
    /// Fraction of the whole step, 0 to 1.
    pub share: f64,
}

impl Trainee {
    pub fn new(setup: &Setup, arithmetic: ComputeDtype) -> candle_core::Result<Trainee> {
        let mut model = Model::new(&setup.model, setup.vocab_size, &candle_core::Device::Cpu)?;
        if let Some(adapter) = &setup.adapter {
            model.adapt(adapter)?;
        }
        model.init(1)?;
        model.set_compute_dtype(arithmetic)?;
        let optimizer = OptimizerConfig::AdamW(Default::default()).build(model.params())?;
        Ok(Trainee {
            model,
            batch_size: setup.batch_size,
            optimizer,
            method: MethodConfig::Pretrain(Default::default()),
            batch: [Batch::default()],
            clock: SystemClock::new(),
            optimizing: Duration::ZERO,
            total: Duration::ZERO,
            steps: 0,
        })
    }

    /// Target tokens per step.
    pub fn step_tokens(&self) -> usize {
        self.batch_size * self.model.shape().seq_len
    }

    /// One whole step on batch `n`; returns its time.
    pub fn step(&mut self, n: u64) -> candle_core::Result<Duration> {
        let begun = self.clock.elapsed();
        let shape = *self.model.shape();
        let count = self.step_tokens();
        let mut rng = Rng::new(1, Stream::Test, n, 0);
        let draw = || rng.below(shape.vocab_size as u64) as u32;
        let batch = &mut self.batch[0];
        batch.inputs.clear();
        batch
            .inputs
            .extend(std::iter::repeat_with(draw).take(count + 1));
        batch.targets.clear();
        batch.targets.extend_from_slice(&batch.inputs[1..]);
        batch.inputs.truncate(count);
        (batch.batch_size, batch.seq_len) = (self.batch_size, shape.seq_len);
        let found = gradients(&*self.method, &mut self.model, &self.batch, At::default())?;
        let differentiated = self.clock.elapsed();
        let rates = Rates {
            lr: LR,
            clip_norm: 1.0,
        };
        apply(&mut self.model, &mut *self.optimizer, found.norm, rates)?;
        let done = self.clock.elapsed();
        self.optimizing += done - differentiated;
        self.total += done - begun;
        self.steps += 1;
        Ok(done - begun)
    }

    /// Starts the profile: earlier steps do not count.
    pub fn profile(&mut self) {
        self.model.profile();
        (self.optimizing, self.total) = (Duration::ZERO, Duration::ZERO);
        self.steps = 0;
    }

    /// Every kernel's time since [`Trainee::profile`], largest first; `other` is the remainder.
    pub fn shares(&self) -> Vec<Share> {
        let mut parts: Vec<(&'static str, Duration)> = vec![("clip and AdamW", self.optimizing)];
        for (part, time) in self.model.profiled().into_iter().flatten() {
            parts.push((part.name(), time));
        }
        let known: Duration = parts.iter().map(|(_, time)| *time).sum();
        parts.push(("other", self.total.saturating_sub(known)));
        parts.retain(|(_, time)| !time.is_zero());
        parts.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let total = self.total.as_secs_f64().max(1e-9);
        let share = |(name, time): (&'static str, Duration)| Share {
            name,
            ms: 1e3 * time.as_secs_f64() / f64::from(self.steps.max(1)),
            share: time.as_secs_f64() / total,
        };
        parts.into_iter().map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::sizes::Size;

    #[test]
    fn a_step_changes_the_weights_and_its_shares_are_the_whole() {
        let mut trainee = Trainee::new(&Size::S.setup(), ComputeDtype::F32).unwrap();
        let first = |t: &Trainee| t.model.params().read_weights(|w| w[0]).unwrap();
        let before = first(&trainee);
        trainee.step(0).unwrap();
        assert_ne!(first(&trainee), before);
        trainee.profile();
        trainee.step(1).unwrap();
        let shares = trainee.shares();
        let whole: f64 = shares.iter().map(|s| s.share).sum();
        assert!((whole - 1.0).abs() < 1e-6, "{whole}");
        for name in ["gemm forward", "gemm backward", "head", "clip and AdamW"] {
            assert!(shares.iter().any(|s| s.name == name), "{name}: {shares:?}");
        }
        assert!(shares.is_sorted_by(|a, b| a.ms >= b.ms));
    }
}
