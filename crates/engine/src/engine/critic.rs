//! The separate critic (value model) of methods that have one: it predicts the return at every token and has its own optimizer. It has
//! the policy's size, starts at the first rollout, and is part of every checkpoint from then on.

use super::EngineError;
use super::checkpoint::error::CheckpointError;
use super::checkpoint::flat;
use super::finite::{held_are_finite, state_is_finite};
use super::optimizer::{release, update_rule};
use super::remote::{Remote, ScoringWeights};
use super::roles::set;
use super::start_weights::{arithmetic, critic_source};
use super::update::{At, Gradients, Rates, apply, gradients};
use crate::data::Batch;
use crate::methods::policy::{OLD_LOGP, SAMPLER_LOGP, TOKEN_REFERENCE};
use crate::methods::ppo::{
    self, Answered, CRITIC_NORM, GaeOutput, OLD_VALUES, RETURNS, TOKEN_ADVANTAGE,
};
use crate::methods::tokens;
use crate::nn::{HeadKind, Model, Params};
use crate::optim::{UpdateRule, clip_scale};
use crate::spec::RunSpec;
use std::io;
use std::path::Path;

/// A model of values.
pub struct Critic {
    model: Model,
    optimizer: Box<dyn UpdateRule>,
    /// Whether it holds anything yet.
    begun: bool,
}

impl Critic {
    /// One of the policy's shape that holds nothing yet; `None` where the method has none, or the policy says values itself.
    ///
    /// # Errors
    /// An optimizer or adapter that does not fit.
    pub fn blank(spec: &RunSpec, policy: &Model) -> Result<Option<Critic>, EngineError> {
        let method = spec.method.on_policy().and_then(|m| m.critic());
        if method.is_none_or(ppo::Config::shares_trunk) {
            return Ok(None);
        }
        let mut config = spec.model.clone();
        config.head = HeadKind::Score;
        let mut model = Model::new(&config, policy.shape().vocab_size, policy.device())?;
        if let Some(adapter) = &spec.adapter {
            model.adapt(adapter)?;
        }
        model.set_compute_dtype(arithmetic(spec)?)?;
        model.set_checkpointing(spec.train.activation_checkpointing);
        let optimizer = update_rule(spec, &model)?;
        Ok(Some(Critic {
            model,
            optimizer,
            begun: false,
        }))
    }

    /// Its model: with ranks elsewhere the engine's copy.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The parameters of its model.
    pub fn params(&self) -> &Params {
        self.model.params()
    }

    /// Whether it holds anything yet.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Begins: the weights of a reward model, or the policy's with a new vector for the value.
    ///
    /// # Errors
    /// A reward model of another shape or tokenizer.
    pub fn begin(&mut self, spec: &RunSpec, policy: &Model) -> Result<(), EngineError> {
        self.model.init(spec.seed)?;
        let method = spec.method.on_policy().and_then(|m| m.critic());
        let place = method.and_then(|m| m.critic_from.as_deref());
        match place {
            Some(place) => critic_source(place, &mut self.model)?,
            None => self.model.copy_trunk(policy)?,
        }
        self.model.init_adapters(spec.seed)?;
        if place.is_none() {
            // What a cold start has taught the policy lies in its adapter.
            self.model.copy_adapters(policy)?;
        }
        self.reset_optimizer(spec)?;
        self.begun = true;
        Ok(())
    }

    /// Brings weights and moments here, where ranks have newer ones.
    ///
    /// # Errors
    /// The ranks are gone.
    pub fn take_from_ranks(&mut self, remote: &mut Remote) -> candle_core::Result<()> {
        remote.for_critic(|remote| remote.pull(&mut self.model, &mut *self.optimizer))
    }

    /// Writes its value for every token into the rollout.
    ///
    /// # Errors
    /// A batch that it refuses; ranks that are gone.
    pub fn add_values(
        &mut self,
        batch: &mut Batch,
        remote: Option<&mut Remote>,
    ) -> Result<(), EngineError> {
        let asked = tokens(batch);
        let out = match remote {
            Some(remote) => remote.for_critic(|remote| {
                remote.push(&self.model)?;
                remote.score(&asked, ScoringWeights::Policy)
            })?,
            None => self.model.score(&asked)?,
        };
        set(batch, OLD_VALUES, out.logp.flatten_all()?.to_vec1()?);
        Ok(())
    }

    /// The gradient of the value loss over a step's answers; `None` where the step learns from none.
    ///
    /// # Errors
    /// A batch that it refuses; ranks that are gone.
    pub fn gradients(
        &mut self,
        method: &ppo::Config,
        batches: &[Batch],
        at: At,
        remote: Option<&mut Remote>,
    ) -> Result<Option<Gradients>, EngineError> {
        if batches.iter().any(|b| b.column(RETURNS).is_none()) {
            return Ok(None);
        }
        let loss = method.value_loss();
        self.show_average(false)?;
        let mut found = match remote {
            Some(remote) => remote.for_critic(|remote| {
                remote.push(&self.model)?;
                remote.gradients(&loss, batches, at)
            })?,
            None => gradients(&loss, &mut self.model, batches, at)?,
        };
        found.readings.add(CRITIC_NORM, found.norm, 1.0);
        Ok(Some(found))
    }

    /// The update by that gradient.
    ///
    /// # Errors
    /// Those of the optimizer; ranks that are gone.
    pub fn update(
        &mut self,
        norm: f64,
        rates: Rates,
        remote: Option<&mut Remote>,
    ) -> Result<(), EngineError> {
        let optimizer = &mut *self.optimizer;
        match remote {
            Some(remote) => {
                let scale = clip_scale(norm, rates.clip_norm);
                remote.for_critic(|remote| remote.apply(rates.lr, scale, optimizer))?;
            }
            None => {
                apply(&mut self.model, optimizer, norm, rates)?;
            }
        }
        Ok(())
    }

    /// Switches the model to averaged weights, if the optimizer keeps any, or back to the trained ones.
    ///
    /// # Errors
    /// Those of the optimizer.
    pub fn show_average(&mut self, show: bool) -> candle_core::Result<()> {
        self.optimizer.show_average(self.model.params_mut(), show)
    }

    /// Drops its moments.
    ///
    /// # Errors
    /// Those of the optimizer.
    pub fn reset_optimizer(&mut self, spec: &RunSpec) -> candle_core::Result<()> {
        release(&mut self.optimizer);
        self.optimizer = update_rule(spec, &self.model)?;
        Ok(())
    }

    /// True while every weight is a number.
    ///
    /// # Errors
    /// Those of candle.
    pub fn weights_are_finite(&self) -> candle_core::Result<bool> {
        held_are_finite(&self.model)
    }

    /// True while every part of the optimizer's state is a number.
    ///
    /// # Errors
    /// Those of candle.
    pub fn moments_are_finite(&self) -> candle_core::Result<bool> {
        state_is_finite(&*self.optimizer)
    }

    /// Writes weights and moments into a checkpoint's file.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        flat::write(&self.model, Some(&*self.optimizer), out)
    }

    /// Takes up what [`Critic::write`] wrote; without the file it is reset at the next rollout.
    ///
    /// # Errors
    /// A file of another shape.
    pub fn read(&mut self, path: &Path) -> Result<(), CheckpointError> {
        self.begun = path.exists();
        if !self.begun {
            return Ok(());
        }
        // Which weights the checkpoint contains.
        self.show_average(true)?;
        flat::read(path, &mut self.model, Some(&mut *self.optimizer))
    }
}

/// Writes advantages and returns into a rollout that has values, and returns its readings.
pub fn judge(
    method: &ppo::Config,
    beta: f64,
    batches: &mut [Batch],
    scores: &[(f64, bool)],
) -> GaeOutput {
    let mut answers = Vec::with_capacity(scores.len());
    let mut given = scores.iter();
    for batch in &*batches {
        for (row, (score, ended)) in (0..batch.batch_size).zip(given.by_ref()) {
            let of = |name| picked(batch, name, row);
            answers.push(Answered {
                score: *score,
                ended: *ended,
                logp: match batch.column(OLD_LOGP) {
                    Some(_) => of(OLD_LOGP),
                    None => of(SAMPLER_LOGP),
                },
                reference: of(TOKEN_REFERENCE),
                values: of(OLD_VALUES),
            });
        }
    }
    let judged = method.compute_gae(beta, &answers);
    let mut rows = judged.advantages.iter().zip(&judged.returns);
    for batch in batches {
        let (mut advantages, mut returns) =
            (vec![0.0; batch.inputs.len()], vec![0.0; batch.inputs.len()]);
        for (row, (a, r)) in (0..batch.batch_size).zip(rows.by_ref()) {
            for (at, (a, r)) in places(batch, row).zip(a.iter().zip(r)) {
                (advantages[at], returns[at]) = (*a as f32, *r as f32);
            }
        }
        set(batch, TOKEN_ADVANTAGE, advantages);
        set(batch, RETURNS, returns);
    }
    judged
}

/// The positions of a completion's tokens in its row.
fn places(batch: &Batch, row: usize) -> impl Iterator<Item = usize> {
    let all = row * batch.seq_len..(row + 1) * batch.seq_len;
    all.filter(|at| batch.mask[*at])
}

/// A column's values at the tokens of a row's answer; nothing without the column.
fn picked(batch: &Batch, name: &str, row: usize) -> Vec<f64> {
    let column = batch.column(name);
    let pick = |column: &[f32]| places(batch, row).map(|at| f64::from(column[at])).collect();
    column.map_or_else(Vec::new, pick)
}
