//! Batches of the model's own answers: prompts are drawn, answered by the weights that will learn from them, scored, and
//! laid out with their advantages. A step's answers are a function of (weights, seed, step), so a resume writes the same ones.

mod evaluate;
mod lay;
mod show;
mod write;

pub use evaluate::Passed;
pub(super) use show::{POLICY_LOSS, SHARE};
pub use write::{Written, write};

use super::EngineError;
use super::experience::Experience;
use super::roles::Models;
use crate::base::clock::Clock;
use crate::base::rng::{Rng, Stream};
use crate::base::sampling::{ContextLimit, Sampling};
use crate::data::{Dataset, StepBatches};
use crate::methods::policy::{ADVANTAGE, OnPolicy};
use crate::metrics::Readings;
use crate::rewards::{Answer, Judge, RewardError, Scores};
use crate::spec::{RolloutConfig, RunSpec};
use crate::wire::{ExaminedExample, MetricInfo};
use std::sync::Arc;
use std::time::Duration;

/// Where the answers of a run come from.
pub struct Rollouts {
    spec: RunSpec,
    data: Arc<Dataset>,
    judge: Judge,
    clock: Arc<dyn Clock>,
    last: Option<Rollout>,
}

/// The answers of a step, and what is known of them.
pub(super) struct Rollout {
    pub written: Vec<Written>,
    pub answers: Vec<Answer>,
    pub scores: Vec<Scores>,
    /// Σ weight · score of each answer, less what the distance to the reference costs.
    pub rewards: Vec<f64>,
    pub advantages: Vec<f64>,
    /// Time spent on writing.
    pub writing: Duration,
}

impl From<RewardError> for EngineError {
    fn from(error: RewardError) -> EngineError {
        EngineError::Training(error.to_string())
    }
}

/// The on-policy part of a spec's method.
fn on_policy(spec: &RunSpec) -> Option<&dyn OnPolicy> {
    spec.method.on_policy()
}

impl Rollouts {
    /// `None` for methods that learn from what is written already.
    pub fn of(spec: &RunSpec, data: &Arc<Dataset>, clock: &Arc<dyn Clock>) -> Option<Rollouts> {
        on_policy(spec)?;
        Some(Rollouts {
            spec: spec.clone(),
            data: data.clone(),
            judge: Judge::new(&spec.rewards),
            clock: clock.clone(),
            last: None,
        })
    }

    fn config(&self) -> &RolloutConfig {
        &self.spec.rollout
    }

    /// How answers to train on are drawn in a step.
    fn sampling(&self, step: u64) -> Sampling {
        let config = self.config();
        Sampling {
            temperature: config.temperature,
            top_k: config.top_k,
            top_p: config.top_p,
            max_new_tokens: config.max_new_tokens,
            seed: Rng::new(self.spec.seed, Stream::Rollout, step, 0).next_u64(),
            stop: stops(config, &self.data),
            context: ContextLimit::Stop,
            ..Sampling::default()
        }
    }

    /// Σ weight · score.
    fn weighed(scores: &[Scores], answers: usize) -> Vec<f64> {
        let of = |i: usize| scores.iter().map(|s| s.weight * s.values[i]).sum();
        (0..answers).map(of).collect()
    }

    /// Metrics that are declared besides the method's.
    pub fn declarations(&self) -> Vec<MetricInfo> {
        show::declarations(&self.spec)
    }

    /// Readings of the last step's answers.
    pub fn readings(&self) -> Vec<(String, f64)> {
        let group_size = self.config().group_size;
        self.last
            .as_ref()
            .map_or_else(Vec::new, |rollout| show::readings(rollout, group_size))
    }

    /// The first groups of the last step.
    pub fn examples(&self) -> Vec<ExaminedExample> {
        let group_size = self.config().group_size;
        self.last
            .as_ref()
            .map_or_else(Vec::new, |rollout| show::groups(rollout, group_size))
    }
}

/// What ends an answer besides a token that ends texts.
pub(super) fn stops(config: &RolloutConfig, data: &Dataset) -> Vec<String> {
    match config.stop.is_empty() && data.ends.is_empty() {
        true => vec!["\n".into()],
        false => config.stop.clone(),
    }
}

impl Experience for Rollouts {
    fn step(&mut self, micro_step: u64, models: &mut Models) -> Result<StepBatches, EngineError> {
        let (train, seed) = (&self.spec.train, self.spec.seed);
        let accum = train.grad_accum_steps as u64;
        let step = micro_step / accum;
        if step < self.config().cold_start_steps {
            self.last = None;
            let batch = |i| {
                self.data
                    .train_batch(seed, micro_step + i, train.micro_batch_size)
            };
            let batches = (0..accum).map(batch).collect();
            return Ok(StepBatches {
                micro_step,
                batches,
            });
        }
        let begun = self.clock.elapsed();
        let group_size = self.config().group_size;
        let prompts = (train.micro_batch_size * train.grad_accum_steps / group_size).max(1);
        let prompts = self.data.train_batch(seed, step, prompts);
        let sampling = self.sampling(step);
        let side_by_side = self.config().side_by_side;
        let written = write(
            &mut models.policy,
            &self.data,
            &prompts,
            (&sampling, group_size, side_by_side),
            &mut || false,
        )?;
        let written = written.unwrap_or_default();
        let writing = self.clock.elapsed() - begun;
        let answers: Vec<Answer> = written.iter().map(|w| w.answer.clone()).collect();
        let scores = self.judge.score(&answers)?;
        let mut rewards = Rollouts::weighed(&scores, answers.len());

        let mut batches = lay::batches(&written, &self.spec, self.data.seq_len());
        for batch in &mut batches {
            models.add_token_reference(batch)?;
        }
        let mut advantages = Vec::new();
        if let Some(method) = on_policy(&self.spec) {
            if method.kl_in_reward() > 0.0 {
                lay::charge_distance(&batches, method.kl_in_reward(), &mut rewards);
            }
            advantages = method.advantages(&rewards, group_size);
        }
        let mut rest = advantages.as_slice();
        for batch in &mut batches {
            let (own, others) = rest.split_at(batch.batch_size.min(rest.len()));
            lay::put(batch, ADVANTAGE, own.iter().map(|a| *a as f32).collect());
            rest = others;
        }
        self.last = Some(Rollout {
            written,
            answers,
            scores,
            rewards,
            advantages,
            writing,
        });
        Ok(StepBatches {
            micro_step,
            batches,
        })
    }

    fn recycle(&mut self, _step: StepBatches) {}

    fn rollouts(&mut self) -> Option<&mut Rollouts> {
        Some(self)
    }
}

/// Adds a mean over answers to a list of readings.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let mut readings = Readings::default();
    values.for_each(|x| readings.add("mean", x, 1.0));
    readings.mean("mean").unwrap_or_default()
}
