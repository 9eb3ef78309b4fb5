//! A whole micro-step: forward, the gradient of the loss with respect to log-probabilities and entropies, backward.
//!
//! A loss is one of two kinds, and beside a teacher its divergence may be a term of the first. Linear in log-probabilities, L = Σ c · logp with c known before the forward pass: the head
//! runs forward and backward at once and never holds all logits. Any other: the head's values are returned to the method,
//! which returns the gradient with respect to them.

use super::{Backend, Model, TeacherValues, TokenBatch, teacher};
use crate::kernels::matmul::Accumulation;
use crate::kernels::{flat, logprob, threads};
use crate::nn::fused::{HeadGradient, Pass};
use candle_core::{Result, Tensor, bail};

/// The head's outputs for a batch: (batch_size, seq_len) each, row-major, in nats.
#[derive(Debug, Clone, Copy)]
pub struct TokenValues<'a> {
    /// Log-probability of each target; of a reward model the score at each token.
    pub logp: &'a [f32],
    /// Entropy of each predicted distribution.
    pub entropy: &'a [f32],
    /// 1 where the target had the highest probability, else 0.
    pub top1: &'a [f32],
    /// The value at each token, if the model has a value head.
    pub value: Option<&'a [f32]>,
    /// Beside a teacher.
    pub teacher: Option<TeacherValues<'a>>,
}

/// The gradient of a loss that is linear in log-probabilities and in divergences from a teacher, (batch_size · seq_len) each.
#[derive(Debug, Clone, Copy)]
pub struct DistilledGradient<'a> {
    pub dlogp: &'a [f32],
    pub ddivergence: &'a [f32],
}

/// Gradient of a loss with respect to [`TokenValues`], in reusable buffers, initially filled with zeros.
#[derive(Debug, Default, PartialEq)]
pub struct Upstream {
    /// dL/dlogp of each token.
    pub dlogp: Vec<f32>,
    /// dL/dentropy of each token.
    pub dentropy: Vec<f32>,
    /// Whether the loss depends on entropies at all; `dentropy` is read only then.
    pub uses_entropy: bool,
    /// dL/dvalue of each token.
    pub dvalue: Vec<f32>,
    /// Whether the loss depends on values at all; `dvalue` is read only then.
    pub uses_value: bool,
}

impl Upstream {
    fn begin(&mut self, tokens: usize) {
        for part in [&mut self.dlogp, &mut self.dentropy, &mut self.dvalue] {
            part.clear();
            part.resize(tokens, 0.0);
        }
        (self.uses_entropy, self.uses_value) = (false, false);
    }

    fn view(&self) -> HeadGradient<'_> {
        HeadGradient {
            tokens: logprob::Upstream {
                dlogp: &self.dlogp,
                dentropy: self.uses_entropy.then_some(&*self.dentropy),
                z_loss: 0.0,
            },
            values: self.uses_value.then_some(&*self.dvalue),
            teacher: None,
        }
    }
}

impl Model {
    /// Forward and backward of one micro-step: `loss` reads the head's outputs and writes its gradient with respect to them, which is added to
    /// the flat gradients. Once buffers have grown, nothing is allocated here. If `loss` fails, gradients and
    /// the load of experts are unchanged.
    ///
    /// # Errors
    /// Those of `loss`; a batch of another shape than it states, or with tokens outside the vocabulary.
    pub fn accumulate<R>(
        &mut self,
        batch: &TokenBatch,
        loss: impl FnOnce(TokenValues, &mut Upstream) -> Result<R>,
    ) -> Result<R> {
        let mut upstream = std::mem::take(&mut self.upstream);
        upstream.begin(batch.inputs.len());
        let result = match self.backend {
            Backend::Composite => self.accumulate_composite(batch, loss, &mut upstream),
            Backend::Fused => self.accumulate_fused(batch, loss, &mut upstream),
        };
        self.upstream = upstream;
        result
    }

    /// The same for L = Σ c · logp, `coefficients` (batch_size · seq_len) being c: one pass through the head, which never
    /// holds all logits. `read` gets the head's outputs.
    ///
    /// # Errors
    /// A number of coefficients other than that of tokens; a batch of another shape than it states.
    pub fn accumulate_linear<R>(
        &mut self,
        batch: &TokenBatch,
        coefficients: &[f32],
        read: impl FnOnce(TokenValues) -> R,
    ) -> Result<R> {
        if coefficients.len() != batch.inputs.len() {
            bail!(
                "coefficients: expected {}, got {}",
                batch.inputs.len(),
                coefficients.len()
            )
        }
        if self.backend == Backend::Composite {
            return self.accumulate(batch, |values, upstream| {
                upstream.dlogp.copy_from_slice(coefficients);
                Ok(read(values))
            });
        }
        self.accumulate_at_once(batch, coefficients, None, read)
    }

    /// The same for L = Σ c · logp + Σ d · divergence, d being known before the forward pass too; the teacher reads the batch first.
    ///
    /// # Errors
    /// No teacher; one that cannot read the batch; numbers of coefficients other than that of tokens.
    pub fn accumulate_distilled<R>(
        &mut self,
        batch: &TokenBatch,
        of: DistilledGradient,
        read: impl FnOnce(TokenValues) -> R,
    ) -> Result<R> {
        let n = batch.inputs.len();
        if of.dlogp.len() != n || of.ddivergence.len() != n {
            let (a, b) = (of.dlogp.len(), of.ddivergence.len());
            bail!("coefficients: expected {n}, got {a} and {b}")
        }
        let Some(teacher) = self.teacher.clone() else {
            bail!("distillation: this model has no teacher")
        };
        if self.backend == Backend::Composite {
            bail!("teacher: a student needs the fused CPU kernels")
        }
        teacher.beside(batch, |head| {
            self.accumulate_at_once(batch, of.dlogp, Some((head, of.ddivergence)), read)
        })?
    }

    fn accumulate_at_once<R>(
        &mut self,
        batch: &TokenBatch,
        dlogp: &[f32],
        teacher: Option<(logprob::Teacher, &[f32])>,
        read: impl FnOnce(TokenValues) -> R,
    ) -> Result<R> {
        self.begin_accumulating(batch)?;
        let upstream = HeadGradient {
            tokens: logprob::Upstream {
                dlogp,
                dentropy: None,
                z_loss: self.regularizers.z_loss as f32,
            },
            values: None,
            teacher,
        };
        let (grads, into) = self.params.open_grads();
        let result = self.with_plan(|plan, pass, _| {
            flat::write(&grads, |grads| {
                threads::enter(|| {
                    let head = (&mut *grads, into);
                    pass.forward_at_once(plan, batch, upstream, head);
                    pass.backward(plan, upstream, (grads, into));
                });
                read(values(pass))
            })
        })?;
        self.loads.add(self.training.experts.tallies());
        result
    }

    fn begin_accumulating(&mut self, batch: &TokenBatch) -> Result<()> {
        self.recorded = None;
        self.check_training(batch)?;
        self.tables.extend_to(batch.seq_len);
        Ok(())
    }

    fn accumulate_fused<R>(
        &mut self,
        batch: &TokenBatch,
        loss: impl FnOnce(TokenValues, &mut Upstream) -> Result<R>,
        upstream: &mut Upstream,
    ) -> Result<R> {
        self.begin_accumulating(batch)?;
        let (grads, into) = self.params.open_grads();
        let result = self.with_plan(|plan, pass, _| {
            flat::write(&grads, |grads| {
                threads::enter(|| pass.forward(plan, batch));
                let result = loss(values(pass), upstream)?;
                threads::enter(|| pass.backward(plan, upstream.view(), (grads, into)));
                Ok(result)
            })?
        })?;
        if result.is_ok() {
            self.loads.add(self.training.experts.tallies());
        } else if into == Accumulation::Overwrite {
            // Nothing was written: the gradients still count as zeros.
            self.params.zero_grads()?;
        }
        result
    }

    fn accumulate_composite<R>(
        &mut self,
        batch: &TokenBatch,
        loss: impl FnOnce(TokenValues, &mut Upstream) -> Result<R>,
        upstream: &mut Upstream,
    ) -> Result<R> {
        let outputs = self.forward(batch)?;
        let host = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
        let (logp, entropy) = (host(&outputs.logp)?, host(&outputs.entropy)?);
        let top1 = host(&outputs.top1)?;
        let value = outputs.value.as_ref().map(host).transpose()?;
        let values = TokenValues {
            logp: &logp,
            entropy: &entropy,
            top1: &top1,
            value: value.as_deref(),
            teacher: None,
        };
        let result = loss(values, upstream)?;
        let shape = (batch.batch_size, batch.seq_len);
        let tensor = |values: &[f32]| Tensor::from_slice(values, shape, self.params.device());
        let dlogp = tensor(&upstream.dlogp)?;
        let dentropy = match upstream.uses_entropy {
            true => Some(tensor(&upstream.dentropy)?),
            false => None,
        };
        let dvalue = match upstream.uses_value {
            true => Some(tensor(&upstream.dvalue)?),
            false => None,
        };
        self.backward_all(&dlogp, dentropy.as_ref(), dvalue.as_ref())?;
        Ok(result)
    }
}

/// The outputs of the fused heads.
fn values(pass: &Pass) -> TokenValues<'_> {
    TokenValues {
        logp: &pass.outputs.logp,
        entropy: &pass.outputs.entropy,
        top1: &pass.outputs.top1,
        value: (!pass.values.is_empty()).then_some(&*pass.values),
        teacher: teacher::values(&pass.outputs),
    }
}
