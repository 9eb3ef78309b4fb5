//! The state of training: weights, moments and counters. Everything that the next step depends on is here or in the spec;
//! random numbers need no state, because each draw is a function of its counters.

use super::EngineError;
use super::critic::Critic;
use super::finite::{held_are_finite, state_is_finite};
use super::guard::SpikeDetector;
use super::optimizer::{averaged_rule, release};
use super::roles::{Models, Reference};
use super::rollouts::in_use::ActiveRollout;
use super::start_weights::{arithmetic, blank_policy, start_weights};
use crate::data::Dataset;
use crate::hf::TokenIds;
use crate::models::ModelSource;
use crate::optim::UpdateRule;
use crate::probes::{Carried, SharedProbes};
use crate::spec::{RunSpec, TrainConfig};
use crate::wire::{Best, Num, UndoPoint};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Settings changed while the run goes on; they survive a resume.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adjustments {
    /// Replaces the schedule's peak learning rate; the whole schedule, its floor too, scales with it.
    pub lr: Option<f64>,
    /// Replaces `train.clip_norm`.
    pub clip_norm: Option<f64>,
}

/// The settings that `Adjust` can change, by its keys, as they are in use.
pub type Settings = [(&'static str, f64); 2];

/// How a rescue can be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    pub to: UndoPoint,
    /// Step of the checkpoint that the rescue went back to.
    pub rescue: u64,
    pub why: String,
}

/// The counters of a run: what `state.json` of a checkpoint holds besides fingerprints.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Progress {
    /// Optimizer updates done.
    pub step: u64,
    /// Target tokens consumed.
    pub tokens: u64,
    /// Micro-steps done: the data cursor. Batch number n is a function of (seed, n).
    pub micro_step: u64,
    pub best: Option<Best>,
    /// The newest evaluation that has the reading by which the best is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Best>,
    /// The best of the steps that were saved: its checkpoint is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_saved: Option<Best>,
    /// Scheduled evaluations since the best one.
    #[serde(skip_serializing_if = "is_zero")]
    pub stale: u64,
    /// Tokens consumed of each source of a mix; empty without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_tokens: Vec<u64>,
    /// Loss of the last step.
    pub train_loss: Option<Num>,
    /// Losses of the steps since the last line of the log: its next one has their mean.
    #[serde(skip_serializing_if = "Unlogged::is_empty")]
    pub unlogged: Unlogged,
    /// The same of steps whose loss is of another kind: [`super::experience::Experience::other_loss`].
    #[serde(default, skip_serializing_if = "Unlogged::is_empty")]
    pub unlogged_other: Unlogged,
    /// Loss of the last evaluation.
    pub val_loss: Option<Num>,
    /// Steps at which the last evaluation, sample and save were done: a resume does not repeat them.
    pub evaluated_at: Option<u64>,
    pub sampled_at: Option<u64>,
    /// Step at which tasks were asked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<u64>,
    pub adjustments: Adjustments,
    /// KL coefficient of the next rollout, where a controller has moved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl_coef: Option<f64>,
    /// Micro-steps whose batches are passed over: first, and one after the last; in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<(u64, u64)>,
    /// Rescues so far.
    #[serde(skip_serializing_if = "is_zero")]
    pub rescues: u64,
    /// The state before the newest rescue, while it can be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<Undo>,
    /// What outliers are measured against.
    #[serde(skip_serializing_if = "SpikeDetector::is_new")]
    pub guard: SpikeDetector,
    /// What probes measure against, as of the checkpoint that was written or read last.
    #[serde(skip_serializing_if = "Carried::is_empty")]
    pub probes: Carried,
}

/// Losses of steps that no line of the log has yet. The lines at which it is emptied depend on the spec alone, not on where a process
/// stopped, so a resumed run logs the means of an unbroken one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Unlogged {
    sum: f64,
    steps: u64,
}

impl Unlogged {
    fn is_empty(&self) -> bool {
        self.steps == 0
    }

    /// Adds the loss of a step.
    pub(super) fn add(&mut self, loss: f64) {
        self.sum += loss;
        self.steps += 1;
    }

    /// The mean over the steps, each counted once, as transformers logs it; `None` without a step.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.sum / self.steps as f64)
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Progress {
    /// Advances the data cursor past a step of `micro_steps`, and past skipped batches.
    pub(super) fn advance(&mut self, micro_steps: u64) {
        self.micro_step += micro_steps;
        while let Some((_, end)) = self
            .skips
            .iter()
            .find(|(first, end)| (*first..*end).contains(&self.micro_step))
        {
            self.micro_step = *end;
        }
    }
}

/// The first micro-step of a step, from 1, as the run did it: after the batches that rescues passed over.
pub fn micro_step_of(step: u64, train: &TrainConfig, skips: &[(u64, u64)]) -> u64 {
    let mut progress = Progress {
        skips: skips.to_vec(),
        ..Progress::default()
    };
    progress.advance(0);
    for before in 1..step {
        progress.advance(train.accum(before) as u64);
    }
    progress.micro_step
}

/// All that training changes. Owned by the engine thread alone.
pub struct TrainState {
    pub models: Models,
    pub optimizer: Box<dyn UpdateRule>,
    /// Of methods that have one.
    pub critic: Option<Critic>,
    pub progress: Progress,
    /// Answers of the policy as it was, while steps to come still learn from them.
    pub in_use: Option<ActiveRollout>,
    /// Where the weights under adapters came from, for those who load the adapters.
    pub base: Option<String>,
    /// The settings of the start model's generation_config.json, which checkpoints keep.
    pub generation: Option<Map<String, Value>>,
    /// The tokens that begin and end a text for the start model, which checkpoints keep beside the tokenizer's.
    pub start_ids: Option<TokenIds>,
    /// The run's probes, whose past goes into checkpoints.
    pub carrier: SharedProbes,
}

impl TrainState {
    /// The state before the first step: initial weights by the spec's seed, or those of `train.from`.
    ///
    /// # Errors
    /// The model does not fit the data, or its weights cannot be read.
    pub fn fresh(spec: &RunSpec, data: &Dataset) -> Result<TrainState, EngineError> {
        let mut state = TrainState::blank(spec, data)?;
        start_weights(&mut state.models.policy, spec, data)?;
        Ok(state)
    }

    /// A state of the right shape with zero weights, to be filled from a checkpoint.
    ///
    /// # Errors
    /// The model does not fit the data, or the optimizer does not fit the model.
    pub fn blank(spec: &RunSpec, data: &Dataset) -> Result<TrainState, EngineError> {
        let mut model = blank_policy(spec, data)?;
        model.set_compute_dtype(arithmetic(spec)?)?;
        model.set_checkpointing(spec.train.activation_checkpointing);
        model.set_regularizers(spec.regularizers());
        let optimizer = averaged_rule(spec, &model)?;
        let critic = Critic::blank(spec, &model)?;
        let from = spec.train.from.as_deref();
        let start = from.and_then(|place| ModelSource::open(place).ok());
        Ok(TrainState {
            models: Models::alone(model),
            optimizer,
            critic,
            progress: Progress::default(),
            in_use: None,
            carrier: SharedProbes::default(),
            // A GGUF file has none.
            generation: start.as_ref().and_then(ModelSource::generation),
            start_ids: start.as_ref().map(ModelSource::generation_ids),
            base: from.map(|place| {
                let whole = std::path::absolute(place).unwrap_or_else(|_| place.into());
                whole.display().to_string()
            }),
        })
    }

    /// Weights and optimizer as before the first step, in place: a second copy of them may not fit into memory. The counters, the
    /// ranks and the kind of the reference stay.
    ///
    /// # Errors
    /// As of [`TrainState::fresh`].
    pub fn restart(&mut self, spec: &RunSpec, data: &Dataset) -> Result<(), EngineError> {
        release(&mut self.optimizer);
        self.critic = None;
        self.in_use = None;
        self.models.anchored = false;
        if let Reference::FrozenThere(copy) = &mut self.models.reference {
            *copy = None;
        }
        let policy = &mut self.models.policy;
        policy
            .params_mut()
            .write_held(|weights| weights.fill(0.0))?;
        start_weights(policy, spec, data)?;
        self.critic = Critic::blank(spec, &self.models.policy)?;
        self.reset_optimizer(spec)?;
        Ok(())
    }

    /// A frozen reference becomes what was attached before the first step again: the start weights, in place.
    ///
    /// # Errors
    /// [`EngineError::Machine`]: they cannot be read any more, and the reference that was there is gone.
    pub fn attach_start_weights(
        &mut self,
        spec: &RunSpec,
        data: &Dataset,
    ) -> Result<(), EngineError> {
        let attached = self
            .models
            .restore_anchor(|model| -> Result<(), EngineError> {
                model
                    .params_mut()
                    .write_weights(|weights| weights.fill(0.0))?;
                start_weights(model, spec, data)
            });
        attached.map_err(|e| match e {
            EngineError::Setup(why) => EngineError::Machine(format!(
                "the reference model, which are the start weights, cannot be read again: {why}"
            )),
            other => other,
        })?;
        self.models.moved = false;
        Ok(())
    }

    /// Switches the policy to averaged weights, if the optimizer keeps any, or back to the trained ones.
    ///
    /// # Errors
    /// Those of the optimizers.
    pub fn show_average(&mut self, show: bool) -> candle_core::Result<()> {
        if let Some(critic) = &mut self.critic {
            critic.show_average(show)?;
        }
        let (policy, optimizer) = (&mut self.models.policy, &mut *self.optimizer);
        match &mut self.models.remote {
            Some(remote) => remote.show_average(policy, optimizer, show),
            None => optimizer.show_average(policy.params_mut(), show),
        }
    }

    /// Moves the reference by the share `alpha` of the way to the trained weights.
    ///
    /// # Errors
    /// Those of [`Models::move_reference`].
    pub fn move_reference(&mut self, alpha: f64) -> candle_core::Result<()> {
        // With the moments: the ranks' weights are written over for the reference, and come from here again.
        self.take_from_ranks()?;
        self.models.move_reference(alpha)
    }

    /// Brings weights and moments here, where ranks elsewhere have newer ones.
    ///
    /// # Errors
    /// The ranks are gone.
    pub fn take_from_ranks(&mut self) -> candle_core::Result<()> {
        let Some(remote) = &mut self.models.remote else {
            return Ok(());
        };
        if let Some(critic) = &mut self.critic {
            critic.take_from_ranks(remote)?;
        }
        remote.pull(&mut self.models.policy, &mut *self.optimizer)
    }

    /// Weights or moments were changed here: ranks elsewhere get them before their next pass.
    pub fn changed_here(&mut self) {
        if let Some(remote) = &mut self.models.remote {
            remote.copy_changed();
        }
    }

    /// The learning rate of the next update.
    pub fn lr(&self, spec: &RunSpec) -> f64 {
        let peak = spec.optimizer.lr();
        let mut scheduled = spec
            .schedule
            .lr_at(self.progress.step, spec.train.max_steps, peak);
        let rollouts = spec.method.on_policy().is_some();
        if rollouts && self.progress.step >= spec.rollout.cold_start_steps {
            scheduled *= spec.rollout.lr_scale;
        }
        match self.progress.adjustments.lr {
            Some(lr) if peak > 0.0 => scheduled * (lr / peak),
            Some(lr) => lr,
            None => scheduled,
        }
    }

    /// The schedule's peak as it is now.
    pub fn peak_lr(&self, spec: &RunSpec) -> f64 {
        let adjusted = self.progress.adjustments.lr;
        adjusted.unwrap_or(spec.optimizer.lr())
    }

    /// What `Adjust` can change, as it is now.
    pub fn settings(&self, spec: &RunSpec) -> Settings {
        [
            ("lr", self.peak_lr(spec)),
            ("clip_norm", self.clip_norm(spec)),
        ]
    }

    /// The gradient norm above which gradients are scaled down; 0 is off.
    pub fn clip_norm(&self, spec: &RunSpec) -> f64 {
        self.progress
            .adjustments
            .clip_norm
            .unwrap_or(spec.train.clip_norm)
    }

    /// The state of the update rules is dropped, the critic's as well.
    ///
    /// # Errors
    /// Those of the optimizers.
    pub fn reset_optimizer(&mut self, spec: &RunSpec) -> candle_core::Result<()> {
        release(&mut self.optimizer);
        self.optimizer = averaged_rule(spec, &self.models.policy)?;
        if let Some(critic) = &mut self.critic {
            critic.reset_optimizer(spec)?;
        }
        self.changed_here();
        Ok(())
    }

    /// True while every part of the optimizers' state is a number: a NaN may be there before it is in the weights.
    ///
    /// # Errors
    /// Those of the optimizers.
    pub fn moments_are_finite(&self) -> candle_core::Result<bool> {
        let of_critic = self
            .critic
            .as_ref()
            .map_or(Ok(true), Critic::moments_are_finite);
        Ok(of_critic? && state_is_finite(&*self.optimizer)?)
    }

    /// True while every weight is finite, the critic's too: non-finite ones are never saved.
    ///
    /// # Errors
    /// Those of candle.
    pub fn weights_are_finite(&self) -> candle_core::Result<bool> {
        let of_critic = self
            .critic
            .as_ref()
            .map_or(Ok(true), Critic::weights_are_finite);
        Ok(of_critic? && held_are_finite(&self.models.policy)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tiny;
    use super::*;

    /// The weights, and every part of the optimizer's state.
    fn held(state: &TrainState) -> Vec<Vec<f32>> {
        let part = |part: crate::optim::StatePart| {
            let mut values = Vec::new();
            let mut read = |own: &[f32]| values.extend_from_slice(own);
            state.optimizer.read_state(part.name, &mut read).unwrap();
            values
        };
        let weights = state.models.policy.params().read_held(<[f32]>::to_vec);
        let parts = state.optimizer.state().into_iter().map(part);
        std::iter::once(weights.unwrap()).chain(parts).collect()
    }

    #[test]
    fn a_restarted_state_is_that_before_the_first_step() {
        for words in [
            &[][..],
            &["adapter.lora.rank=2"],
            &["adapter.lora.rank=2", "adapter.lora.dora=true"],
            &["optimizer=adamw8bit"],
            &["train.ema_decay=0.9"],
        ] {
            let (spec, data) = tiny(words);
            let mut state = TrainState::fresh(&spec, &data).unwrap();
            let begun = held(&state);
            let policy = &mut state.models.policy;
            let spoil = |own: &mut [f32]| own.fill(0.25);
            policy.params_mut().write_held(spoil).unwrap();
            for part in state.optimizer.state() {
                // What counts updates has no fractions.
                let value = if part.len < 5 { 2.0 } else { 0.25 };
                let mut spoil = |own: &mut [f32]| own.fill(value);
                state.optimizer.write_state(part.name, &mut spoil).unwrap();
            }
            state.progress.step = 7;
            state.restart(&spec, &data).unwrap();
            assert!(held(&state) == begun, "{words:?}");
            assert_eq!(state.progress.step, 7);
        }
    }

    #[test]
    fn a_vocabulary_smaller_than_the_tokenizers_is_refused_and_a_larger_one_is_not() {
        let (spec, data) = tiny(&["model.vocab_size=64"]);
        let error = TrainState::blank(&spec, &data).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains("64 is smaller than the tokenizer's 65")));
        let (spec, data) = tiny(&["model.vocab_size=128"]);
        assert_eq!(
            TrainState::blank(&spec, &data)
                .unwrap()
                .models
                .policy
                .shape()
                .vocab_size,
            128
        );
    }
}
