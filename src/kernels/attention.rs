//! Causal self-attention with any number of key/value heads per query head: multi-head, grouped-query (Ainslie et al.
//! 2023) and multi-query (Shazeer 2019). Rotary positions are applied here.
//!
//! The fused form works on blocks of queries: no T × T matrix, the log of each row's sum of exponentials is kept, and the
//! backward computes the weights again (Dao et al. 2022, arXiv 2205.14135).
#![allow(unsafe_code)]

use super::math::{exp, max, sum1, sum2};
use super::matmul::{Arithmetic, Compute, Destination, Into, Mat, matmul, matmul_into};
use super::simd::multiversion;
use super::{rotary, threads};
use candle_core::{D, Result, Tensor};
use std::cell::RefCell;

/// Heads and their width. A row of `qkv` holds n_head queries, then n_kv_head keys, then n_kv_head values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    pub n_head: usize,
    pub n_kv_head: usize,
    pub head_dim: usize,
}

impl Heads {
    /// Width of a row of `qkv`.
    pub fn qkv_width(&self) -> usize {
        (self.n_head + 2 * self.n_kv_head) * self.head_dim
    }

    /// Width of all queries, and of the output.
    pub fn q_width(&self) -> usize {
        self.n_head * self.head_dim
    }

    /// Width of all keys, and of all values.
    pub fn kv_width(&self) -> usize {
        self.n_kv_head * self.head_dim
    }
}

/// Keys and values of earlier tokens, each (B, T_past, n_kv_head, head_dim), rotated already.
pub type Past = Option<(Tensor, Tensor)>;

/// `qkv` (B, T, qkv_width) → output (B, T, q_width) and the keys and values of past and present.
/// Token t attends to the past and to tokens 0..=t; `theta` rotates queries and keys.
pub fn composite(
    heads: Heads,
    qkv: &Tensor,
    theta: Option<f64>,
    past: &Past,
) -> Result<(Tensor, (Tensor, Tensor))> {
    let (batch_size, seq_len, _) = qkv.dims3()?;
    let Heads {
        n_head,
        n_kv_head,
        head_dim,
    } = heads;
    let start = match past {
        Some((k, _)) => k.dim(1)?,
        None => 0,
    };
    let part = |from: usize, heads: usize| {
        qkv.narrow(D::Minus1, from, heads * head_dim)?
            .reshape((batch_size, seq_len, heads, head_dim))
    };
    let turn = |x: Tensor| match theta {
        Some(theta) => rotary::composite(&x, theta, start),
        None => Ok(x),
    };
    let q = turn(part(0, n_head)?)?;
    let mut k = turn(part(heads.q_width(), n_kv_head)?)?;
    let mut v = part(heads.q_width() + heads.kv_width(), n_kv_head)?;
    if let Some((past_k, past_v)) = past {
        k = Tensor::cat(&[past_k, &k], 1)?;
        v = Tensor::cat(&[past_v, &v], 1)?;
    }
    let total = start + seq_len;
    let group = n_head / n_kv_head;
    // (B, n_kv_head, group · T, head_dim): the queries that share a key head stand below each other.
    let q = q.transpose(1, 2)?.contiguous()?.reshape((
        batch_size,
        n_kv_head,
        group * seq_len,
        head_dim,
    ))?;
    let kt = k.permute((0, 2, 3, 1))?.contiguous()?;
    let scores = (q.matmul(&kt)? * (1.0 / (head_dim as f64).sqrt()))?;
    let scores = scores
        .reshape((batch_size, n_head, seq_len, total))?
        .broadcast_add(&causal_mask(seq_len, start, &scores)?)?;
    let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
    let out = weights
        .reshape((batch_size, n_kv_head, group * seq_len, total))?
        .matmul(&v.transpose(1, 2)?.contiguous()?)?
        .reshape((batch_size, n_head, seq_len, head_dim))?
        .transpose(1, 2)?
        .reshape((batch_size, seq_len, heads.q_width()))?;
    Ok((out, (k, v)))
}

/// (T, start + T): 0 where token t may look, −∞ where the future lies.
fn causal_mask(seq_len: usize, start: usize, like: &Tensor) -> Result<Tensor> {
    let mask: Vec<f32> = (0..seq_len)
        .flat_map(|t| {
            (0..start + seq_len).map(move |s| {
                if s > start + t {
                    f32::NEG_INFINITY
                } else {
                    0.0
                }
            })
        })
        .collect();
    Tensor::from_vec(mask, (seq_len, start + seq_len), &candle_core::Device::Cpu)?
        .to_dtype(like.dtype())?
        .to_device(like.device())
}

/// Queries that are computed together.
const BLOCK: usize = 64;

thread_local! {
    /// Weights of one block and their gradients, each up to BLOCK × T.
    static SCRATCH: RefCell<(Vec<f32>, Vec<f32>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// A pointer that tasks share because each writes places of its own.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

// SAFETY: every use below writes elements that belong to its task alone.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The pointer `offset` elements further on; a method, so that closures take hold of the whole wrapper.
    ///
    /// # Safety
    /// The offset must lie within the allocation.
    unsafe fn at(self, offset: usize) -> *mut f32 {
        // SAFETY: passed on to the caller.
        unsafe { self.0.add(offset) }
    }
}

/// Fused forward over rotated `qkv` (B · T, qkv_width): `out` (B · T, q_width), `lse` (B, n_head, T).
pub fn forward(
    arithmetic: Arithmetic,
    heads: Heads,
    seq_len: usize,
    qkv: &[f32],
    out: &mut [f32],
    lse: &mut [f32],
) {
    let (q_width, width) = (heads.q_width(), heads.qkv_width());
    let batch_size = qkv.len() / (seq_len * width);
    assert_eq!(
        out.len(),
        batch_size * seq_len * q_width,
        "attention output"
    );
    assert_eq!(
        lse.len(),
        batch_size * heads.n_head * seq_len,
        "attention lse"
    );
    let (out, lse) = (Shared(out.as_mut_ptr()), Shared(lse.as_mut_ptr()));
    let cost = seq_len * seq_len * heads.head_dim;
    threads::tasks(batch_size * heads.n_head, cost, |task| {
        let (b, h) = (task / heads.n_head, task % heads.n_head);
        let rows = &qkv[b * seq_len * width..][..seq_len * width];
        let (q, k, v) = heads.columns(rows, h);
        let text = Text {
            arithmetic,
            head_dim: heads.head_dim,
            q,
            q_stride: width,
            k,
            v,
            kv_stride: width,
            new: seq_len,
            past: 0,
        };
        // SAFETY: the task owns head h of sequence b in both outputs, whose sizes were checked.
        unsafe {
            let out = out.at(b * seq_len * q_width + h * heads.head_dim);
            let lse = std::slice::from_raw_parts_mut(lse.at(task * seq_len), seq_len);
            forward_head(&text, out, q_width, Some(lse));
        }
    });
}

/// Fused forward of `new` tokens of one text after `past` others, without a backward. `q` (new, q_width) is rotated;
/// `keys` and `values` hold, for each key/value head, `capacity` rows of head_dim, of which past + new are filled.
pub fn forward_cached(
    arithmetic: Arithmetic,
    heads: Heads,
    (past, new): (usize, usize),
    q: (&[f32], usize),
    (keys, values, capacity): (&[f32], &[f32], usize),
    out: &mut [f32],
) {
    let (head_dim, q_width) = (heads.head_dim, heads.q_width());
    assert_eq!(out.len(), new * q_width, "attention output");
    let out = Shared(out.as_mut_ptr());
    threads::tasks(heads.n_head, new * (past + new) * head_dim, |h| {
        let from = h / (heads.n_head / heads.n_kv_head) * capacity * head_dim;
        let text = Text {
            arithmetic,
            head_dim,
            q: &q.0[h * head_dim..],
            q_stride: q.1,
            k: &keys[from..from + (past + new) * head_dim],
            v: &values[from..from + (past + new) * head_dim],
            kv_stride: head_dim,
            new,
            past,
        };
        // SAFETY: the task owns head h of the output, whose size was checked.
        unsafe { forward_head(&text, out.at(h * head_dim), q_width, None) };
    });
}

impl Heads {
    /// Columns of `rows` (T, qkv_width) where query head `h` and its keys and values begin.
    fn columns<'a>(&self, rows: &'a [f32], h: usize) -> (&'a [f32], &'a [f32], &'a [f32]) {
        let (q, k, v) = self.column_offsets(h);
        (&rows[q..], &rows[k..], &rows[v..])
    }

    fn column_offsets(&self, h: usize) -> (usize, usize, usize) {
        let kv = h / (self.n_head / self.n_kv_head);
        let k = self.q_width() + kv * self.head_dim;
        (h * self.head_dim, k, k + self.kv_width())
    }
}

/// One head of one text: `new` queries over past + new keys and values.
struct Text<'a> {
    arithmetic: Arithmetic,
    head_dim: usize,
    q: &'a [f32],
    q_stride: usize,
    k: &'a [f32],
    v: &'a [f32],
    kv_stride: usize,
    new: usize,
    past: usize,
}

impl<'a> Text<'a> {
    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// Queries from..to.
    fn queries(&self, from: usize, to: usize) -> Mat<'a> {
        let q = &self.q[from * self.q_stride..];
        Mat::strided(q, to - from, self.head_dim, self.q_stride)
    }

    /// The first `n` keys.
    fn keys(&self, n: usize) -> Mat<'a> {
        Mat::strided(self.k, n, self.head_dim, self.kv_stride)
    }

    /// The first `n` values.
    fn values(&self, n: usize) -> Mat<'a> {
        Mat::strided(self.v, n, self.head_dim, self.kv_stride)
    }
}

/// # Safety
/// `out` must be valid for `text.new` rows of head_dim elements, `out_stride` apart, that nobody else touches.
unsafe fn forward_head(text: &Text, out: *mut f32, out_stride: usize, mut lse: Option<&mut [f32]>) {
    let compute = Compute::one(text.arithmetic);
    SCRATCH.with_borrow_mut(|(scores, _)| {
        for from in (0..text.new).step_by(BLOCK) {
            let to = (from + BLOCK).min(text.new);
            let n = text.past + to;
            scores.resize(scores.len().max((to - from) * n), 0.0);
            let scores = &mut scores[..(to - from) * n];
            let (q, k) = (text.queries(from, to), text.keys(n));
            matmul(scores, q, k.t(), text.scale(), Into::Overwrite, compute);
            let lse = lse.as_deref_mut().map(|lse| &mut lse[from..to]);
            softmax_block(scores, n, text.past + from, lse.unwrap_or_default());
            let weights = Mat::new(scores, to - from, n);
            // SAFETY: rows from..to of the caller's block.
            unsafe {
                let destination = Destination {
                    start: out.add(from * out_stride),
                    row_stride: out_stride,
                    into: Into::Overwrite,
                };
                matmul_into(destination, weights, text.values(n), 1.0, compute);
            }
        }
    });
}

multiversion! {
    /// Softmax of each row over its first `visible + i + 1` of `n` scores; the rest becomes 0. `lse` may be empty.
    fn softmax_block(scores: &mut [f32], n: usize, visible: usize, lse: &mut [f32]) {
        for (i, row) in scores.chunks_exact_mut(n).enumerate() {
            let (row, future) = row.split_at_mut(visible + i + 1);
            future.fill(0.0);
            let top = max(row);
            for x in row.iter_mut() {
                *x = exp(*x - top);
            }
            let sum = sum1(row, |x| x);
            let share = 1.0 / sum;
            for x in row.iter_mut() {
                *x *= share;
            }
            if let Some(lse) = lse.get_mut(i) {
                *lse = top + sum.ln();
            }
        }
    }
}

/// What the forward leaves for the backward.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a> {
    /// Rotated, (B · T, qkv_width).
    pub qkv: &'a [f32],
    /// (B, n_head, T).
    pub lse: &'a [f32],
}

/// `dqkv` (B · T, qkv_width) = the gradient by the rotated queries, keys and values, for `dout` (B · T, q_width).
pub fn backward(
    arithmetic: Arithmetic,
    heads: Heads,
    seq_len: usize,
    saved: Saved,
    dout: &[f32],
    dqkv: &mut [f32],
) {
    let (q_width, width) = (heads.q_width(), heads.qkv_width());
    let batch_size = saved.qkv.len() / (seq_len * width);
    assert_eq!(dqkv.len(), saved.qkv.len(), "attention gradient");
    let group = heads.n_head / heads.n_kv_head;
    let cost = 3 * group * seq_len * seq_len * heads.head_dim;
    let dqkv = Shared(dqkv.as_mut_ptr());
    threads::tasks(batch_size * heads.n_kv_head, cost, |task| {
        let (b, kv) = (task / heads.n_kv_head, task % heads.n_kv_head);
        let rows = &saved.qkv[b * seq_len * width..][..seq_len * width];
        for member in 0..group {
            let h = kv * group + member;
            let (q, k, v) = heads.columns(rows, h);
            let text = Text {
                arithmetic,
                head_dim: heads.head_dim,
                q,
                q_stride: width,
                k,
                v,
                kv_stride: width,
                new: seq_len,
                past: 0,
            };
            let lse = &saved.lse[(b * heads.n_head + h) * seq_len..][..seq_len];
            let dout = &dout[b * seq_len * q_width + h * heads.head_dim..];
            let dout = Mat::strided(dout, seq_len, heads.head_dim, q_width);
            let (dq, dk, dv) = heads.column_offsets(h);
            let first = if member == 0 {
                Into::Overwrite
            } else {
                Into::Accumulate
            };
            // SAFETY: the task owns key/value head kv of sequence b and the query heads that share it.
            unsafe {
                let at = |column| dqkv.at(b * seq_len * width + column);
                backward_head(&text, lse, dout, [at(dq), at(dk), at(dv)], first);
            }
        }
    });
}

/// # Safety
/// The three pointers must be valid for `text.new` rows of head_dim elements, `text.kv_stride` apart, that nobody else
/// touches; those of keys and values initialised where `first` accumulates.
unsafe fn backward_head(
    text: &Text,
    lse: &[f32],
    dout: Mat,
    [dq, dk, dv]: [*mut f32; 3],
    first: Into,
) {
    let blocks = text.new.div_ceil(BLOCK);
    let compute = Compute::one(text.arithmetic);
    SCRATCH.with_borrow_mut(|(weights, dscores)| {
        // Backwards: the last block reaches all keys, so it overwrites and the others add.
        for block in (0..blocks).rev() {
            let (from, to) = (block * BLOCK, ((block + 1) * BLOCK).min(text.new));
            let n = to;
            let size = (to - from) * n;
            weights.resize(weights.len().max(size), 0.0);
            dscores.resize(dscores.len().max(size), 0.0);
            let (weights, dscores) = (&mut weights[..size], &mut dscores[..size]);
            let (q, k) = (text.queries(from, to), text.keys(n));
            let dout = dout.rows(from, to);
            let scale = text.scale();
            matmul(weights, q, k.t(), scale, Into::Overwrite, compute);
            matmul(
                dscores,
                dout,
                text.values(n).t(),
                1.0,
                Into::Overwrite,
                compute,
            );
            softmax_backward_block(weights, dscores, n, from, &lse[from..to], scale);
            let weights = Mat::new(weights, to - from, n);
            let dscores = Mat::new(dscores, to - from, n);
            let into = if block + 1 == blocks {
                first
            } else {
                Into::Accumulate
            };
            let to = |start, into| Destination {
                start,
                row_stride: text.kv_stride,
                into,
            };
            // SAFETY: the first n rows of keys and values and rows from..to of the queries are the caller's.
            unsafe {
                matmul_into(to(dv, into), weights.t(), dout, 1.0, compute);
                matmul_into(to(dk, into), dscores.t(), q, 1.0, compute);
                let dq = dq.add(from * text.q_stride);
                matmul_into(to(dq, Into::Overwrite), dscores, k, 1.0, compute);
            }
        }
    });
}

multiversion! {
    /// `weights` holds scores and becomes softmax weights p; `dweights` becomes the gradient by the raw products:
    /// p (dp − Σ p dp) · scale. The future of each row becomes 0 in both.
    fn softmax_backward_block(
        weights: &mut [f32],
        dweights: &mut [f32],
        n: usize,
        visible: usize,
        lse: &[f32],
        scale: f32,
    ) {
        let rows = weights.chunks_exact_mut(n).zip(dweights.chunks_exact_mut(n));
        for (i, ((p, dp), &lse)) in rows.zip(lse).enumerate() {
            let (p, future) = p.split_at_mut(visible + i + 1);
            future.fill(0.0);
            let (dp, future) = dp.split_at_mut(visible + i + 1);
            future.fill(0.0);
            for p in p.iter_mut() {
                *p = exp(*p - lse);
            }
            let mean = sum2(p, dp, |p, dp| p * dp);
            for (dp, &p) in dp.iter_mut().zip(&*p) {
                *dp = p * (*dp - mean) * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{assert_close, leaf, normal, oracle};

    fn heads(n_head: usize, n_kv_head: usize, head_dim: usize) -> Heads {
        Heads {
            n_head,
            n_kv_head,
            head_dim,
        }
    }

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        let cases = [
            (heads(1, 1, 1), 1, 1),
            (heads(4, 4, 8), 2, 13),
            (heads(4, 2, 6), 2, 64),
            (heads(3, 1, 16), 1, 65),
            (heads(2, 2, 5), 3, 150),
        ];
        for (heads, batch_size, seq_len) in cases {
            let rows = batch_size * seq_len;
            let qkv = normal(rows * heads.qkv_width(), 0);
            let dout = normal(rows * heads.q_width(), 1);
            let lq = leaf(&qkv, &[batch_size, seq_len, heads.qkv_width()]);
            let (exact, grads) =
                oracle(&[&lq], &dout, || Ok(composite(heads, &lq, None, &None)?.0));
            let mut out = vec![9.0; dout.len()];
            let mut lse = vec![9.0; batch_size * heads.n_head * seq_len];
            forward(Arithmetic::F32, heads, seq_len, &qkv, &mut out, &mut lse);
            assert_close("out", &out, &exact, 2e-6);
            let mut dqkv = vec![f32::NAN; qkv.len()];
            let saved = Saved {
                qkv: &qkv,
                lse: &lse,
            };
            backward(Arithmetic::F32, heads, seq_len, saved, &dout, &mut dqkv);
            assert_close("dqkv", &dqkv, &grads[0], 5e-6);
        }
    }

    #[test]
    fn the_future_has_no_influence() {
        let heads = heads(2, 1, 4);
        let run = |qkv: &[f32]| {
            let (mut out, mut lse) = (vec![0.0; 70 * 8], vec![0.0; 2 * 70]);
            forward(Arithmetic::F32, heads, 70, qkv, &mut out, &mut lse);
            out
        };
        let mut qkv = normal(70 * heads.qkv_width(), 0);
        let before = run(&qkv);
        qkv[66 * heads.qkv_width()..].fill(5.0);
        let after = run(&qkv);
        assert_eq!(before[..66 * 8], after[..66 * 8]);
        assert_ne!(before[66 * 8..], after[66 * 8..]);
    }

    #[test]
    fn cached_attention_equals_the_last_rows_of_the_whole() {
        let heads = heads(4, 2, 4);
        let (total, new, capacity) = (70, 3, 80);
        let width = heads.qkv_width();
        let qkv = normal(total * width, 0);
        let (mut out, mut lse) = (vec![0.0; total * 16], vec![0.0; 4 * total]);
        forward(Arithmetic::F32, heads, total, &qkv, &mut out, &mut lse);
        let mut cache = [vec![9.0; 2 * capacity * 4], vec![9.0; 2 * capacity * 4]];
        for t in 0..total {
            for kv in 0..2 {
                for (part, cache) in cache.iter_mut().enumerate() {
                    let from = t * width + 16 + part * 8 + kv * 4;
                    cache[(kv * capacity + t) * 4..][..4].copy_from_slice(&qkv[from..from + 4]);
                }
            }
        }
        let mut last = vec![0.0; new * 16];
        let q = &qkv[(total - new) * width..];
        let [keys, values] = &cache;
        let cached = (keys.as_slice(), values.as_slice(), capacity);
        forward_cached(
            Arithmetic::F32,
            heads,
            (total - new, new),
            (q, width),
            cached,
            &mut last,
        );
        let exact: Vec<f64> = out[(total - new) * 16..]
            .iter()
            .map(|&x| f64::from(x))
            .collect();
        assert_close("cached", &last, &exact, 1e-6);
    }
}
