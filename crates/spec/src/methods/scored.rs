//! The inputs of a method's loss: the model's values for a batch as small candle tensors.

use crate::data::{Batch, Unit};
use crate::metrics::Readings;
use candle_core::{Device, Result, Tensor, bail};

/// A batch with what the model gave for it.
#[derive(Debug, Clone)]
pub struct ScoredBatch<'a> {
    pub batch: &'a Batch,
    /// Log-probability of each target, (B, T), in nats.
    pub logp: Tensor,
    /// Entropy of each predicted distribution, (B, T), in nats.
    pub entropy: Tensor,
    /// What a value head says at each token, (B, T), where the model has one.
    pub value: Option<Tensor>,
    /// What the loss is divided by, over all micro-batches of the optimizer step: gradient accumulation then equals one
    /// large batch.
    pub normalizer: f64,
}

impl ScoredBatch<'_> {
    /// 1 where the target counts in the loss, else 0: (B, T).
    ///
    /// # Errors
    /// A mask of another shape than the batch.
    pub fn mask(&self) -> Result<Tensor> {
        let mask = super::mask(self.batch);
        Tensor::from_vec(mask, self.logp.shape(), &Device::Cpu)
    }

    /// Log-probability of each sequence, the sum over its supervised tokens: (S,).
    ///
    /// # Errors
    /// A batch whose rows are one text each has no sequences.
    pub fn sequence_logps(&self) -> Result<Tensor> {
        let sequences = self.batch.origins.len();
        if self.batch.sequence.len() != self.batch.inputs.len() || sequences == 0 {
            bail!("this batch has no sequence ids")
        }
        let of_token = Tensor::from_slice(
            &self.batch.sequence,
            self.batch.sequence.len(),
            &Device::Cpu,
        )?;
        let supervised = (&self.logp * self.mask()?)?.flatten_all()?;
        let zeros = Tensor::zeros(sequences, supervised.dtype(), &Device::Cpu)?;
        zeros.index_add(&of_token, &supervised, 0)
    }

    /// Supervised tokens of each sequence, at least 1: (S,).
    ///
    /// # Errors
    /// As [`ScoredBatch::sequence_logps`].
    pub fn sequence_lengths(&self) -> Result<Tensor> {
        let ones = ScoredBatch {
            logp: self.logp.ones_like()?,
            ..self.clone()
        };
        ones.sequence_logps()?.maximum(1.0)
    }

    /// A column of the batch with one value for each sequence: (S,).
    ///
    /// # Errors
    /// The batch has no such column.
    pub fn column(&self, name: &str) -> Result<Tensor> {
        match self.batch.column(name) {
            Some(values) => Tensor::from_slice(values, values.len(), &Device::Cpu),
            None => bail!("this batch has no column `{name}`"),
        }
    }

    /// A column of the batch with one value for each token: (B, T).
    ///
    /// # Errors
    /// The batch has no such column.
    pub fn token_column(&self, name: &str) -> Result<Tensor> {
        match self.batch.column(name) {
            Some(values) => Tensor::from_slice(values, self.logp.shape(), &Device::Cpu),
            None => bail!("this batch has no column `{name}`"),
        }
    }

    /// Values of sequences (S,) as those of the chosen and those of the rejected side: (P,) each.
    ///
    /// # Errors
    /// A batch without pairs.
    pub fn sides(&self, of_sequences: &Tensor) -> Result<[Tensor; 2]> {
        if !matches!(self.batch.unit, Unit::Pair | Unit::Ranked) {
            bail!("this batch has no pairs")
        }
        let pairs = of_sequences.reshape((self.batch.groups(), 2))?;
        let side = |side| pairs.narrow(1, side, 1)?.squeeze(1);
        Ok([side(0)?, side(1)?])
    }
}

/// Adds Σ `values` over their number to a reading.
///
/// # Errors
/// Those of candle.
pub fn read(readings: &mut Readings, id: &'static str, values: &Tensor) -> Result<()> {
    let values: Vec<f32> = values.detach().flatten_all()?.to_vec1()?;
    let sum = values.iter().map(|x| f64::from(*x)).sum();
    readings.add(id, sum, values.len() as f64);
    Ok(())
}

/// σ(x), as exact in the tails as [`log_sigmoid`].
///
/// # Errors
/// Those of candle.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    log_sigmoid(x)?.exp()
}

/// ln σ(x), exact for large |x|: min(x, 0) − ln(1 + e^−|x|). The sign is a constant of the graph: at 0 the kinks of min and
/// |·| would each take a derivative of their own, and the sum would not be that of ln σ.
///
/// # Errors
/// Those of candle.
pub fn log_sigmoid(x: &Tensor) -> Result<Tensor> {
    let negative = x.detach().lt(0.0)?.to_dtype(x.dtype())?;
    let minus_abs = (x * ((&negative * 2.0)? - 1.0)?)?;
    (x * negative)? - (minus_abs.exp()? + 1.0)?.log()?
}
