//! Causal self-attention with any number of key/value heads per query head: multi-head, grouped-query (Ainslie et al.
//! 2023) and multi-query (Shazeer 2019). Rotary positions are applied here.

use super::rotary;
use candle_core::{D, Result, Tensor};

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
