//! The models of a run by role: the policy that is trained, and the reference of a preference method.

use super::EngineError;
use super::checkpoint::FrozenModel;
use super::remote::{Remote, ScoringWeights};
use crate::data::{Batch, Column, Dataset, Origin, Unit};
use crate::methods::policy::{OLD_LOGP, TOKEN_REFERENCE};
use crate::methods::ppo::OLD_VALUES;
use crate::methods::{BASELINE, Method, REFERENCE_LOGP, ReferenceChoice, sequence_logps, tokens};
use crate::nn::{Model, TokenOutputs};
use crate::spec::RunSpec;
use crate::workers::WorkerFailure;
use std::collections::HashMap;

/// The models of a run.
pub struct Models {
    /// What trains.
    pub policy: Model,
    pub reference: Reference,
    /// What the policy's teacher is; `None` where it has none.
    pub teacher: Option<FrozenModel>,
    /// Ranks of PyTorch, where those compute: then `policy` is the engine's copy, which is as new as the last look at it.
    pub remote: Option<Remote>,
    /// Whether the reference is another than the policy before the first step, as after a cold start: then checkpoints hold it.
    pub anchored: bool,
    /// Whether steps move the reference from the first one on (`train.sync_ref_model`): every checkpoint holds it.
    pub moves: bool,
    /// Whether one has moved it since the policy was as before the first step: then only a checkpoint knows what it was.
    pub moved: bool,
}

/// Log-probabilities by sequence, in nats.
pub type Table = HashMap<Origin, f32>;

/// The model that a method compares the policy with: the policy as it was before the first step.
pub enum Reference {
    /// The method needs none.
    None,
    /// The policy with its adapter switched off.
    AdapterOff,
    /// A copy of the starting weights.
    Frozen(Box<Model>),
    /// The same, on the ranks; where a cold start has moved it, the engine's copy of it as well.
    FrozenThere(Option<Box<Model>>),
    /// Log-probabilities of every sequence under the initial weights.
    Precomputed(Table),
}

impl Models {
    /// A policy without a reference.
    pub fn alone(policy: Model) -> Models {
        Models {
            policy,
            reference: Reference::None,
            teacher: None,
            remote: None,
            anchored: false,
            moves: false,
            moved: false,
        }
    }

    /// The policy's outputs for a batch, without a gradient.
    ///
    /// # Errors
    /// A batch that it refuses; ranks that are gone.
    pub fn score(&mut self, batch: &Batch) -> candle_core::Result<TokenOutputs> {
        self.score_by(batch, ScoringWeights::Policy)
    }

    fn score_by(
        &mut self,
        batch: &Batch,
        who: ScoringWeights,
    ) -> candle_core::Result<TokenOutputs> {
        if let Some(remote) = &mut self.remote {
            remote.push(&self.policy)?;
            return remote.score(&tokens(batch), who);
        }
        let off = who == ScoringWeights::AdapterOff;
        self.policy.set_adapters(!off);
        let out = self.policy.score(&tokens(batch));
        self.policy.set_adapters(true);
        out
    }

    /// Computes the policy's log-probabilities of all sequences missing in the table; `after` is called for each batch, and its error
    /// aborts.
    ///
    /// # Errors
    /// That of `after`; a batch that the policy refuses; ranks that are gone.
    pub fn precompute(
        &mut self,
        data: &Dataset,
        batch_size: usize,
        table: &mut Table,
        after: &mut dyn FnMut(&Table) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        for batch in data.every_batch(batch_size) {
            let known = |origin| table.contains_key(origin);
            if batch.origins.iter().all(known) {
                continue;
            }
            let values = sequence_logps(&batch, &self.score(&batch)?)?;
            table.extend(batch.origins.iter().copied().zip(values));
            after(table)?;
        }
        Ok(())
    }

    /// Why ranks are gone, if they are.
    pub fn lost(&self) -> Option<WorkerFailure> {
        self.remote.as_ref()?.lost().cloned()
    }

    /// Gives the method the reference that it needs. The policy must be as it is before the first step.
    ///
    /// # Errors
    /// A reference that this model cannot give.
    pub fn attach_reference(
        &mut self,
        method: &dyn Method,
        data: &Dataset,
        batch_size: usize,
    ) -> Result<(), EngineError> {
        self.reference = match method.needs().reference {
            None => Reference::None,
            Some(ReferenceChoice::AdapterOff) => Reference::AdapterOff,
            Some(ReferenceChoice::Auto) if self.policy.is_its_own_reference() => {
                Reference::AdapterOff
            }
            Some(ReferenceChoice::Auto | ReferenceChoice::Frozen) if self.remote.is_some() => {
                if let Some(remote) = &mut self.remote {
                    remote.push(&self.policy)?;
                    remote.keep_reference()?;
                }
                Reference::FrozenThere(None)
            }
            Some(ReferenceChoice::Auto | ReferenceChoice::Frozen) => {
                Reference::Frozen(Box::new(self.policy.frozen_copy()?))
            }
            Some(ReferenceChoice::Precomputed) => {
                let mut table = Table::new();
                self.precompute(data, batch_size, &mut table, &mut |_| Ok(()))?;
                Reference::Precomputed(table)
            }
        };
        Ok(())
    }

    /// Writes the reference's log-probability of each sequence beside the batch, where the method needs it; beside judged
    /// answers also how far the policy has moved on answers to other prompts.
    ///
    /// # Errors
    /// A sequence that was not there when the reference was precomputed.
    pub fn add_reference(&mut self, batch: &mut Batch) -> Result<(), EngineError> {
        let Some(values) = self.reference_logps(batch)? else {
            return Ok(());
        };
        set(batch, REFERENCE_LOGP, values);
        let longest = self.policy.config().seq_len;
        if batch.unit == Unit::Judged
            && let Some(other) = batch.mismatched(longest)
            && let Some(reference) = self.reference_logps(&other)?
        {
            let out = self.score(&other)?;
            let policy = sequence_logps(&other, &out)?;
            let moved = policy.iter().zip(reference).map(|(p, r)| p - r);
            set(batch, BASELINE, moved.collect());
        }
        Ok(())
    }

    /// Whether a reference model is run in training; precomputed log-probabilities need none.
    pub fn runs_reference(&self) -> bool {
        !matches!(self.reference, Reference::None | Reference::Precomputed(_))
    }

    /// The reference's log-probability of each sequence; `None` without a reference.
    fn reference_logps(&mut self, batch: &Batch) -> Result<Option<Vec<f32>>, EngineError> {
        let values = match &mut self.reference {
            Reference::None => return Ok(None),
            Reference::AdapterOff => {
                let out = self.score_by(batch, ScoringWeights::AdapterOff)?;
                sequence_logps(batch, &out)?
            }
            Reference::FrozenThere(_) => {
                let out = self.score_by(batch, ScoringWeights::Reference)?;
                sequence_logps(batch, &out)?
            }
            Reference::Frozen(model) => scored(model, batch)?,
            Reference::Precomputed(table) => {
                let of = |origin| table.get(origin).copied();
                let values: Option<Vec<f32>> = batch.origins.iter().map(of).collect();
                values.ok_or_else(|| {
                    EngineError::Setup(
                        "a sequence has no precomputed reference: the data changed during the run"
                            .into(),
                    )
                })?
            }
        };
        Ok(Some(values))
    }

    /// A frozen reference becomes the policy as it now is: a cold start has moved it.
    ///
    /// # Errors
    /// Weights that cannot be copied.
    pub fn anchor(&mut self) -> Result<(), EngineError> {
        match (&mut self.reference, &mut self.remote) {
            (Reference::Frozen(_), _) => {
                // The old one goes first: beside it a second copy may not fit.
                self.reference = Reference::None;
                self.reference = Reference::Frozen(Box::new(self.policy.frozen_copy()?));
            }
            (Reference::FrozenThere(model), Some(remote)) => {
                remote.push(&self.policy)?;
                remote.pull_weights(&mut self.policy)?;
                remote.keep_reference()?;
                *model = Some(Box::new(self.policy.frozen_copy()?));
            }
            _ => return Ok(()),
        }
        self.anchored = true;
        Ok(())
    }

    /// After [`Models::attach_reference`]: where steps will move the reference, checkpoints hold it from the first one on, and ranks'
    /// reference has a copy here to be moved. A cold start comes first: what moves is the policy that it leaves.
    ///
    /// # Errors
    /// Weights that cannot be copied.
    pub fn let_reference_move(&mut self, spec: &RunSpec) -> Result<(), EngineError> {
        self.moved = false;
        self.moves = spec.train.sync_ref_model && spec.cold_start_steps() == 0;
        if !self.moves {
            return Ok(());
        }
        if let Reference::FrozenThere(copy @ None) = &mut self.reference {
            *copy = Some(Box::new(self.policy.frozen_copy()?));
        }
        self.anchored = true;
        Ok(())
    }

    /// Moves a frozen reference by the share `alpha` of the way to the policy: reference ← α · policy + (1 − α) · reference, TR-DPO's
    /// soft update (arXiv 2404.09656). Weights that are the same stay to the bit. The engine's copy of the policy must be the newest.
    ///
    /// # Errors
    /// Weights that are not here; ranks that are gone.
    pub fn move_reference(&mut self, alpha: f64) -> candle_core::Result<()> {
        let policy = &self.policy;
        match (&mut self.reference, &mut self.remote) {
            (Reference::Frozen(model), _) => mix(model, policy, alpha)?,
            (Reference::FrozenThere(Some(model)), Some(remote)) => {
                mix(model, policy, alpha)?;
                remote.put_reference(model, policy)?;
            }
            _ => return Ok(()),
        }
        (self.anchored, self.moved) = (true, true);
        Ok(())
    }

    /// The reference that a cold start or steps have moved, for a checkpoint.
    pub fn anchor_to_keep(&self) -> Option<&Model> {
        match &self.reference {
            Reference::Frozen(model) | Reference::FrozenThere(Some(model)) => {
                self.anchored.then_some(model)
            }
            _ => None,
        }
    }

    /// Brings back what [`Models::anchor_to_keep`] gave, by `read`, which fills a model.
    ///
    /// # Errors
    /// Those of `read`; ranks that are gone.
    pub fn restore_anchor<E: From<candle_core::Error>>(
        &mut self,
        read: impl FnOnce(&mut Model) -> Result<(), E>,
    ) -> Result<(), E> {
        match (&mut self.reference, &mut self.remote) {
            (Reference::Frozen(model), _) => read(model)?,
            (Reference::FrozenThere(kept), Some(remote)) => {
                // As in `anchor`.
                *kept = None;
                let mut model = self.policy.frozen_copy()?;
                read(&mut model)?;
                remote.put_reference(&model, &self.policy)?;
                *kept = Some(Box::new(model));
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes the reference's log-probability of each token beside the batch, where the method needs it.
    ///
    /// # Errors
    /// A reference that was precomputed: it has never seen new answers.
    pub fn add_token_reference(&mut self, batch: &mut Batch) -> Result<(), EngineError> {
        let out = match &mut self.reference {
            Reference::None => return Ok(()),
            Reference::AdapterOff => self.score_by(batch, ScoringWeights::AdapterOff)?,
            Reference::FrozenThere(_) => self.score_by(batch, ScoringWeights::Reference)?,
            Reference::Frozen(model) => model.score(&tokens(batch))?,
            Reference::Precomputed(_) => {
                let what =
                    "new completions have no precomputed reference; use frozen or adapter_off";
                return Err(EngineError::Setup(what.into()));
            }
        };
        let values = out.logp.flatten_all()?.to_vec1()?;
        batch.columns.push(Column {
            name: TOKEN_REFERENCE,
            values,
        });
        Ok(())
    }

    /// Writes what the policy says of each token beside answers: log-probabilities where they are wanted, values where it has a
    /// value head.
    ///
    /// # Errors
    /// A batch that the model refuses; ranks that are gone.
    pub fn add_old_policy(&mut self, batch: &mut Batch, logps: bool) -> Result<(), EngineError> {
        if !logps && !self.policy.config().value_head {
            return Ok(());
        }
        let out = self.score(batch)?;
        if logps {
            set(batch, OLD_LOGP, out.logp.flatten_all()?.to_vec1()?);
        }
        if let Some(value) = out.value {
            set(batch, OLD_VALUES, value.flatten_all()?.to_vec1()?);
        }
        Ok(())
    }

    /// Before generation: the ranks get the weights. Returns how many completions can run at once, of `wanted`.
    ///
    /// # Errors
    /// The ranks are gone.
    pub fn begin_writing(&mut self, wanted: usize) -> candle_core::Result<usize> {
        match &mut self.remote {
            Some(remote) => {
                remote.push(&self.policy)?;
                Ok(remote.most_texts(&self.policy, wanted))
            }
            None => Ok(wanted),
        }
    }
}

/// The column for a method whose reference is the given model as it now is.
///
/// # Errors
/// A batch that the model refuses.
pub fn add_own_reference(
    method: &dyn Method,
    model: &mut Model,
    batch: &mut Batch,
) -> Result<(), EngineError> {
    if method.needs().reference.is_some() {
        let values = scored(model, batch)?;
        set(batch, REFERENCE_LOGP, values);
    }
    Ok(())
}

/// Moves the weights of `model` towards the base of the policy.
fn mix(model: &mut Model, policy: &Model, alpha: f64) -> candle_core::Result<()> {
    let alpha = alpha as f32;
    policy.params().read_weights(|theirs| {
        model.params_mut().write_weights(|own| {
            for (own, theirs) in own.iter_mut().zip(theirs) {
                // With α = 1 the sum may miss theirs by its rounding.
                *own = match alpha == 1.0 {
                    true => *theirs,
                    false => *own + alpha * (theirs - *own),
                };
            }
        })
    })?
}

pub(super) fn set(batch: &mut Batch, name: &'static str, values: Vec<f32>) {
    batch.columns.retain(|column| column.name != name);
    batch.columns.push(Column { name, values });
}

fn scored(model: &mut Model, batch: &Batch) -> candle_core::Result<Vec<f32>> {
    let out = model.score(&tokens(batch))?;
    sequence_logps(batch, &out)
}
