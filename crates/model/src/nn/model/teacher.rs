//! A teacher beside a model: a frozen model of the same tokens, whose whole distributions the model learns (knowledge distillation).
//! What is compared and how is `kernels/logprob/divergence`; which share it has in a loss is the method's.

use super::{Backend, Model, TokenBatch};
use crate::kernels::errors::error_text;
use crate::kernels::logprob;
pub use crate::kernels::logprob::Divergence;
use candle_core::{Result, bail};
use std::sync::{Arc, Mutex, PoisonError};

/// A frozen model and the divergence from it. Clones share the model: it is in memory once.
#[derive(Clone)]
pub struct Teacher {
    model: Arc<Mutex<Model>>,
    divergence: Divergence,
}

/// What a head gives beside a teacher's, (batch_size, seq_len) each, row-major.
#[derive(Debug, Clone, Copy)]
pub struct TeacherValues<'a> {
    /// Divergence between the distributions of student and teacher, nats.
    pub divergence: &'a [f32],
    /// Entropy of the teacher's distribution at the divergence's temperature, nats.
    pub entropy: &'a [f32],
    /// 1 where both have the same top-1 token, else 0.
    pub agrees: &'a [f32],
}

/// [`TeacherValues`] of an evaluation, which outlast the pass.
#[derive(Debug, Clone)]
pub struct TeacherScores {
    pub divergence: Vec<f32>,
    pub entropy: Vec<f32>,
    pub agrees: Vec<f32>,
}

impl TeacherScores {
    pub fn view(&self) -> TeacherValues<'_> {
        TeacherValues {
            divergence: &self.divergence,
            entropy: &self.entropy,
            agrees: &self.agrees,
        }
    }
}

/// The values of a pass; `None` where it had no teacher beside it.
pub(super) fn values(outputs: &logprob::Outputs) -> Option<TeacherValues<'_>> {
    let logprob::TeacherOutputs {
        divergence,
        entropy,
        agrees,
        ..
    } = &outputs.teacher;
    (!divergence.is_empty()).then_some(TeacherValues {
        divergence,
        entropy,
        agrees,
    })
}

/// The same, kept.
pub(super) fn scores(outputs: &logprob::Outputs) -> Option<TeacherScores> {
    values(outputs).map(|values| TeacherScores {
        divergence: values.divergence.to_vec(),
        entropy: values.entropy.to_vec(),
        agrees: values.agrees.to_vec(),
    })
}

impl Teacher {
    /// A model that is only read from now on.
    pub fn new(model: Model, divergence: Divergence) -> Teacher {
        Teacher {
            model: Arc::new(Mutex::new(model)),
            divergence,
        }
    }

    pub fn divergence(&self) -> Divergence {
        self.divergence
    }

    /// Number of its parameters.
    pub fn n_params(&self) -> usize {
        self.locked().n_params()
    }

    /// Rows of its head: tokens of which it has probabilities.
    pub fn vocab_size(&self) -> usize {
        self.locked().shape().vocab_size
    }

    /// Calls `read` with the model.
    pub fn read<R>(&self, read: impl FnOnce(&Model) -> R) -> R {
        read(&self.locked())
    }

    // A pass that panicked has left nothing that the next one reads.
    fn locked(&self) -> std::sync::MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with its head over its hidden states of a batch.
    ///
    /// # Errors
    /// A batch that it cannot read.
    pub(super) fn beside<R>(
        &self,
        batch: &TokenBatch,
        work: impl FnOnce(logprob::Teacher) -> R,
    ) -> Result<R> {
        let mut model = self.locked();
        if model.backend == Backend::Composite {
            bail!("teacher: it needs the fused CPU kernels")
        }
        if let Err(error) = model.check_batch(batch) {
            bail!("teacher: {}", error_text(error))
        }
        model.tables.extend_to(batch.seq_len);
        let divergence = self.divergence;
        model.with_plan(|plan, _, pass| pass.teach(plan, batch, divergence, work))
    }
}

impl Model {
    /// Sets the teacher of the next evaluations and of [`Model::accumulate_distilled`]; returns the previous one.
    pub fn set_teacher(&mut self, teacher: Option<Teacher>) -> Option<Teacher> {
        std::mem::replace(&mut self.teacher, teacher)
    }

    pub fn teacher(&self) -> Option<&Teacher> {
        self.teacher.as_ref()
    }
}
