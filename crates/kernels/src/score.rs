//! The head of a reward model: hidden states × one vector → one number for each row. It replaces the log-prob head and
//! returns the same [`Outputs`]: scores in place of log-probabilities, entropies and top-1 are 0. A value head next to the
//! log-prob head is the same vector over the same hidden states.

use super::logprob::{Outputs, Sizes};
use super::matmul::Accumulation;
use super::threads;
use candle_core::{Result, Tensor};

/// `hidden` (N, D), `weight` (1, D) → scores (N).
///
/// # Errors
/// Shapes that do not fit.
pub fn composite(hidden: &Tensor, weight: &Tensor) -> Result<Tensor> {
    hidden.matmul(&weight.t()?)?.squeeze(1)
}

/// Sizes for `rows` hidden states of `d` features.
pub fn sizes(rows: usize, d: usize) -> Sizes {
    Sizes::new(rows, d, 1)
}

/// Fills `scores` (rows) = `hidden` (rows, d) · `weight` (d), summed in f64.
pub fn scores(hidden: &[f32], weight: &[f32], scores: &mut [f32]) {
    let d = weight.len();
    threads::rows1(scores, 1, 2 * d, |first, scores| {
        let rows = hidden[first * d..].chunks_exact(d);
        for (score, row) in scores.iter_mut().zip(rows) {
            let products = row.iter().zip(weight);
            let sum: f64 = products.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            *score = sum as f32;
        }
    });
}

/// Fills `outputs`, whose memory is reused.
pub fn forward(sizes: Sizes, hidden: &[f32], weight: &[f32], outputs: &mut Outputs) {
    outputs.resize(sizes);
    scores(hidden, weight, &mut outputs.logp);
    outputs.entropy.fill(0.0);
    outputs.top1.fill(0.0);
}

/// `dhidden` (rows, d) and `dweight` (d) = (or +=) the gradients for `dscores` (rows); no `dweight` for a frozen one. Few
/// rows have a score that counts, so the sum over them is a plain one, in order.
pub fn backward(
    (hidden, weight): (&[f32], &[f32]),
    dscores: &[f32],
    (dhidden, add): (&mut [f32], Accumulation),
    dweight: Option<(&mut [f32], Accumulation)>,
) {
    let d = weight.len();
    assert_eq!(
        dhidden.len(),
        dscores.len() * d,
        "a gradient for each score"
    );
    threads::rows1(dhidden, d, d, |first, dhidden| {
        for (row, dscore) in dhidden.chunks_exact_mut(d).zip(&dscores[first..]) {
            let pairs = row.iter_mut().zip(weight);
            match add {
                Accumulation::Overwrite => pairs.for_each(|(dx, w)| *dx = dscore * w),
                Accumulation::Add => pairs.for_each(|(dx, w)| *dx += dscore * w),
            }
        }
    });
    let Some((dweight, into)) = dweight else {
        return;
    };
    assert_eq!(
        hidden.len(),
        dscores.len() * d,
        "a hidden state for each score"
    );
    if into == Accumulation::Overwrite {
        dweight.fill(0.0);
    }
    let rows = hidden.chunks_exact(d).zip(dscores);
    for (row, dscore) in rows.filter(|(_, dscore)| **dscore != 0.0) {
        for (dw, x) in dweight.iter_mut().zip(row) {
            *dw += dscore * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        for (rows, d) in [(1, 1), (7, 33), (300, 64)] {
            let (hidden, weight) = (normal(rows * d, 0), normal(d, 1));
            let mut dscores = normal(rows, 2);
            dscores[0] = 0.0;
            let (lh, lw) = (leaf(&hidden, &[rows, d]), leaf(&weight, &[1, d]));
            let (exact, grads) = oracle(&[&lh, &lw], &dscores, || composite(&lh, &lw));
            let mut outputs = Outputs::default();
            forward(sizes(rows, d), &hidden, &weight, &mut outputs);
            assert_close("scores", &outputs.logp, &exact, 1e-6);
            assert!(outputs.entropy.iter().all(|x| *x == 0.0));
            assert_eq!(outputs.bytes(), sizes(rows, d).bytes());
            let (mut dhidden, mut dweight) = (vec![9.0; rows * d], vec![9.0; d]);
            for (times, into) in [(1.0, Accumulation::Overwrite), (2.0, Accumulation::Add)] {
                let both = (&*hidden, &*weight);
                let dweight = &mut dweight;
                backward(both, &dscores, (&mut dhidden, into), Some((dweight, into)));
                let exact: Vec<f64> = grads[0].iter().map(|x| times * x).collect();
                assert_close("dhidden", &dhidden, &exact, 1e-6);
                let exact: Vec<f64> = grads[1].iter().map(|x| times * x).collect();
                assert_close("dweight", dweight, &exact, 1e-5);
            }
        }
    }
}
