//! RMSNorm of queries and keys per head, before RoPE (Henry et al. 2020, arXiv 2010.04245; as in Qwen3).

use super::attention::Heads;
use super::math::{sum1, sum2};
use super::matmul::Accumulation;
use super::norm::{self, NormKind};
use super::reduce;
use super::simd::multiversion;
use super::threads::{self, SharedSlice};
use candle_core::{D, Result, Tensor};
use std::ops::Range;

/// `qkv` (B, T, qkv_width), gains of queries and of keys (head_dim) → the same with queries and keys normalized.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(heads: Heads, qkv: &Tensor, gains: [&Tensor; 2], eps: f64) -> Result<Tensor> {
    let (batch_size, seq_len, _) = qkv.dims3()?;
    let part = |from: usize, n: usize, gain: &Tensor| {
        let width = n * heads.head_dim;
        let x = qkv.narrow(D::Minus1, from, width)?;
        let x = x.reshape((batch_size, seq_len, n, heads.head_dim))?;
        norm::composite(NormKind::Rms, &x, gain, None, eps)?.reshape((batch_size, seq_len, width))
    };
    let q = part(0, heads.n_head, gains[0])?;
    let k = part(heads.q_width(), heads.n_kv_head, gains[1])?;
    let v = qkv.narrow(
        D::Minus1,
        heads.q_width() + heads.kv_width(),
        heads.kv_width(),
    )?;
    Tensor::cat(&[q, k, v], D::Minus1)
}

/// The parameters of the fused form: gains of queries and of keys (head_dim).
#[derive(Debug, Clone, Copy)]
pub struct QkNorm<'a> {
    pub heads: Heads,
    pub gains: [&'a [f32]; 2],
    /// Added to a stored gain before use.
    pub gain_offset: f32,
    /// Added to the mean square.
    pub eps: f32,
}

/// Operations per element, for choosing the thread count.
const COST: usize = 6;

impl QkNorm<'_> {
    /// Number of normalized heads per row.
    pub fn normalized(&self) -> usize {
        self.heads.n_head + self.heads.n_kv_head
    }

    /// The gain of the row's head number `head`.
    #[inline(always)]
    fn gain(&self, head: usize) -> &[f32] {
        self.gains[usize::from(head >= self.heads.n_head)]
    }
}

/// `x` (rows, qkv_width) → `y` of the same shape; `scales` (rows, n_head + n_kv_head) keeps 1/√(mean square + eps).
pub fn forward(norm: QkNorm, x: &[f32], y: &mut [f32], scales: &mut [f32]) {
    let (width, n) = (norm.heads.qkv_width(), norm.normalized());
    threads::rows2((y, width), (scales, n), COST * width, |first, y, scales| {
        let x = &x[first * width..][..y.len()];
        forward_rows(norm, x, y, scales);
    });
}

multiversion! {
    fn forward_rows(norm: QkNorm<'_>, x: &[f32], y: &mut [f32], scales: &mut [f32]) {
        let (d, width, n) = (norm.heads.head_dim, norm.heads.qkv_width(), norm.normalized());
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for ((x, y), scales) in rows.zip(scales.chunks_exact_mut(n)) {
            let (x, values) = x.split_at(n * d);
            let (y, to) = y.split_at_mut(n * d);
            to.copy_from_slice(values);
            let all = x.chunks_exact(d).zip(y.chunks_exact_mut(d)).zip(scales);
            for (head, ((x, y), scale)) in all.enumerate() {
                *scale = 1.0 / (sum1(x, |x| x * x) / d as f32 + norm.eps).sqrt();
                for ((y, &x), &g) in y.iter_mut().zip(x).zip(norm.gain(head)) {
                    *y = x * *scale * (g + norm.gain_offset);
                }
            }
        }
    }
}

/// Inputs and scales of the forward.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a> {
    pub x: &'a [f32],
    pub scales: &'a [f32],
}

/// `dx` (rows, qkv_width) = the gradient with respect to the input, for `dy` of the same shape; `dgains`
/// (2 · head_dim), queries before keys, = (or +=) the gradients with respect to the gains.
pub fn backward(
    norm: QkNorm,
    saved: Saved,
    dy: &[f32],
    dx: &mut [f32],
    dgains: Option<(&mut [f32], Accumulation)>,
) {
    let (d, width, n) = (
        norm.heads.head_dim,
        norm.heads.qkv_width(),
        norm.normalized(),
    );
    let rows = dy.len() / width;
    assert_eq!(saved.x.len(), rows * width, "input of queries and keys");
    assert_eq!(saved.scales.len(), rows * n, "scales of queries and keys");
    if let Some((dgains, _)) = &dgains {
        assert_eq!(dgains.len(), 2 * d, "gains of queries and keys");
    }
    let dx = SharedSlice::new(dx);
    let work = |rows: Range<usize>, sums: &mut [f32]| {
        let part = rows.start * width..rows.end * width;
        let saved = Saved {
            x: &saved.x[part.clone()],
            scales: &saved.scales[rows.start * n..rows.end * n],
        };
        #[allow(unsafe_code)]
        // SAFETY: each call owns its rows of dx.
        let dx = unsafe { dx.range(part.clone()) };
        backward_rows(norm, saved, &dy[part], dx, sums);
    };
    reduce::over_rows(rows, 2 * d, 3 * COST * width, work, |sums| {
        if let Some((dgains, into)) = dgains {
            reduce::join(dgains, sums, into);
        }
    });
}

multiversion! {
    fn backward_rows(norm: QkNorm<'_>, saved: Saved<'_>, dy: &[f32], dx: &mut [f32], sums: &mut [f32]) {
        let (d, width, n) = (norm.heads.head_dim, norm.heads.qkv_width(), norm.normalized());
        let rows = saved.x.chunks_exact(width).zip(saved.scales.chunks_exact(n));
        let gradients = dy.chunks_exact(width).zip(dx.chunks_exact_mut(width));
        for ((x, scales), (dy, dx)) in rows.zip(gradients) {
            let (dy, dvalues) = dy.split_at(n * d);
            let (dx, to) = dx.split_at_mut(n * d);
            to.copy_from_slice(dvalues);
            let heads = x.chunks_exact(d).zip(scales);
            let heads = heads.zip(dy.chunks_exact(d).zip(dx.chunks_exact_mut(d)));
            for (head, ((x, &scale), (dy, dx))) in heads.enumerate() {
                let gain = norm.gain(head);
                let dgain = &mut sums[usize::from(head >= norm.heads.n_head) * d..][..d];
                // dx temporarily holds dy · gain: the gradient with respect to the normalized features.
                for ((dx, &dy), &g) in dx.iter_mut().zip(dy).zip(gain) {
                    *dx = dy * (g + norm.gain_offset);
                }
                for ((sum, &dy), &x) in dgain.iter_mut().zip(dy).zip(x) {
                    *sum += dy * x * scale;
                }
                let along = sum2(dx, x, |a, b| a * b) * scale * scale / d as f32;
                for (dx, &x) in dx.iter_mut().zip(x) {
                    *dx = scale * (*dx - x * along);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        for (n_head, n_kv_head, head_dim, rows) in [(1, 1, 1, 1), (4, 2, 6, 13), (3, 1, 32, 300)] {
            for offset in [0.0, 1.0] {
                let heads = Heads {
                    n_head,
                    n_kv_head,
                    head_dim,
                };
                check(heads, rows, offset);
            }
        }
    }

    fn check(heads: Heads, rows: usize, gain_offset: f32) {
        let (width, d) = (heads.qkv_width(), heads.head_dim);
        let (x, dy) = (normal(rows * width, 0), normal(rows * width, 1));
        let (q, k) = (normal(d, 2), normal(d, 3));
        let (lx, lq, lk) = (leaf(&x, &[1, rows, width]), leaf(&q, &[d]), leaf(&k, &[d]));
        let (exact, grads) = oracle(&[&lx, &lq, &lk], &dy, || {
            composite(heads, &lx, [&lq, &lk], 1e-5)
        });
        let kept = |gains: &[f32]| -> Vec<f32> { gains.iter().map(|g| g - gain_offset).collect() };
        let (q, k) = (kept(&q), kept(&k));
        let norm = QkNorm {
            heads,
            gains: [&q, &k],
            gain_offset,
            eps: 1e-5,
        };
        let (mut y, mut scales) = (vec![9.0; x.len()], vec![9.0; rows * norm.normalized()]);
        forward(norm, &x, &mut y, &mut scales);
        assert_close("y", &y, &exact, 2e-6);
        let saved = Saved {
            x: &x,
            scales: &scales,
        };
        let (mut dx, mut dgains) = (vec![f32::NAN; x.len()], vec![f32::NAN; 2 * d]);
        for (times, into) in [(1.0, Accumulation::Overwrite), (2.0, Accumulation::Add)] {
            backward(norm, saved, &dy, &mut dx, Some((&mut dgains, into)));
            assert_close("dx", &dx, &grads[0], 5e-6);
            let gains = grads[1].iter().chain(&grads[2]);
            let exact: Vec<f64> = gains.map(|x| times * x).collect();
            assert_close("dgains", &dgains, &exact, 5e-6);
        }
    }
}
