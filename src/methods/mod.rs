//! Training methods: what a loss is. Each is a function of per-token log-probabilities and entropies, written in plain
//! candle on small (B, T) tensors; the tape carries its gradient through the model.

mod pretrain;

use crate::nn::TokenOutputs;
use candle_core::{Result, Tensor, Var};

/// What a method may know of the optimizer step that its micro-step belongs to.
#[derive(Debug, Clone, Copy)]
pub struct StepContext {
    /// Target tokens of the whole optimizer step, all micro-steps together. Dividing by it (and not by the tokens of the
    /// micro-step) makes gradient accumulation equal to one large batch.
    pub step_tokens: usize,
}

/// A training method.
pub trait Method: Send + Sync {
    /// This micro-step's share of the loss, a scalar; the shares of an optimizer step add up to its loss.
    fn loss(&self, out: &TokenOutputs, context: &StepContext) -> Result<Tensor>;
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
    pub enum MethodConfig: dyn Method { pretrain: Pretrain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn outputs(logp: &[f32]) -> TokenOutputs {
        let logp = Tensor::from_slice(logp, (1, logp.len()), &Device::Cpu).unwrap();
        TokenOutputs {
            entropy: logp.zeros_like().unwrap(),
            logp,
        }
    }

    #[test]
    fn pretraining_is_the_mean_over_the_whole_step_whatever_its_portions() {
        let method = MethodConfig::Pretrain(Default::default());
        let context = StepContext { step_tokens: 4 };
        let whole = differentiate(&*method, &outputs(&[-1.0, -2.0, -3.0, -6.0]), &context).unwrap();
        let parts: f64 = [[-1.0, -2.0], [-3.0, -6.0]]
            .iter()
            .map(|p| differentiate(&*method, &outputs(p), &context).unwrap().loss)
            .sum();
        assert!((whole.loss - 3.0).abs() < 1e-6 && (parts - 3.0).abs() < 1e-6);
        assert_eq!(whole.dlogp.to_vec2::<f32>().unwrap(), [[-0.25; 4]]);
        assert!(whole.dentropy.is_none());
    }

    struct EntropyBonus;
    impl Method for EntropyBonus {
        fn loss(&self, out: &TokenOutputs, context: &StepContext) -> Result<Tensor> {
            (out.entropy.sqr()? - &out.logp)?.sum_all()? / context.step_tokens as f64
        }
    }

    #[test]
    fn a_method_that_uses_entropies_gets_their_gradient() {
        let mut out = outputs(&[-1.0, -1.0]);
        out.entropy = Tensor::new(&[[3f32, 5.0]], &Device::Cpu).unwrap();
        let gradient = differentiate(&EntropyBonus, &out, &StepContext { step_tokens: 2 }).unwrap();
        let dentropy = gradient.dentropy.unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(dentropy, [[3.0, 5.0]]);
        assert_eq!(gradient.loss, 18.0);
    }
}
