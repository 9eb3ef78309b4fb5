//! The log-prob head: hidden states × vocabulary → log-probability of each target and entropy of each distribution.
//! The fused form has two modes: forward, and backward once the gradient is known; or both together, chunk by chunk, if
//! the gradient is known beforehand. `rows` holds the per-row computation, `sizes` the chunking; `distill` is the head beside a
//! teacher's, for losses on whole distributions.

mod distill;
#[cfg(test)]
mod distill_tests;
mod divergence;
mod rows;
mod sizes;
#[cfg(test)]
mod tests;

pub use distill::{Learned, Teacher, TeacherOutputs, bytes_beside, distill};
pub use divergence::Divergence;
pub use sizes::Sizes;

use super::aligned::Aligned;
use super::matmul::{Accumulation, Compute, ComputeDtype, Mat, Plus, matmul};
use super::matrix::Matrix;
use super::numbers::ValuesMut;
use super::{softcap, threads};
use candle_core::{D, Result, Tensor};
use rows::{Constants, OUTPUTS, fill_outputs, row_to_gradient};
use std::ops::Range;

/// `hidden` (N, D), `table` (V, D), `targets` (N) u32 → log-probability (N) of each target and entropy (N), both in nats,
/// and whether the target was the top-1 token (N): 1 or 0, detached.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(
    hidden: &Tensor,
    table: &Tensor,
    targets: &Tensor,
    cap: Option<f64>,
) -> Result<(Tensor, Tensor, Tensor)> {
    let mut logits = hidden.matmul(&table.t()?)?;
    if let Some(cap) = cap {
        logits = softcap::composite(&logits, cap)?;
    }
    let logp = super::softmax::log_composite(&logits)?;
    let entropy = (logp.exp()? * &logp)?.sum(D::Minus1)?.neg()?;
    let target = logp.gather(&targets.unsqueeze(1)?, 1)?.squeeze(1)?;
    let top = logp.detach().max(D::Minus1)?;
    let top1 = target.detach().ge(&top)?.to_dtype(target.dtype())?;
    Ok((target, entropy, top1))
}

/// Operations per logit, for choosing the thread count.
const COST: usize = 20;

/// Inputs of the head: hidden states (rows, d), table (vocab, d) and the target of each row.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub hidden: &'a [f32],
    pub table: Matrix<'a>,
    pub targets: &'a [u32],
    /// Logits x become c · tanh(x / c).
    pub cap: Option<f32>,
}

/// Outputs of the head for each row.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Log-probability of the target.
    pub logp: Vec<f32>,
    /// Entropy of the distribution.
    pub entropy: Vec<f32>,
    /// 1 where no token is more probable than the target, else 0.
    pub top1: Vec<f32>,
    /// Log of the sum of exponentials.
    lse: Vec<f32>,
    /// Logits of all rows, or of one chunk.
    logits: Aligned,
    /// Log-probability, entropy, log-sum-exp and `top1` side by side, of one chunk.
    row_outputs: Vec<f32>,
    /// Of [`distill()`] alone.
    pub teacher: TeacherOutputs,
}

impl Outputs {
    /// Allocates for these sizes; memory is reused.
    pub(crate) fn resize(&mut self, sizes: Sizes) {
        let rows = [
            &mut self.logp,
            &mut self.entropy,
            &mut self.top1,
            &mut self.lse,
        ];
        for part in rows {
            make_room(part, sizes.rows);
        }
        let logits = sizes.chunk_rows * sizes.vocab;
        if self.logits.len() < logits {
            // The old buffer is freed first: the two never exist at once.
            self.logits = Aligned::default();
            self.logits = Aligned::zeros(logits);
        }
        make_room(&mut self.row_outputs, sizes.chunk_rows * OUTPUTS);
    }

    /// Copies the outputs of one chunk of rows to their columns.
    fn note(&mut self, rows: Range<usize>) {
        for (at, output) in rows.zip(self.row_outputs.chunks_exact(OUTPUTS)) {
            self.logp[at] = output[0];
            self.entropy[at] = output[1];
            self.lse[at] = output[2];
            self.top1[at] = output[3];
        }
    }

    /// Log of the sum of exponentials of each row's logits.
    pub fn lse(&self) -> &[f32] {
        &self.lse
    }

    /// Bytes that stay allocated.
    pub fn bytes(&self) -> u64 {
        let rows = [
            &self.logp,
            &self.entropy,
            &self.top1,
            &self.lse,
            &self.row_outputs,
        ];
        let numbers: usize = rows.into_iter().map(Vec::capacity).sum();
        let own = ((numbers + self.logits.len()) * size_of::<f32>()) as u64;
        own + self.teacher.bytes()
    }
}

/// Sets the length of `part`; contents are arbitrary.
fn make_room(part: &mut Vec<f32>, len: usize) {
    if part.capacity() < len {
        // Exactly this size: a growing vector would over-allocate.
        *part = vec![0.0; len];
    }
    part.resize(len, 0.0);
}

/// Upstream gradients of each row.
#[derive(Debug, Clone, Copy)]
pub struct Upstream<'a> {
    pub dlogp: &'a [f32],
    pub dentropy: Option<&'a [f32]>,
    /// Adds z · Σ w · lse² to a loss Σ w · (−logp), where w = −dlogp and lse is the log of a row's sum of exponentials (PaLM's
    /// z-loss, Chowdhery et al. 2022, arXiv 2204.02311); 0 is off.
    pub z_loss: f32,
}

impl Upstream<'_> {
    /// The gradient constants of row `at`, whose log-sum-exp and entropy are known.
    fn constants(&self, at: usize, target: u32, lse: f32, entropy: f32) -> Constants {
        Constants {
            target: target as usize,
            lse,
            entropy,
            dlogp: self.dlogp[at],
            spread: self.dlogp[at] * (1.0 + 2.0 * self.z_loss * lse),
            dentropy: self.dentropy.map_or(0.0, |dentropy| dentropy[at]),
        }
    }
}

/// Fills `outputs`, whose memory is reused.
pub fn forward(arithmetic: ComputeDtype, sizes: Sizes, inputs: Inputs, outputs: &mut Outputs) {
    let head = Head::new(arithmetic, sizes, inputs);
    let vocab = sizes.vocab;
    outputs.resize(sizes);
    for rows in head.chunks() {
        let logits = &mut outputs.logits[..rows.len() * vocab];
        head.logits(&rows, logits);
        let (logits, targets) = (&*logits, &inputs.targets[rows.clone()]);
        let row_outputs = &mut outputs.row_outputs[..rows.len() * OUTPUTS];
        threads::rows1(row_outputs, OUTPUTS, COST * vocab, |first, row_outputs| {
            let n = row_outputs.len() / OUTPUTS;
            let logits = &logits[first * vocab..][..n * vocab];
            fill_outputs(logits, vocab, &targets[first..], row_outputs);
        });
        outputs.note(rows);
    }
}

/// `dhidden` (rows, d) = and `dtable` (vocab, d) = (or +=) the gradients for `upstream`; no `dtable` if it is frozen. Overwrites
/// the logits in `outputs`.
pub fn backward(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    inputs: Inputs,
    outputs: &mut Outputs,
    upstream: Upstream,
    dhidden: &mut [f32],
    mut dtable: Option<(&mut [f32], Accumulation)>,
) {
    let head = Head::new(arithmetic, sizes, inputs);
    let vocab = sizes.vocab;
    for rows in head.chunks() {
        let logits = &mut outputs.logits[..rows.len() * vocab];
        if !sizes.keeps_logits() {
            head.logits(&rows, logits);
        }
        let (lse, entropy) = (&outputs.lse, &outputs.entropy);
        threads::rows1(logits, vocab, COST * vocab, |first, logits| {
            for (i, row) in logits.chunks_exact_mut(vocab).enumerate() {
                let at = rows.start + first + i;
                let of = upstream.constants(at, inputs.targets[at], lse[at], entropy[at]);
                row_to_gradient(row, of, inputs.cap);
            }
        });
        let dtable = dtable.as_mut().map(|(dtable, into)| (&mut **dtable, *into));
        head.backward_matmuls(&rows, logits, dhidden, dtable);
    }
}

/// [`forward`] and [`backward`] in one, for an `upstream` that is known beforehand: a row's logits become their gradient
/// as soon as its outputs are computed.
pub fn forward_backward(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    inputs: Inputs,
    outputs: &mut Outputs,
    upstream: Upstream,
    dhidden: &mut [f32],
    mut dtable: Option<(&mut [f32], Accumulation)>,
) {
    let head = Head::new(arithmetic, sizes, inputs);
    let vocab = sizes.vocab;
    outputs.resize(sizes);
    for rows in head.chunks() {
        let logits = &mut outputs.logits[..rows.len() * vocab];
        head.logits(&rows, logits);
        let row_outputs = &mut outputs.row_outputs[..rows.len() * OUTPUTS];
        let cost = 2 * COST * vocab;
        let both = ((&mut *logits, vocab), (row_outputs, OUTPUTS));
        threads::rows2(both.0, both.1, cost, |first, logits, row_outputs| {
            let pairs = logits.chunks_exact_mut(vocab);
            for (i, (row, row_outputs)) in
                pairs.zip(row_outputs.chunks_exact_mut(OUTPUTS)).enumerate()
            {
                let at = rows.start + first + i;
                let target = inputs.targets[at];
                fill_outputs(row, vocab, &[target], row_outputs);
                let of = upstream.constants(at, target, row_outputs[2], row_outputs[1]);
                row_to_gradient(row, of, inputs.cap);
            }
        });
        let dtable = dtable.as_mut().map(|(dtable, into)| (&mut **dtable, *into));
        head.backward_matmuls(&rows, logits, dhidden, dtable);
        outputs.note(rows);
    }
}

/// The matmuls of the head, chunk by chunk.
#[derive(Clone, Copy)]
struct Head<'a> {
    sizes: Sizes,
    inputs: Inputs<'a>,
    compute: Compute,
}

impl<'a> Head<'a> {
    fn new(arithmetic: ComputeDtype, sizes: Sizes, inputs: Inputs<'a>) -> Self {
        debug_assert_eq!(inputs.hidden.len(), sizes.rows * sizes.d);
        Head {
            sizes,
            inputs,
            compute: Compute::pool(arithmetic),
        }
    }

    /// The chunks of rows that are computed together.
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Sizes {
            rows, chunk_rows, ..
        } = self.sizes;
        let starts = (0..rows).step_by(chunk_rows.max(1));
        starts.map(move |from| from..rows.min(from + chunk_rows))
    }

    fn hidden(&self, rows: &Range<usize>) -> Mat<'a> {
        let d = self.sizes.d;
        let hidden = &self.inputs.hidden[rows.start * d..rows.end * d];
        Mat::new(hidden, rows.len(), d)
    }

    /// Logits (rows, vocab).
    fn logits(&self, rows: &Range<usize>, logits: &mut [f32]) {
        let (vocab, table) = (self.sizes.vocab, self.inputs.table);
        let nothing = Plus::default();
        let to = ValuesMut::F32(logits);
        table.product(to, self.hidden(rows), vocab, nothing, self.compute);
        if let Some(cap) = self.inputs.cap {
            threads::rows1(logits, vocab, COST * vocab, |_, logits| {
                softcap::apply(logits, cap)
            });
        }
    }

    /// Adds the contribution of these rows' logit gradients to `dhidden` (all rows, d) and `dtable`.
    fn backward_matmuls(
        &self,
        rows: &Range<usize>,
        dlogits: &[f32],
        dhidden: &mut [f32],
        dtable: Option<(&mut [f32], Accumulation)>,
    ) {
        let Sizes { d, vocab, .. } = self.sizes;
        let dlogits = Mat::new(dlogits, rows.len(), vocab);
        let table = self.inputs.table;
        let dhidden = &mut dhidden[rows.start * d..rows.end * d];
        let dhidden = ValuesMut::F32(dhidden);
        table.input_gradient(dhidden, dlogits, d, Plus::default(), self.compute);
        let Some((dtable, into)) = dtable else {
            return;
        };
        // Later chunks add to the first one's.
        let into = if rows.start == 0 {
            into
        } else {
            Accumulation::Add
        };
        let hidden = self.hidden(rows);
        matmul(dtable, dlogits.t(), hidden, 1.0, into, self.compute);
    }
}
