//! Gradients in double precision through candle's autograd: the reference for the fused kernels.

use super::composite::{Decoder, Leaves};
use super::tape::Track;
use super::{Model, TokenBatch};
use candle_core::{DType, Device, Result, Tensor};

/// Results of an exact forward and backward; flat, row-major.
#[derive(Debug, Clone)]
pub struct Exact {
    /// Log-probability of each target, B · T.
    pub logp: Vec<f64>,
    /// Entropy of each distribution, B · T.
    pub entropy: Vec<f64>,
    /// The value of each token, B · T; empty without a value head.
    pub value: Vec<f64>,
    /// The experts' balancing losses; 0 without.
    pub balance: f64,
    /// Gradient of Σ dlogp · logp + Σ dentropy · entropy + balance, flat like those of the model.
    pub grads: Vec<f64>,
}

/// Computes in f64 from the model's weights, which stay as they are; `dlogp` and `dentropy` have B · T elements.
///
/// # Errors
/// A batch that does not fit the model.
pub fn exact(model: &Model, batch: &TokenBatch, dlogp: &[f64], dentropy: &[f64]) -> Result<Exact> {
    exact_with_values(model, batch, (dlogp, dentropy), None)
}

/// The same with Σ dvalue · value, of a model with a value head.
///
/// # Errors
/// Gradients of another shape than the batch.
pub fn exact_with_values(
    model: &Model,
    batch: &TokenBatch,
    (dlogp, dentropy): (&[f64], &[f64]),
    dvalue: Option<&[f64]>,
) -> Result<Exact> {
    let shape = (batch.batch_size, batch.seq_len);
    model.params().require_present()?;
    let weights = model.params().weights().to_device(&Device::Cpu)?;
    let decoder = Decoder {
        config: model.config(),
        shape: model.shape(),
        layout: model.layout(),
        leaves: Leaves::new(model.layout(), &weights, DType::F64, Track::Gradients)?,
        track: Track::Gradients,
        step_position: model.step_position(),
        adapters: model.adapters_on(),
    };
    let outputs = decoder.outputs(batch)?;
    let upstream = |values: &[f64]| Tensor::from_slice(values, shape, &Device::Cpu);
    let (dlogp, dentropy) = (upstream(dlogp)?, upstream(dentropy)?);
    let dvalue = dvalue.map(upstream).transpose()?;
    let mut grads = vec![0.0; model.params().n_trainable()];
    for (span, grad) in decoder.gradients(&outputs, &dlogp, Some(&dentropy), dvalue.as_ref())? {
        if let Some(range) = span.grads() {
            grads[range].copy_from_slice(&grad.to_vec1::<f64>()?);
        }
    }
    let balance = outputs.balance.as_ref();
    let balance = balance.map(|b| b.to_scalar::<f64>()).transpose()?;
    Ok(Exact {
        balance: balance.unwrap_or(0.0),
        logp: outputs.logp.flatten_all()?.to_vec1()?,
        entropy: outputs.entropy.flatten_all()?.to_vec1()?,
        value: match &outputs.value {
            Some(value) => value.flatten_all()?.to_vec1()?,
            None => Vec::new(),
        },
        grads,
    })
}
