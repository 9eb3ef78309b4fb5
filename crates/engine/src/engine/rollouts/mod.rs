//! Batches of the model's own completions: prompts are drawn, completed by the current weights, scored, and laid out with
//! their advantages. A step's completions are a function of (weights, seed, step), so a resume reproduces them.

mod batching;
mod evaluate;
pub(super) mod in_use;
mod kept;
mod parts;
mod show;
mod write;

pub(super) use batching::batch as batches_of;
pub use evaluate::CompletionEval;
pub use in_use::ActiveRollout;
pub(super) use parts::{Parts, WRITING};
pub use show::{OF_ANSWERS, of_reward, pass_at_k};
pub(super) use show::{SHARE, SPEED};
pub use write::{Asked, Written, write};

use super::EngineError;
use super::critic;
use super::experience::Experience;
use super::roles::Models;
use super::state::{Progress, TrainState};
use crate::base::clock::Clock;
use crate::base::rng::{Rng, Stream};
use crate::base::sampling::{ContextLimit, Sampling};
use crate::data::{Batch, Dataset, StepBatches};
use crate::methods::policy::{ADVANTAGE, OnPolicy};
use crate::methods::ppo::TOKEN_ADVANTAGE;
use crate::rewards::{Answer, RewardError, Scorer, Scores};
use crate::spec::{RolloutConfig, RunSpec};
use crate::wire::{ExaminedExample, MetricInfo, id};
use std::sync::Arc;

/// Where the answers of a run come from.
pub struct Rollouts {
    spec: RunSpec,
    data: Arc<Dataset>,
    judge: Scorer,
    clock: Arc<dyn Clock>,
    last: Option<Rollout>,
    /// The last rollout as a file, until it is written.
    unwritten: Option<crate::run::rollouts::Rollout>,
    /// Readings of the answers that the last step learned from.
    told: Option<Vec<(String, f64)>>,
    /// Of the last step.
    parts: Parts,
}

/// The completions of a step, with their rewards and log-probabilities.
pub(super) struct Rollout {
    pub written: Vec<Written>,
    pub scores: Vec<Scores>,
    /// Σ weight · score of each completion; a KL penalty changes its advantage alone.
    pub rewards: Vec<f64>,
    pub advantages: Vec<f64>,
    /// Groups that were written and replaced.
    pub refilled: usize,
    pub parts: Parts,
}

/// Answers with what each reward gave them.
struct Scored {
    written: Vec<Written>,
    scores: Vec<Scores>,
    refilled: usize,
}

impl Scored {
    /// Puts the groups of `fresh` in the places of others.
    fn replace(&mut self, groups: &[usize], fresh: Scored, group_size: usize) {
        let places = groups
            .iter()
            .flat_map(|at| at * group_size..(at + 1) * group_size);
        let places: Vec<usize> = places.collect();
        for (to, from) in places.iter().zip(fresh.written) {
            self.written[*to] = from;
        }
        for (scores, fresh) in self.scores.iter_mut().zip(fresh.scores) {
            scores.replace(&places, fresh);
        }
    }
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
    /// `None` for methods that train on a fixed dataset.
    pub fn of(spec: &RunSpec, data: &Arc<Dataset>, clock: &Arc<dyn Clock>) -> Option<Rollouts> {
        on_policy(spec)?;
        Some(Rollouts {
            spec: spec.clone(),
            data: data.clone(),
            judge: Scorer::new(&spec.rewards),
            clock: clock.clone(),
            last: None,
            unwritten: None,
            told: None,
            parts: Parts::default(),
        })
    }

    fn config(&self) -> &RolloutConfig {
        &self.spec.rollout
    }

    /// Prompts that a rollout answers.
    fn prompts(&self) -> usize {
        let (train, config) = (&self.spec.train, self.config());
        let answers = train.micro_batch_size * train.grad_accum_steps * config.steps;
        (answers / config.group_size).max(1)
    }

    /// Passes over the prompts in so many micro-steps, those of the cold start included. Rollouts count as they begin.
    pub(super) fn epochs(&self, micro_steps: u64) -> f64 {
        let (train, config) = (&self.spec.train, self.config());
        let accum = train.grad_accum_steps as u64;
        let (cold, steps) = (config.cold_start_steps, micro_steps / accum);
        let begun = steps.saturating_sub(cold).div_ceil(config.cycle());
        let pass = |rows| self.data.micro_steps_per_epoch(rows);
        let prompts = begun as f64 * self.prompts() as f64;
        (steps.min(cold) * accum) as f64 / pass(train.micro_batch_size) + prompts / pass(1)
    }

    /// How answers to train on are drawn in a step.
    fn sampling(&self, step: u64, round: u32) -> Sampling {
        let config = self.config();
        Sampling {
            temperature: config.temperature,
            top_k: config.top_k,
            top_p: config.top_p,
            max_new_tokens: config.max_new_tokens,
            seed: Rng::new(self.spec.seed, Stream::Rollout, step, 2 * round).next_u64(),
            stop: stops(config, &self.data.ends),
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
        show::declarations(&self.spec, self.data.answers().have_thoughts())
    }

    /// Readings of the answers that the last step learned from; none where it learned from the data's.
    pub fn readings(&self) -> Option<&[(String, f64)]> {
        self.told.as_deref()
    }

    /// Timings of the last step.
    pub(super) fn take_parts(&mut self) -> Parts {
        std::mem::take(&mut self.parts)
    }

    /// Writes the answers of a new rollout beside the log of the run.
    ///
    /// # Errors
    /// The disk does not take them.
    pub(super) fn keep(&mut self, run: &std::path::Path) -> std::io::Result<()> {
        let keep = self.config().keep;
        match self.unwritten.take() {
            Some(rollout) => crate::run::rollouts::write(run, &rollout, keep),
            None => Ok(()),
        }
    }

    /// The first groups of the last step.
    pub fn examples(&self) -> Vec<ExaminedExample> {
        let group_size = self.config().group_size;
        self.last
            .as_ref()
            .map_or_else(Vec::new, |rollout| show::groups(rollout, group_size))
    }
}

/// What ends an answer besides the tokens that end texts, `ends`.
pub(super) fn stops(config: &RolloutConfig, ends: &[u32]) -> Vec<String> {
    match config.stop.is_empty() && ends.is_empty() {
        true => vec!["\n".into()],
        false => config.stop.clone(),
    }
}

impl Rollouts {
    /// Answers to prompts with their scores; groups whose answers are all worth the same are replaced by answers to other
    /// prompts, as often as the spec says. `drawn` is the step by the data cursor.
    fn write_and_score(
        &mut self,
        models: &mut Models,
        drawn: u64,
        parts: &mut Parts,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Scored>, EngineError> {
        let (config, seed) = (self.config(), self.spec.seed);
        let (group_size, refill) = (config.group_size, config.refill as u64);
        let number = drawn.saturating_sub(config.cold_start_steps) / config.cycle();
        let prompts = Asked::drawn(&self.data, seed, number, self.prompts());
        let found = self.answered(models, &prompts, (drawn, 0), parts, broken_off)?;
        let Some(mut found) = found else {
            return Ok(None);
        };
        for round in 1..=refill {
            let rewards = Rollouts::weighed(&found.scores, found.written.len());
            let groups = rewards.chunks(group_size).enumerate();
            let dead: Vec<usize> = groups
                .filter(|(_, group)| show::same(group))
                .map(|(at, _)| at)
                .collect();
            if dead.is_empty() {
                break;
            }
            // Prompts of another order than those of the steps.
            let other = Rng::new(seed, Stream::Rollout, drawn, 2 * round as u32 - 1).next_u64();
            let others = Asked::drawn(&self.data, other, 0, dead.len());
            let at = (drawn, round as u32);
            let Some(fresh) = self.answered(models, &others, at, parts, broken_off)? else {
                return Ok(None);
            };
            found.refilled += fresh.written.len() / group_size;
            found.replace(&dead, fresh, group_size);
        }
        Ok(Some(found))
    }

    fn answered(
        &mut self,
        models: &mut Models,
        prompts: &[Asked],
        (step, round): (u64, u32),
        parts: &mut Parts,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Scored>, EngineError> {
        let begun = self.clock.elapsed();
        let sampling = self.sampling(step, round);
        let how = (
            &sampling,
            self.config().group_size,
            self.config().side_by_side,
        );
        let Some(written) = write(models, &self.data, (prompts, 0), how, broken_off)? else {
            return Ok(None);
        };
        let written_at = self.clock.elapsed();
        let answers: Vec<Answer> = written.iter().map(|w| w.answer.clone()).collect();
        let scores = self.judge.score(&answers)?;
        parts.writing += written_at - begun;
        parts.scoring += self.clock.elapsed() - written_at;
        Ok(Some(Scored {
            written,
            scores,
            refilled: 0,
        }))
    }

    /// Before the first rollout: a critic begins, and a reference is the policy as a cold start left it.
    fn begin_rollouts(&self, state: &mut TrainState) -> Result<(), EngineError> {
        if self.config().cold_start_steps > 0 && !state.models.anchored {
            state.models.anchor()?;
        }
        let Some(critic) = state.critic.as_mut().filter(|critic| !critic.has_begun()) else {
            return Ok(());
        };
        let Models { policy, remote, .. } = &mut state.models;
        if let Some(remote) = remote {
            remote.pull_weights(policy)?;
        }
        critic.begin(&self.spec, policy)?;
        if let Some(remote) = remote {
            remote.critic_changed();
        }
        Ok(())
    }

    /// What reference, policy and critic say of each token, as columns of the batches; false when `broken_off` said so meanwhile.
    fn compare(
        &self,
        batches: &mut [Batch],
        state: &mut TrainState,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<bool, EngineError> {
        // The sampler's log-probabilities differ by rounding from those of a pass over the whole text, as the reference's are:
        // a KL of the two would be charged where policy and reference are the same.
        let charges = on_policy(&self.spec).is_some_and(OnPolicy::charges_kl);
        let asks_policy = self.config().cycle() > 1 || charges;
        for batch in batches {
            if broken_off() {
                return Ok(false);
            }
            state.models.add_token_reference(batch)?;
            state.models.add_old_policy(batch, asks_policy)?;
            if let Some(critic) = &mut state.critic {
                critic.add_values(batch, state.models.remote.as_mut())?;
            }
        }
        Ok(true)
    }

    /// Judges all answers and puts their advantages into the batches; moves the KL coefficient of `progress`, and drops the old policy's
    /// column where the policy that answers is the one that learns. Returns the advantages, one an answer (a critic's as means), and
    /// the readings beside them.
    fn put_advantages(
        &self,
        batches: &mut [Batch],
        rewards: &[f64],
        ended: &[bool],
        progress: &mut Progress,
    ) -> (Vec<f64>, Vec<(&'static str, f64)>) {
        let (mut advantages, mut more) = (Vec::new(), Vec::new());
        if let Some(method) = on_policy(&self.spec).and_then(OnPolicy::critic) {
            let ended = ended.iter().copied();
            let scores: Vec<(f64, bool)> = rewards.iter().copied().zip(ended).collect();
            let beta = progress.kl_coef.unwrap_or(method.beta);
            let judged = critic::judge(method, beta, batches, &scores);
            let next = method.next_beta(beta, judged.kl, scores.len());
            progress.kl_coef = method.kl_target.map(|_| next);
            more = judged.readings;
        }
        if let Some(method) = on_policy(&self.spec) {
            // Readings show what the rewards gave, as TRL's do.
            let mut charged = rewards.to_vec();
            if method.kl_in_reward() > 0.0 {
                let kl = batching::subtract_kl(batches, method.kl_in_reward(), &mut charged);
                more.extend(kl.map(|kl| (id::KL, kl)));
            }
            advantages = method.advantages(&charged, self.config().group_size);
        }
        // The policy that answers is the one that learns: with no old policy beside it the loss stays linear.
        if self.config().cycle() == 1 {
            batches.iter_mut().for_each(batching::drop_old_policy);
        }
        let mut rest = advantages.as_slice();
        for batch in &mut *batches {
            let (own, others) = rest.split_at(batch.batch_size.min(rest.len()));
            batching::put(batch, ADVANTAGE, own.iter().map(|a| *a as f32).collect());
            rest = others;
        }
        // A critic's advantages differ from token to token; the mean is shown.
        let means = batching::means(batches, TOKEN_ADVANTAGE);
        (means.unwrap_or(advantages), more)
    }

    /// A rollout by the weights as they are, as batches with every column. `drawn` is the step by the data cursor, which
    /// prompts and answers are drawn by: ahead of the steps done where a rescue has passed over some.
    /// `Ok(None)` when `broken_off` said so meanwhile.
    fn begin(
        &mut self,
        drawn: u64,
        state: &mut TrainState,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<ActiveRollout>, EngineError> {
        let group_size = self.config().group_size;
        self.begin_rollouts(state)?;
        let step = state.progress.step + 1;
        let models = &mut state.models;
        let mut parts = Parts::default();
        let found = self.write_and_score(models, drawn, &mut parts, broken_off)?;
        let Some(Scored {
            written,
            scores,
            refilled,
        }) = found
        else {
            return Ok(None);
        };
        let rewards = Rollouts::weighed(&scores, written.len());

        let scored_at = self.clock.elapsed();
        let mut batches = batching::batches(&written, &self.spec, self.data.seq_len());
        if !self.compare(&mut batches, state, broken_off)? {
            return Ok(None);
        }
        parts.comparing = self.clock.elapsed() - scored_at;
        let ended: Vec<bool> = written.iter().map(|w| w.answer.ended).collect();
        let (advantages, more) =
            self.put_advantages(&mut batches, &rewards, &ended, &mut state.progress);
        self.parts = parts;
        let rollout = Rollout {
            written,
            scores,
            rewards,
            advantages,
            refilled,
            parts,
        };
        let thinks = self.data.answers().have_thoughts();
        let mut readings = show::readings(&rollout, group_size, thinks);
        readings.extend(more.into_iter().map(|(id, x)| (id.to_string(), x)));
        if self.config().keep > 0 {
            let texts = (&*self.data, group_size);
            self.unwritten = Some(kept::file(step, &rollout, &batches, texts));
        }
        self.last = Some(rollout);
        Ok(Some(ActiveRollout {
            begun: drawn,
            batches,
            pass: 0,
            order: Vec::new(),
            readings,
        }))
    }
}

impl Experience for Rollouts {
    fn step(
        &mut self,
        micro_step: u64,
        state: &mut TrainState,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<StepBatches>, EngineError> {
        let (train, seed) = (&self.spec.train, self.spec.seed);
        let (accum, rows) = (train.grad_accum_steps, train.micro_batch_size);
        let drawn = micro_step / accum as u64;
        let (cold, cycle) = (self.config().cold_start_steps, self.config().cycle());
        self.parts = Parts::default();
        if state.progress.step < cold {
            (self.last, self.told) = (None, None);
            let batch = |i| self.data.train_batch(seed, micro_step + i, rows);
            let batches = (0..accum as u64).map(batch).collect();
            return Ok(Some(StepBatches {
                micro_step,
                batches,
            }));
        }
        let place = drawn.saturating_sub(cold) % cycle;
        let held = state.in_use.take();
        // A resume restores them; if the spec was changed since, completions are generated again.
        let fits = |held: &ActiveRollout| {
            let laid = held.batches.iter().map(|batch| batch.batch_size);
            let wanted = self.config().steps * accum;
            held.begun + place == drawn && laid.eq(std::iter::repeat_n(rows, wanted))
        };
        let mut held = match held.filter(fits) {
            Some(held) => held,
            None => {
                let Some(mut held) = self.begin(drawn, state, broken_off)? else {
                    return Ok(None);
                };
                held.begun = drawn - place;
                if self.config().steps > 1 {
                    held.reorder(0, seed, rows, self.data.seq_len());
                }
                held
            }
        };
        let pass = place / self.config().steps as u64;
        if self.config().steps > 1 && held.pass != pass {
            held.reorder(pass, seed, rows, self.data.seq_len());
        }
        self.told = Some(held.readings.clone());
        let first = (place as usize % self.config().steps) * accum;
        let own = first..first + accum;
        let batches = if place + 1 < cycle {
            let batches = held.batches[own].to_vec();
            state.in_use = Some(held);
            batches
        } else {
            held.batches.drain(own).collect()
        };
        Ok(Some(StepBatches {
            micro_step,
            batches,
        }))
    }

    fn recycle(&mut self, _step: StepBatches) {}

    fn rollouts(&mut self) -> Option<&mut Rollouts> {
        Some(self)
    }
}
