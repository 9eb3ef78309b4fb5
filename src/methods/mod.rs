//! Training methods: what a loss is. Each is a function of per-token log-probabilities and entropies, written in plain
//! candle on small (B, T) tensors; the tape carries its gradient through the model.

mod pretrain;
mod sft;

use crate::nn::{Model, TokenBatch, TokenOutputs, TokenValues, Upstream};
use candle_core::{Device, Result, Tensor, Var};

/// What a method may know of the optimizer step that its micro-step belongs to.
#[derive(Debug, Clone, Copy)]
pub struct StepContext {
    /// Learnt tokens of the whole optimizer step, all micro-steps together; padding and prompts are none. Dividing by it
    /// (and not by the tokens of the micro-step) makes gradient accumulation equal to one large batch.
    pub step_tokens: usize,
}

/// Which tokens of its data a method learns by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learns {
    /// Every token.
    Everything,
    /// What the model is to say; prompts are read and not learnt.
    Answers,
}

/// A training method.
pub trait Method: Send + Sync {
    /// This micro-step's share of the loss, a scalar; the shares of an optimizer step add up to its loss.
    fn loss(&self, out: &TokenOutputs, context: &StepContext) -> Result<Tensor>;

    /// Which tokens of a conversation it learns where the spec does not say.
    fn learns(&self) -> Learns {
        Learns::Everything
    }

    /// Metrics of this method besides those that every method has.
    fn metrics(&self) -> &'static [&'static str] {
        &[]
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
    /// Σ of the entropies of its learnt predictions, in nats.
    pub entropy: f64,
    /// Learnt tokens that were the likeliest ones, each by its weight.
    pub correct: f64,
}

/// Forward, the method's loss, backward: adds one micro-step's gradient to the model's.
pub fn micro_step(
    method: &dyn Method,
    model: &mut Model,
    batch: &TokenBatch,
    context: &StepContext,
) -> Result<MicroStep> {
    model.accumulate(batch, |values, gradient| {
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

/// −Σ w · logp / N, N the learnt tokens of the optimizer step: what pretraining and SFT have in common.
fn mean_likelihood(out: &TokenOutputs, context: &StepContext) -> Result<Tensor> {
    let learnt = match &out.weights {
        None => out.logp.sum_all()?,
        Some(weights) => (&out.logp * weights)?.sum_all()?,
    };
    learnt * (-1.0 / context.step_tokens as f64)
}

/// [`mean_likelihood`] and its gradient by hand: every learnt token pulls alike.
fn mean_likelihood_by_hand(
    values: TokenValues,
    context: &StepContext,
    gradient: &mut Upstream,
) -> f64 {
    let share = -1.0 / context.step_tokens as f64;
    gradient.dlogp.fill(share as f32);
    if let Some(weights) = values.weights {
        for (gradient, weight) in gradient.dlogp.iter_mut().zip(weights) {
            *gradient *= weight;
        }
    }
    weighted_sum(values.logp, values.weights) * share
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

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn outputs(logp: &[f32]) -> TokenOutputs {
        let logp = Tensor::from_slice(logp, (1, logp.len()), &Device::Cpu).unwrap();
        TokenOutputs {
            entropy: logp.zeros_like().unwrap(),
            likeliest: logp.zeros_like().unwrap(),
            weights: None,
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

    /// Hides what a method wrote by hand.
    struct Autograd<'a>(&'a dyn Method);
    impl Method for Autograd<'_> {
        fn loss(&self, out: &TokenOutputs, context: &StepContext) -> Result<Tensor> {
            self.0.loss(out, context)
        }
    }

    fn tiny_model() -> Model {
        let config = crate::nn::ModelConfig {
            n_layer: 2,
            n_head: 2,
            d_model: 8,
            seq_len: 6,
            ..Default::default()
        };
        let mut model = Model::new(&config, 11, &Device::Cpu).unwrap();
        model.init(3).unwrap();
        model
    }

    const BATCH: TokenBatch = TokenBatch {
        inputs: &[1, 2, 3, 4, 5, 6],
        targets: &[2, 3, 4, 5, 6, 7],
        batch_size: 2,
        seq_len: 3,
        weights: None,
        first: None,
    };

    /// Micro-step and flat gradients.
    fn measured(method: &dyn Method, batch: &TokenBatch) -> (MicroStep, Vec<f32>) {
        let mut model = tiny_model();
        let context = StepContext { step_tokens: 12 };
        let step = micro_step(method, &mut model, batch, &context).unwrap();
        let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
        (step, grads)
    }

    #[test]
    fn every_closed_form_agrees_with_autograd() {
        let masked = TokenBatch {
            weights: Some(&[0.0, 1.0, 1.0, 0.0, 0.0, 1.0]),
            ..BATCH
        };
        for (entry, batch) in MethodConfig::ENTRIES
            .iter()
            .flat_map(|e| [(e, BATCH), (e, masked)])
        {
            let method: MethodConfig =
                serde_json::from_value(serde_json::json!({ entry.id: {} })).unwrap();
            let (by_hand, hand_grads) = measured(&*method, &batch);
            let (exact, grads) = measured(&Autograd(&*method), &batch);
            assert!((by_hand.loss - exact.loss).abs() < 1e-6, "{}", entry.id);
            assert_eq!(by_hand.entropy, exact.entropy);
            assert!(hand_grads == grads, "{}: gradients differ", entry.id);
        }
    }

    #[test]
    fn a_micro_step_is_forward_differentiate_backward() {
        let (step, grads) = measured(&EntropyBonus, &BATCH);
        let mut model = tiny_model();
        let out = model.forward(&BATCH).unwrap();
        let context = StepContext { step_tokens: 12 };
        let gradient = differentiate(&EntropyBonus, &out, &context).unwrap();
        model
            .backward(&gradient.dlogp, gradient.dentropy.as_ref())
            .unwrap();
        assert_eq!(step.loss, gradient.loss);
        assert!(model.params().read_grads(|g| g == grads).unwrap());
    }

    /// What is not learnt has no say: other targets there change neither loss nor gradient nor readings.
    #[test]
    fn targets_that_are_not_learnt_have_no_influence() {
        let weights = [0.0, 1.0, 1.0, 0.0, 0.0, 1.0];
        for entry in MethodConfig::ENTRIES {
            let method: MethodConfig =
                serde_json::from_value(serde_json::json!({ entry.id: {} })).unwrap();
            let read = |targets| {
                let batch = TokenBatch {
                    targets,
                    weights: Some(&weights),
                    ..BATCH
                };
                measured(&*method, &batch)
            };
            assert!(
                read(&[2, 3, 4, 5, 6, 7]) == read(&[9, 3, 4, 1, 0, 7]),
                "{}",
                entry.id
            );
            assert!(
                read(&[2, 3, 4, 5, 6, 7]) != read(&[2, 1, 4, 5, 6, 7]),
                "{}",
                entry.id
            );
        }
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
