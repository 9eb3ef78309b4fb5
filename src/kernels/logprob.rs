//! The log-prob head: hidden states × vocabulary → log-probability of each target and entropy of each distribution.
#![allow(unsafe_code)]

use super::lanes::{Lanes, Vector, widest};
use super::math::{exp, max};
use super::matmul::{Arithmetic, Compute, Into, Mat, Plus, matmul};
use super::matrix::Matrix;
use super::simd::multiversion;
use super::{softcap, threads};
use candle_core::{D, Result, Tensor};

/// `hidden` (N, D), `table` (V, D), `targets` (N) u32 → log-probability (N) of each target and entropy (N), both in nats,
/// and whether the target was the likeliest token (N): 1 or 0, without a graph.
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
    let logp = candle_nn::ops::log_softmax(&logits, D::Minus1)?;
    let entropy = (logp.exp()? * &logp)?.sum(D::Minus1)?.neg()?;
    let target = logp.gather(&targets.unsqueeze(1)?, 1)?.squeeze(1)?;
    let top = logp.detach().max(D::Minus1)?;
    let likeliest = target.detach().ge(&top)?.to_dtype(target.dtype())?;
    Ok((target, entropy, likeliest))
}

/// Logits that are kept from forward to backward: 64 MiB of f32. Beyond this the backward computes them again.
const KEPT_LOGITS: usize = 16 << 20;

/// What the head says of a row: log-probability, entropy, log-sum-exp, and whether the target was the likeliest token.
const ANSWERS: usize = 4;

/// Operations per logit, for deciding on threads.
const COST: usize = 20;

/// Sizes of the fused head: `rows` hidden states of `d` features over `vocab` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub rows: usize,
    pub d: usize,
    pub vocab: usize,
    /// Logits that may be kept from forward to backward; beyond this they come in chunks of an eighth of it.
    pub kept_logits: usize,
}

impl Sizes {
    pub fn new(rows: usize, d: usize, vocab: usize) -> Self {
        Sizes {
            rows,
            d,
            vocab,
            kept_logits: KEPT_LOGITS,
        }
    }

    /// Whether all logits live from forward to backward.
    pub fn keeps_logits(&self) -> bool {
        self.rows * self.vocab <= self.kept_logits
    }

    /// Rows whose logits are there at once.
    pub fn chunk_rows(&self) -> usize {
        if self.keeps_logits() {
            self.rows
        } else {
            (self.kept_logits / 8 / self.vocab).clamp(1, self.rows)
        }
    }
}

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
    /// 1 where no token is likelier than the target, else 0.
    pub likeliest: Vec<f32>,
    /// Log of the sum of exponentials.
    lse: Vec<f32>,
    /// Logits of all rows, or of one chunk.
    logits: Vec<f32>,
    /// Log-probability, entropy, log-sum-exp and `likeliest` side by side, of one chunk.
    answers: Vec<f32>,
}

impl Outputs {
    /// Bytes that stay allocated.
    pub fn bytes(&self) -> u64 {
        let rows = [
            &self.logp,
            &self.entropy,
            &self.likeliest,
            &self.lse,
            &self.answers,
        ];
        let parts = rows.into_iter().chain([&self.logits]);
        parts.map(|part| 4 * part.capacity() as u64).sum()
    }
}

/// Upstream gradients of each row.
#[derive(Debug, Clone, Copy)]
pub struct Upstream<'a> {
    pub dlogp: &'a [f32],
    pub dentropy: Option<&'a [f32]>,
}

/// Fills `outputs`, whose memory is used again.
pub fn forward(arithmetic: Arithmetic, sizes: Sizes, inputs: Inputs, outputs: &mut Outputs) {
    let Sizes { rows, d, vocab, .. } = sizes;
    let chunk_rows = sizes.chunk_rows();
    let Outputs {
        logp,
        entropy,
        likeliest,
        lse,
        logits,
        answers,
    } = outputs;
    for part in [&mut *logp, &mut *entropy, &mut *likeliest, &mut *lse] {
        part.resize(rows, 0.0);
    }
    logits.resize(chunk_rows * vocab, 0.0);
    answers.resize(chunk_rows * ANSWERS, 0.0);
    for from in (0..rows).step_by(chunk_rows) {
        let n = chunk_rows.min(rows - from);
        let logits = &mut logits[..n * vocab];
        chunk_logits(arithmetic, sizes, inputs, from, logits);
        let (logits, targets) = (&*logits, &inputs.targets[from..from + n]);
        let answers = &mut answers[..n * ANSWERS];
        threads::rows1(answers, ANSWERS, COST * vocab, |first, answers| {
            let rows = answers.len() / ANSWERS;
            let logits = &logits[first * vocab..][..rows * vocab];
            // SAFETY: needs nothing but the instructions that it picks.
            unsafe { row_answers(false, logits, vocab, &targets[first..], answers) };
        });
        for (i, answer) in answers.chunks_exact(ANSWERS).enumerate() {
            logp[from + i] = answer[0];
            entropy[from + i] = answer[1];
            lse[from + i] = answer[2];
            likeliest[from + i] = answer[3];
        }
    }
    debug_assert_eq!(inputs.hidden.len(), rows * d);
}

/// `dhidden` (rows, d) = and `dtable` (vocab, d) = (or +=) the gradients for `upstream`. Uses up the logits in `outputs`.
pub fn backward(
    arithmetic: Arithmetic,
    sizes: Sizes,
    inputs: Inputs,
    outputs: &mut Outputs,
    upstream: Upstream,
    dhidden: &mut [f32],
    (dtable, into): (&mut [f32], Into),
) {
    let Sizes { rows, d, vocab, .. } = sizes;
    let chunk_rows = sizes.chunk_rows();
    let compute = Compute::pool(arithmetic);
    for from in (0..rows).step_by(chunk_rows) {
        let n = chunk_rows.min(rows - from);
        let logits = &mut outputs.logits[..n * vocab];
        if !sizes.keeps_logits() {
            chunk_logits(arithmetic, sizes, inputs, from, logits);
        }
        let (lse, entropy) = (&outputs.lse[from..], &outputs.entropy[from..]);
        threads::rows1(logits, vocab, COST * vocab, |first, logits| {
            for (i, row) in logits.chunks_exact_mut(vocab).enumerate() {
                let at = first + i;
                let dlogp = upstream.dlogp[from + at];
                let dentropy = upstream.dentropy.map_or(0.0, |d| d[from + at]);
                let constants = [lse[at], entropy[at], dlogp, dentropy];
                let target = inputs.targets[from + at] as usize;
                if let Some(cap) = inputs.cap {
                    let slope = softcap::slope(row[target], 1.0 / cap);
                    capped_logits_to_gradient(row, constants, 1.0 / cap);
                    row[target] += dlogp * slope;
                    continue;
                }
                // SAFETY: needs nothing but the instructions that it picks.
                unsafe { logits_to_gradient(false, row, constants) };
                row[target] += dlogp;
            }
        });
        let dlogits = Mat::new(logits, n, vocab);
        let table = Mat::new(inputs.table.dense(), vocab, d);
        let hidden = Mat::new(&inputs.hidden[from * d..][..n * d], n, d);
        let dhidden = &mut dhidden[from * d..][..n * d];
        matmul(dhidden, dlogits, table, 1.0, Into::Overwrite, compute);
        // Later chunks add to the first one's.
        let into = if from == 0 { into } else { Into::Accumulate };
        matmul(dtable, dlogits.t(), hidden, 1.0, into, compute);
    }
}

/// Logits (n, vocab) of rows `from`..
fn chunk_logits(
    arithmetic: Arithmetic,
    sizes: Sizes,
    inputs: Inputs,
    from: usize,
    logits: &mut [f32],
) {
    let Sizes { d, vocab, .. } = sizes;
    let n = logits.len() / vocab;
    let hidden = Mat::new(&inputs.hidden[from * d..][..n * d], n, d);
    let compute = Compute::pool(arithmetic);
    let nothing = Plus::default();
    inputs
        .table
        .product(logits, hidden, vocab, nothing, compute);
    if let Some(cap) = inputs.cap {
        threads::rows1(logits, vocab, COST * vocab, |_, logits| {
            softcap::apply(logits, cap)
        });
    }
}

widest! {
    /// The [`ANSWERS`] of each row.
    fn row_answers(
        pairs,
        logits: &[f32],
        vocab: usize,
        targets: &[u32],
        answers: &mut [f32],
    ) = row_answers_with
}

/// Two walks over a row, which stays in a cache: the maximum; then both sums below it.
#[inline(always)]
unsafe fn row_answers_with<V: Vector>(
    logits: &[f32],
    vocab: usize,
    targets: &[u32],
    answers: &mut [f32],
) {
    let rows = logits.chunks_exact(vocab).zip(targets);
    for ((row, &target), answer) in rows.zip(answers.chunks_exact_mut(ANSWERS)) {
        // SAFETY: loads stay within the row; the instructions are the caller's.
        let (top, sum, weighted) = unsafe {
            let mut tops = Lanes::<V>::all(f32::NEG_INFINITY);
            for at in (0..vocab).step_by(V::LANES) {
                let x = V::load_first(row.as_ptr().add(at), vocab - at);
                let x = x.keep_first(vocab - at, f32::NEG_INFINITY);
                *tops.at(at) = x.greater(*tops.at(at));
            }
            let top = max(&tops.values());
            let (mut sums, mut weighted) = (Lanes::<V>::all(0.0), Lanes::<V>::all(0.0));
            for at in (0..vocab).step_by(V::LANES) {
                let x = V::load_first(row.as_ptr().add(at), vocab - at);
                let x = x.minus(V::all(top));
                let p = x.exp().keep_first(vocab - at, 0.0);
                *sums.at(at) = sums.at(at).plus(p);
                *weighted.at(at) = p.fused(x, *weighted.at(at));
            }
            (top, sums.total(), weighted.total())
        };
        let log_sum = sum.ln();
        answer[0] = row[target as usize] - top - log_sum;
        // H = lse − Σ p x, with x taken from the top.
        answer[1] = log_sum - weighted / sum;
        answer[2] = top + log_sum;
        answer[3] = f32::from(u8::from(row[target as usize] >= top));
    }
}

widest! {
    /// x ← −p (dlogp + dentropy (ln p + H)), the gradient by the logits but for the target's own +dlogp. The constants are
    /// the row's log-sum-exp, H, dlogp and dentropy.
    fn logits_to_gradient(pairs, row: &mut [f32], constants: [f32; 4]) = logits_to_gradient_with
}

#[inline(always)]
unsafe fn logits_to_gradient_with<V: Vector>(
    row: &mut [f32],
    [lse, entropy, dlogp, dentropy]: [f32; 4],
) {
    for at in (0..row.len()).step_by(V::LANES) {
        let left = row.len() - at;
        // SAFETY: loads and stores stay within the row; the instructions are the caller's.
        unsafe {
            let to = row.as_mut_ptr().add(at);
            let log_p = V::load_first(to, left).minus(V::all(lse));
            let slope = log_p.plus(V::all(entropy));
            let slope = slope.fused(V::all(dentropy), V::all(dlogp));
            let gradient = V::all(-1.0).times(log_p.exp()).times(slope);
            gradient.store_first(to, left);
        }
    }
}

multiversion! {
    /// The same by the logits before the cap.
    fn capped_logits_to_gradient(row: &mut [f32], constants: [f32; 4], share: f32) {
        let [lse, entropy, dlogp, dentropy] = constants;
        for x in row {
            let log_p = *x - lse;
            let by_capped = -exp(log_p) * ((log_p + entropy) * dentropy + dlogp);
            *x = by_capped * softcap::slope(*x, share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{assert_close, leaf, normal};
    use candle_core::{DType, Device};

    /// Both outputs with random upstream gradients, against candle in f64.
    fn check(sizes: Sizes, tolerance: f64) {
        check_capped(sizes, None, tolerance);
        check_capped(sizes, Some(2.0), tolerance);
    }

    fn check_capped(sizes: Sizes, cap: Option<f64>, tolerance: f64) {
        let Sizes { rows, d, vocab, .. } = sizes;
        let hidden = normal(rows * d, 0);
        let table: Vec<f32> = normal(vocab * d, 1).iter().map(|x| 0.3 * x).collect();
        let targets: Vec<u32> = (0..rows).map(|i| (i * 7 % vocab) as u32).collect();
        let (dlogp, dentropy) = (normal(rows, 2), normal(rows, 3));
        let (lh, lt) = (leaf(&hidden, &[rows, d]), leaf(&table, &[vocab, d]));
        let ids = Tensor::from_slice(&targets, rows, &Device::Cpu).unwrap();
        let (logp, entropy, likeliest) = composite(&lh, &lt, &ids, cap).unwrap();
        let up = |x: &[f32]| {
            let x = Tensor::from_slice(x, rows, &Device::Cpu).unwrap();
            x.to_dtype(DType::F64).unwrap()
        };
        let sum = ((&logp * up(&dlogp)).unwrap() + (&entropy * up(&dentropy)).unwrap()).unwrap();
        let grads = sum.sum_all().unwrap().backward().unwrap();
        let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();

        let inputs = Inputs {
            hidden: &hidden,
            table: Matrix::Dense(&table),
            targets: &targets,
            cap: cap.map(|cap| cap as f32),
        };
        let mut outputs = Outputs::default();
        forward(Arithmetic::F32, sizes, inputs, &mut outputs);
        assert_close("logp", &outputs.logp, &flat(&logp), tolerance);
        assert_close("entropy", &outputs.entropy, &flat(&entropy), tolerance);
        assert_close("likeliest", &outputs.likeliest, &flat(&likeliest), 0.0);
        let (mut dhidden, mut dtable) = (vec![9.0; rows * d], vec![f32::NAN; vocab * d]);
        let upstream = Upstream {
            dlogp: &dlogp,
            dentropy: Some(&dentropy),
        };
        backward(
            Arithmetic::F32,
            sizes,
            inputs,
            &mut outputs,
            upstream,
            &mut dhidden,
            (&mut dtable, Into::Overwrite),
        );
        assert_close(
            "dhidden",
            &dhidden,
            &flat(grads.get(&lh).unwrap()),
            tolerance,
        );
        assert_close("dtable", &dtable, &flat(grads.get(&lt).unwrap()), tolerance);
    }

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        for (rows, d, vocab) in [(1, 3, 2), (5, 8, 17), (70, 32, 65)] {
            check(Sizes::new(rows, d, vocab), 5e-6);
        }
    }

    #[test]
    fn chunks_give_the_same_gradients() {
        let sizes = Sizes {
            kept_logits: 70 * 65 - 1,
            ..Sizes::new(70, 32, 65)
        };
        assert!(!sizes.keeps_logits() && sizes.chunk_rows() == 8);
        check(sizes, 5e-6);
    }

    #[test]
    fn the_entropy_of_equal_logits_is_ln_of_the_vocabulary() {
        let sizes = Sizes::new(1, 1, 65);
        let inputs = Inputs {
            hidden: &[0.0],
            table: Matrix::Dense(&[1.0; 65]),
            targets: &[3],
            cap: None,
        };
        let mut outputs = Outputs::default();
        forward(Arithmetic::F32, sizes, inputs, &mut outputs);
        assert!((outputs.entropy[0] - 65f32.ln()).abs() < 1e-6);
        assert!((outputs.logp[0] + 65f32.ln()).abs() < 1e-6);
    }
}
