//! RMSNorm of queries and keys before RoPE: per head (Henry et al. 2020, arXiv 2010.04245; as in Qwen3), or of all queries and of
//! all keys of a token as one vector each (OLMo 2, arXiv 2501.00656).

use super::attention::Heads;
use super::math::{sum1, sum2};
use super::matmul::Accumulation;
use super::norm::{self, NormKind};
use super::reduce;
use super::simd::multiversion;
use super::threads::{self, SharedSlice};
use candle_core::{D, Result, Tensor};
use std::ops::Range;

/// `qkv` (B, T, qkv_width), gains of queries and of keys → the same with queries and keys normalized. A norm is over as many
/// features as its gain has: head_dim, or the width of all queries, of all keys.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(heads: Heads, qkv: &Tensor, gains: [&Tensor; 2], eps: f64) -> Result<Tensor> {
    let (batch_size, seq_len, _) = qkv.dims3()?;
    let part = |from: usize, width: usize, gain: &Tensor| {
        let len = gain.elem_count();
        let x = qkv.narrow(D::Minus1, from, width)?;
        let x = x.reshape((batch_size, seq_len, width / len, len))?;
        norm::composite(NormKind::Rms, &x, gain, None, eps)?.reshape((batch_size, seq_len, width))
    };
    let q = part(0, heads.q_width(), gains[0])?;
    let k = part(heads.q_width(), heads.kv_width(), gains[1])?;
    let v = qkv.narrow(
        D::Minus1,
        heads.q_width() + heads.kv_width(),
        heads.kv_width(),
    )?;
    Tensor::cat(&[q, k, v], D::Minus1)
}

/// The parameters of the fused form.
#[derive(Debug, Clone, Copy)]
pub struct QkNorm<'a> {
    pub heads: Heads,
    /// Features that one norm is over, of queries and of keys: head_dim, or all of a token's.
    pub lens: [usize; 2],
    /// Gains of queries and of keys, as long as `lens`.
    pub gains: [&'a [f32]; 2],
    /// Added to a stored gain before use.
    pub gain_offset: f32,
    /// Added to the mean square.
    pub eps: f32,
}

/// Operations per element, for choosing the thread count.
const COST: usize = 6;

impl QkNorm<'_> {
    /// Norms per row: of queries and of keys.
    #[inline(always)]
    fn counts(&self) -> [usize; 2] {
        [
            self.heads.q_width() / self.lens[0],
            self.heads.kv_width() / self.lens[1],
        ]
    }

    /// Norms per row.
    pub fn normalized(&self) -> usize {
        self.counts().iter().sum()
    }
}

/// `x` (rows, qkv_width) → `y` of the same shape; `scales` (rows, normalized) keeps 1/√(mean square + eps).
pub fn forward(norm: QkNorm, x: &[f32], y: &mut [f32], scales: &mut [f32]) {
    let (width, n) = (norm.heads.qkv_width(), norm.normalized());
    threads::rows2((y, width), (scales, n), COST * width, |first, y, scales| {
        let x = &x[first * width..][..y.len()];
        forward_rows(norm, x, y, scales);
    });
}

multiversion! {
    fn forward_rows(norm: QkNorm<'_>, x: &[f32], y: &mut [f32], scales: &mut [f32]) {
        let (width, n, counts) = (norm.heads.qkv_width(), norm.normalized(), norm.counts());
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for ((mut x, mut y), mut scales) in rows.zip(scales.chunks_exact_mut(n)) {
            for ((d, gain), count) in norm.lens.into_iter().zip(norm.gains).zip(counts) {
                let (of_x, rest_of_x) = x.split_at(count * d);
                let (of_y, rest_of_y) = y.split_at_mut(count * d);
                let (of_scales, rest_of_scales) = scales.split_at_mut(count);
                (x, y, scales) = (rest_of_x, rest_of_y, rest_of_scales);
                let all = of_x.chunks_exact(d).zip(of_y.chunks_exact_mut(d)).zip(of_scales);
                for ((x, y), scale) in all {
                    *scale = 1.0 / (sum1(x, |x| x * x) / d as f32 + norm.eps).sqrt();
                    for ((y, &x), &g) in y.iter_mut().zip(x).zip(gain) {
                        *y = x * *scale * (g + norm.gain_offset);
                    }
                }
            }
            // Values remain.
            y.copy_from_slice(x);
        }
    }
}

/// Inputs and scales of the forward.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a> {
    pub x: &'a [f32],
    pub scales: &'a [f32],
}

/// `dx` (rows, qkv_width) = the gradient with respect to the input, for `dy` of the same shape; `dgains`, queries before keys,
/// = (or +=) the gradients with respect to the gains.
pub fn backward(
    norm: QkNorm,
    saved: Saved,
    dy: &[f32],
    dx: &mut [f32],
    dgains: Option<(&mut [f32], Accumulation)>,
) {
    let (width, n) = (norm.heads.qkv_width(), norm.normalized());
    let gains = norm.lens[0] + norm.lens[1];
    let rows = dy.len() / width;
    assert_eq!(saved.x.len(), rows * width, "input of queries and keys");
    assert_eq!(saved.scales.len(), rows * n, "scales of queries and keys");
    if let Some((dgains, _)) = &dgains {
        assert_eq!(dgains.len(), gains, "gains of queries and keys");
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
    reduce::over_rows(rows, gains, 3 * COST * width, work, |sums| {
        if let Some((dgains, into)) = dgains {
            reduce::join(dgains, sums, into);
        }
    });
}

multiversion! {
    fn backward_rows(norm: QkNorm<'_>, saved: Saved<'_>, dy: &[f32], dx: &mut [f32], sums: &mut [f32]) {
        let (width, n, counts) = (norm.heads.qkv_width(), norm.normalized(), norm.counts());
        let rows = saved.x.chunks_exact(width).zip(saved.scales.chunks_exact(n));
        let gradients = dy.chunks_exact(width).zip(dx.chunks_exact_mut(width));
        let (of_queries, of_keys) = sums.split_at_mut(norm.lens[0]);
        let mut dgains = [of_queries, of_keys];
        for ((mut x, mut scales), (mut dy, mut dx)) in rows.zip(gradients) {
            for (part, dgain) in dgains.iter_mut().enumerate() {
                let (d, gain) = (norm.lens[part], norm.gains[part]);
                let (of_x, rest_of_x) = x.split_at(counts[part] * d);
                let (of_dy, rest_of_dy) = dy.split_at(counts[part] * d);
                let (of_dx, rest_of_dx) = dx.split_at_mut(counts[part] * d);
                let (of_scales, rest_of_scales) = scales.split_at(counts[part]);
                (x, dy, dx, scales) = (rest_of_x, rest_of_dy, rest_of_dx, rest_of_scales);
                let all = of_x.chunks_exact(d).zip(of_scales);
                let all = all.zip(of_dy.chunks_exact(d).zip(of_dx.chunks_exact_mut(d)));
                for ((x, &scale), (dy, dx)) in all {
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
            // Values remain.
            dx.copy_from_slice(dy);
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
                check(heads, [head_dim; 2], rows, offset);
                check(heads, [heads.q_width(), heads.kv_width()], rows, offset);
            }
        }
    }

    fn check(heads: Heads, lens: [usize; 2], rows: usize, gain_offset: f32) {
        let width = heads.qkv_width();
        let (x, dy) = (normal(rows * width, 0), normal(rows * width, 1));
        let (q, k) = (normal(lens[0], 2), normal(lens[1], 3));
        let lx = leaf(&x, &[1, rows, width]);
        let (lq, lk) = (leaf(&q, &[lens[0]]), leaf(&k, &[lens[1]]));
        let (exact, grads) = oracle(&[&lx, &lq, &lk], &dy, || {
            composite(heads, &lx, [&lq, &lk], 1e-5)
        });
        let kept = |gains: &[f32]| -> Vec<f32> { gains.iter().map(|g| g - gain_offset).collect() };
        let (q, k) = (kept(&q), kept(&k));
        let norm = QkNorm {
            heads,
            lens,
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
        let (mut dx, mut dgains) = (vec![f32::NAN; x.len()], vec![f32::NAN; lens[0] + lens[1]]);
        for (times, into) in [(1.0, Accumulation::Overwrite), (2.0, Accumulation::Add)] {
            backward(norm, saved, &dy, &mut dx, Some((&mut dgains, into)));
            assert_close("dx", &dx, &grads[0], 5e-6);
            let gains = grads[1].iter().chain(&grads[2]);
            let exact: Vec<f64> = gains.map(|x| times * x).collect();
            assert_close("dgains", &dgains, &exact, 5e-6);
        }
    }
}
