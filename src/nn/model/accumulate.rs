//! A micro-step in one go: forward, the loss and its gradient, backward.

use super::{Backend, Model, TokenBatch};
use crate::kernels::matmul::Accumulation;
use crate::kernels::{flat, logprob, threads};
use candle_core::{Result, Tensor};

/// What the head gave for a batch: (batch_size, seq_len) each, row-major, in nats.
#[derive(Debug, Clone, Copy)]
pub struct TokenValues<'a> {
    /// Log-probability of each target.
    pub logp: &'a [f32],
    /// Entropy of each predicted distribution.
    pub entropy: &'a [f32],
    /// 1 where the target was the likeliest token, else 0.
    pub likeliest: &'a [f32],
    /// How much each target counts; none: all alike.
    pub weights: Option<&'a [f32]>,
    pub batch_size: usize,
    pub seq_len: usize,
}

/// Gradient of a loss by [`TokenValues`], in buffers that are used again. Both come filled with zeros.
#[derive(Debug, Default, PartialEq)]
pub struct Upstream {
    /// dL/dlogp of each token.
    pub dlogp: Vec<f32>,
    /// dL/dentropy of each token.
    pub dentropy: Vec<f32>,
    /// Whether the loss knows entropies at all; `dentropy` is read only then.
    pub uses_entropy: bool,
}

impl Upstream {
    fn begin(&mut self, tokens: usize) {
        for part in [&mut self.dlogp, &mut self.dentropy] {
            part.clear();
            part.resize(tokens, 0.0);
        }
        self.uses_entropy = false;
    }

    fn view(&self) -> logprob::Upstream<'_> {
        logprob::Upstream {
            dlogp: &self.dlogp,
            dentropy: self.uses_entropy.then_some(&*self.dentropy),
        }
    }
}

impl Model {
    /// Forward and backward of one micro-step in one go: `loss` reads what the head gave and writes its gradient, which is
    /// added to the flat gradients. Once buffers have grown, nothing is allocated here.
    pub fn accumulate<R>(
        &mut self,
        batch: &TokenBatch,
        loss: impl FnOnce(TokenValues, &mut Upstream) -> Result<R>,
    ) -> Result<R> {
        self.accumulate_known(batch, |_| false, loss)
    }

    /// The same for a loss whose gradient may be known beforehand: `known` writes it and says yes, or writes nothing and says
    /// no. With a yes the head goes forward and backward at once and never holds all logits, and what `loss` writes must be
    /// the same again. If `loss` refuses then, the gradients of earlier micro-steps are gone too: all are zeros.
    pub fn accumulate_known<R>(
        &mut self,
        batch: &TokenBatch,
        known: impl FnOnce(&mut Upstream) -> bool,
        loss: impl FnOnce(TokenValues, &mut Upstream) -> Result<R>,
    ) -> Result<R> {
        let mut upstream = std::mem::take(&mut self.upstream);
        upstream.begin(batch.inputs.len());
        let result = match self.backend {
            Backend::Composite => self.accumulate_composite(batch, loss, &mut upstream),
            Backend::Fused => self.accumulate_fused(batch, known, loss, &mut upstream),
        };
        self.upstream = upstream;
        result
    }

    fn accumulate_fused<R>(
        &mut self,
        batch: &TokenBatch,
        known: impl FnOnce(&mut Upstream) -> bool,
        loss: impl FnOnce(TokenValues, &mut Upstream) -> Result<R>,
        upstream: &mut Upstream,
    ) -> Result<R> {
        self.recorded = None;
        self.check_training(batch)?;
        self.tables.extend_to(batch.seq_len);
        let known = known(upstream);
        let (grads, into) = self.params.open_grads();
        let result = self.with_plan(|plan, pass, _| {
            flat::write(&grads, |grads| {
                threads::enter(|| match known {
                    true => {
                        let grads = (&mut *grads, into);
                        pass.forward_at_once(plan, batch, upstream.view(), grads);
                    }
                    false => pass.forward(plan, batch),
                });
                let result = loss(values(&pass.outputs, batch), upstream)?;
                threads::enter(|| pass.backward(plan, upstream.view(), (grads, into)));
                Ok(result)
            })?
        })?;
        self.loads.add(self.training.experts.tallies());
        if result.is_err() && (known || into == Accumulation::Overwrite) {
            // Nothing was written: the gradients go on standing for zeros. Or the head's part was: zeros are a state that
            // can be told, half a gradient is none.
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
        let likeliest = host(&outputs.likeliest)?;
        let values = TokenValues {
            logp: &logp,
            entropy: &entropy,
            likeliest: &likeliest,
            weights: batch.weights,
            batch_size: batch.batch_size,
            seq_len: batch.seq_len,
        };
        let result = loss(values, upstream)?;
        let shape = (batch.batch_size, batch.seq_len);
        let tensor = |values: &[f32]| Tensor::from_slice(values, shape, self.params.device());
        let dlogp = tensor(&upstream.dlogp)?;
        let dentropy = match upstream.uses_entropy {
            true => Some(tensor(&upstream.dentropy)?),
            false => None,
        };
        self.backward(&dlogp, dentropy.as_ref())?;
        Ok(result)
    }
}

/// What the fused head gave for `batch`.
fn values<'a>(outputs: &'a logprob::Outputs, batch: &TokenBatch<'a>) -> TokenValues<'a> {
    TokenValues {
        logp: &outputs.logp,
        entropy: &outputs.entropy,
        likeliest: &outputs.likeliest,
        weights: batch.weights,
        batch_size: batch.batch_size,
        seq_len: batch.seq_len,
    }
}
