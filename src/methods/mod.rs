//! Training methods: what a loss is. Each is a function of per-token log-probabilities and entropies, written in plain
//! candle on small (B, T) tensors; the tape carries its gradient through the model.

mod pretrain;
mod sft;
#[cfg(test)]
mod tests;

use crate::nn::{Model, TokenBatch, TokenOutputs, TokenValues, Upstream};
use candle_core::{Device, Result, Tensor, Var};

/// What a method may know of the optimizer step that its micro-step belongs to.
#[derive(Debug, Clone, Copy)]
pub struct StepContext {
    /// Supervised tokens of the whole optimizer step, all micro-steps together; padding and prompts are none. Dividing by it
    /// (and not by the tokens of the micro-step) makes gradient accumulation equal to one large batch.
    pub step_tokens: usize,
}

/// Which tokens of its data a method learns by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossMask {
    /// Every token.
    AllTokens,
    /// What the model is to say; prompts are read and not supervised.
    CompletionOnly,
}

/// A training method.
pub trait Method: Send + Sync {
    /// This micro-step's share of the loss, a scalar; the shares of an optimizer step add up to its loss.
    fn loss(&self, out: &TokenOutputs, context: &StepContext) -> Result<Tensor>;

    /// Which tokens of a conversation it learns where the spec does not say.
    fn learns(&self) -> LossMask {
        LossMask::AllTokens
    }

    /// Metrics of this method besides those that every method has.
    fn metrics(&self) -> &'static [&'static str] {
        &[]
    }

    /// Writes the gradient of the loss where it is known before the model's values are, and says so: the head then goes
    /// forward and backward at once and never holds all logits. `weights` are those of the targets. What is written is what
    /// [`Method::closed_form`] writes; `gradient` comes filled with zeros and stays so with a no.
    fn known_gradient(
        &self,
        _weights: Option<&[f32]>,
        _context: &StepContext,
        _gradient: &mut Upstream,
    ) -> bool {
        false
    }

    /// The same loss and its gradient written by hand, for methods in which it is a line: no graph, nothing allocated.
    /// `None` leaves it to candle's autograd over [`Method::loss`]. The two must agree; tests compare them.
    fn closed_form(
        &self,
        _values: TokenValues,
        _context: &StepContext,
        _gradient: &mut Upstream,
    ) -> Option<f64> {
        None
    }
}

/// What a micro-step measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MicroStep {
    /// This micro-step's share of the loss, in nats.
    pub loss: f64,
    /// Σ of the entropies of its supervised predictions, in nats.
    pub entropy: f64,
    /// Supervised tokens that were the likeliest ones, each by its weight.
    pub correct: f64,
}

/// Forward, the method's loss, backward: adds one micro-step's gradient to the model's.
pub fn micro_step(
    method: &dyn Method,
    model: &mut Model,
    batch: &TokenBatch,
    context: &StepContext,
) -> Result<MicroStep> {
    let known = |gradient: &mut Upstream| method.known_gradient(batch.weights, context, gradient);
    model.accumulate_known(batch, known, |values, gradient| {
        let entropy = weighted_sum(values.entropy, values.weights);
        let correct = weighted_sum(values.likeliest, values.weights);
        let loss = match method.closed_form(values, context, gradient) {
            Some(loss) => loss,
            None => by_autograd(method, values, context, gradient)?,
        };
        Ok(MicroStep {
            loss,
            entropy,
            correct,
        })
    })
}

/// Σ w · x in a fixed order; without weights Σ x.
pub fn weighted_sum(values: &[f32], weights: Option<&[f32]>) -> f64 {
    match weights {
        None => values.iter().map(|&x| f64::from(x)).sum(),
        Some(weights) => {
            let pairs = values.iter().zip(weights);
            pairs.map(|(&x, &w)| f64::from(x) * f64::from(w)).sum()
        }
    }
}

/// −Σ w · logp / N, N the supervised tokens of the optimizer step: what pretraining and SFT have in common.
fn mean_likelihood(out: &TokenOutputs, context: &StepContext) -> Result<Tensor> {
    let supervised = match &out.weights {
        None => out.logp.sum_all()?,
        Some(weights) => (&out.logp * weights)?.sum_all()?,
    };
    supervised * share(context)
}

/// [`mean_likelihood`] and its gradient by hand.
fn mean_likelihood_by_hand(
    values: TokenValues,
    context: &StepContext,
    gradient: &mut Upstream,
) -> f64 {
    pull_alike(values.weights, context, gradient);
    weighted_sum(values.logp, values.weights) * share(context)
}

/// The gradient of [`mean_likelihood`], known beforehand: every supervised token pulls alike.
fn pull_alike(weights: Option<&[f32]>, context: &StepContext, gradient: &mut Upstream) {
    gradient.dlogp.fill(share(context) as f32);
    if let Some(weights) = weights {
        for (gradient, weight) in gradient.dlogp.iter_mut().zip(weights) {
            *gradient *= weight;
        }
    }
}

/// A supervised token's share in [`mean_likelihood`].
fn share(context: &StepContext) -> f64 {
    -1.0 / context.step_tokens as f64
}

fn by_autograd(
    method: &dyn Method,
    values: TokenValues,
    context: &StepContext,
    gradient: &mut Upstream,
) -> Result<f64> {
    let shape = (values.batch_size, values.seq_len);
    let tensor = |values: &[f32]| Tensor::from_slice(values, shape, &Device::Cpu);
    let out = TokenOutputs {
        logp: tensor(values.logp)?,
        entropy: tensor(values.entropy)?,
        likeliest: tensor(values.likeliest)?,
        weights: values.weights.map(tensor).transpose()?,
    };
    let found = differentiate(method, &out, context)?;
    gradient.dlogp = found.dlogp.flatten_all()?.to_vec1()?;
    if let Some(dentropy) = found.dentropy {
        gradient.dentropy = dentropy.flatten_all()?.to_vec1()?;
        gradient.uses_entropy = true;
    }
    Ok(found.loss)
}

/// A loss and its gradient with respect to what the model gave.
#[derive(Debug)]
pub struct LossGradient {
    /// This micro-step's share, in nats.
    pub loss: f64,
    /// dL/dlogp, (B, T).
    pub dlogp: Tensor,
    /// dL/dentropy, (B, T), when the method uses entropies.
    pub dentropy: Option<Tensor>,
}

/// Runs candle's autograd over the method's own few operations.
pub fn differentiate(
    method: &dyn Method,
    out: &TokenOutputs,
    context: &StepContext,
) -> Result<LossGradient> {
    let logp = Var::from_tensor(&out.logp)?;
    let entropy = Var::from_tensor(&out.entropy)?;
    let leaves = TokenOutputs {
        logp: logp.as_tensor().clone(),
        entropy: entropy.as_tensor().clone(),
        ..out.clone()
    };
    let loss = method.loss(&leaves, context)?;
    let gradients = loss.backward()?;
    let dlogp = match gradients.get(&logp) {
        Some(gradient) => gradient.clone(),
        None => logp.zeros_like()?,
    };
    Ok(LossGradient {
        loss: f64::from(loss.to_scalar::<f32>()?),
        dlogp,
        dentropy: gradients.get(&entropy).cloned(),
    })
}

crate::registry! {
    /// What the model learns from.
    pub enum MethodConfig: dyn Method { pretrain: Pretrain, sft: Sft }
}
