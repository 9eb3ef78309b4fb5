//! The log-prob head: hidden states × vocabulary → log-probability of each target and entropy of each distribution.
//! The fused form has two modes: forward and, once the gradient is there, backward; or both together, chunk by chunk, if
//! the gradient is known beforehand. `rows` holds the per-row computation, `sizes` the chunking.

mod rows;
mod sizes;
#[cfg(test)]
mod tests;

pub use sizes::Sizes;

use super::aligned::Aligned;
use super::matmul::{Accumulation, Compute, ComputeDtype, Mat, Plus, matmul};
use super::matrix::Matrix;
use super::numbers::ValuesMut;
use super::{softcap, threads};
use candle_core::{D, Result, Tensor};
use rows::{ANSWERS, Constants, answer, turn};
use std::ops::Range;

/// `hidden` (N, D), `table` (V, D), `targets` (N) u32 → log-probability (N) of each target and entropy (N), both in nats,
/// and whether the target was the top-1 token (N): 1 or 0, detached.
///
/// # Errors
/// Those of candle: shapes or number formats that do not fit.
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

/// Operations per logit, for deciding on threads.
const COST: usize = 20;

/// What the head is asked: hidden states (rows, d), table (vocab, d) and the target of each row.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub hidden: &'a [f32],
    pub table: Matrix<'a>,
    pub targets: &'a [u32],
    /// Logits x become c · tanh(x / c).
    pub cap: Option<f32>,
}

/// What the head answers for each row.
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
    answers: Vec<f32>,
}

impl Outputs {
    /// Makes room, which is used again.
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
            // What is there goes first: never both.
            self.logits = Aligned::default();
            self.logits = Aligned::zeros(logits);
        }
        make_room(&mut self.answers, sizes.chunk_rows * ANSWERS);
    }

    /// Takes down what was answered of these rows.
    fn note(&mut self, rows: Range<usize>) {
        for (at, answer) in rows.zip(self.answers.chunks_exact(ANSWERS)) {
            self.logp[at] = answer[0];
            self.entropy[at] = answer[1];
            self.lse[at] = answer[2];
            self.top1[at] = answer[3];
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
            &self.answers,
        ];
        let numbers: usize = rows.into_iter().map(Vec::capacity).sum();
        ((numbers + self.logits.len()) * size_of::<f32>()) as u64
    }
}

/// Makes `part` so long, whatever it then holds.
fn make_room(part: &mut Vec<f32>, len: usize) {
    if part.capacity() < len {
        // To the byte: a vector that grows by itself would take more.
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
    /// For the gradient of the logits of row `at`, of which log-sum-exp and entropy are known.
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

/// Fills `outputs`, whose memory is used again.
pub fn forward(arithmetic: ComputeDtype, sizes: Sizes, inputs: Inputs, outputs: &mut Outputs) {
    let head = Head::new(arithmetic, sizes, inputs);
    let vocab = sizes.vocab;
    outputs.resize(sizes);
    for rows in head.chunks() {
        let logits = &mut outputs.logits[..rows.len() * vocab];
        head.logits(&rows, logits);
        let (logits, targets) = (&*logits, &inputs.targets[rows.clone()]);
        let answers = &mut outputs.answers[..rows.len() * ANSWERS];
        threads::rows1(answers, ANSWERS, COST * vocab, |first, answers| {
            let n = answers.len() / ANSWERS;
            let logits = &logits[first * vocab..][..n * vocab];
            answer(logits, vocab, &targets[first..], answers);
        });
        outputs.note(rows);
    }
}

/// `dhidden` (rows, d) = and `dtable` (vocab, d) = (or +=) the gradients for `upstream`; no `dtable` for a frozen table. Uses up
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
                turn(row, of, inputs.cap);
            }
        });
        let dtable = dtable.as_mut().map(|(dtable, into)| (&mut **dtable, *into));
        head.backward_matmuls(&rows, logits, dhidden, dtable);
    }
}

/// [`forward`] and [`backward`] in one, for an `upstream` that is known beforehand: a row's logits become their gradient
/// as soon as they have answered.
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
        let answers = &mut outputs.answers[..rows.len() * ANSWERS];
        let cost = 2 * COST * vocab;
        let both = ((&mut *logits, vocab), (answers, ANSWERS));
        threads::rows2(both.0, both.1, cost, |first, logits, answers| {
            let pairs = logits.chunks_exact_mut(vocab);
            for (i, (row, answers)) in pairs.zip(answers.chunks_exact_mut(ANSWERS)).enumerate() {
                let at = rows.start + first + i;
                let target = inputs.targets[at];
                answer(row, vocab, &[target], answers);
                let of = upstream.constants(at, target, answers[2], answers[1]);
                turn(row, of, inputs.cap);
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

    /// Rows that go together.
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

    /// From the gradient of the logits of these rows to that of the rows in `dhidden` (all rows, d) and their part in `dtable`.
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
