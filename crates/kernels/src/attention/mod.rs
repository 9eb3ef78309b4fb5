//! Causal self-attention with any number of key/value heads per query head: multi-head, grouped-query (Ainslie et al.
//! 2023) and multi-query (Shazeer 2019). RoPE is applied here.
//!
//! The fused form works on tiles of queries × keys: no T × T matrix; the log-sum-exp of each row is stored, and
//! the backward recomputes the weights (Dao et al. 2022, arXiv 2205.14135). Fully masked tiles are skipped, so
//! the work is that of the causal half, of the window, or of the documents.

mod backward;
mod cached;
mod few;
mod forward;
mod row;
mod scores;
mod sinks;
#[cfg(test)]
mod tests;
mod tile;

pub use backward::{Saved, backward};
pub use cached::{Piece, forward_cached};
pub use forward::forward;
pub use row::scores_of;
pub use scores::Scores;
pub use sinks::backward_sinks;

use super::positions::Positions;
use super::rotary::{self, Rotation};
use super::softcap;
use candle_core::{D, Result, Tensor};

/// Heads and head size. A row of `qkv` is n_head queries, then n_kv_head keys, then n_kv_head values.
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

    /// Total width of the queries, and of the output.
    pub fn q_width(&self) -> usize {
        self.n_head * self.head_dim
    }

    /// Total width of the keys, and of the values.
    pub fn kv_width(&self) -> usize {
        self.n_kv_head * self.head_dim
    }
}

/// Masking beyond causality: the token's own document, and a sliding window within it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mask<'a> {
    /// Token t attends to at most the `window` tokens up to itself (Beltagy et al. 2020). At least 1.
    pub window: Option<usize>,
    /// (B, T): the first position of its sequence each token may attend to: the start of its document in packed batches.
    /// At most the token's own position.
    pub first: Option<&'a [u32]>,
}

impl Mask<'_> {
    /// Rejects a mask that does not fit `rows` tokens.
    fn check(&self, rows: usize) {
        assert!(
            self.window != Some(0),
            "a window of 0 tokens attends to nothing"
        );
        if let Some(first) = self.first {
            assert_eq!(first.len(), rows, "first visible positions");
        }
    }

    /// The first position that token `t` of sequence `b` attends to, of `seq_len`.
    #[inline]
    fn first_visible(&self, b: usize, t: usize, seq_len: usize) -> usize {
        let document = self
            .first
            .map_or(0, |first| first[b * seq_len + t] as usize);
        let window = self
            .window
            .map_or(0, |window| (t + 1).saturating_sub(window));
        document.max(window).min(t)
    }
}

/// The configuration of the fused forms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes<'a> {
    pub heads: Heads,
    pub seq_len: usize,
    pub mask: Mask<'a>,
    pub scores: Scores<'a>,
}

impl Sizes<'_> {
    /// Plain causal attention.
    pub fn causal(heads: Heads, seq_len: usize) -> Self {
        Sizes {
            heads,
            seq_len,
            mask: Mask::default(),
            scores: Scores::default(),
        }
    }
}

/// Keys and values of earlier tokens, each (B, T_past, n_kv_head, head_dim), already rotated.
pub type PastKeyValues = Option<(Tensor, Tensor)>;

/// `qkv` (B, T, qkv_width) → output (B, T, q_width) and the keys and values of past and present.
/// Token t attends to the past and to tokens 0..=t; `rotation` rotates queries and keys.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(
    heads: Heads,
    qkv: &Tensor,
    rotation: Option<&Rotation>,
    past: &PastKeyValues,
) -> Result<(Tensor, (Tensor, Tensor))> {
    composite_masked(
        heads,
        qkv,
        rotation,
        past,
        (Mask::default(), Scores::default(), None),
    )
}

/// The same with a mask, whose `first` is allowed only without a past; positions restart where it does. Sinks are those given
/// apart, (n_head), which have a gradient.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite_masked(
    heads: Heads,
    qkv: &Tensor,
    rotation: Option<&Rotation>,
    past: &PastKeyValues,
    (mask, how, sinks): (Mask, Scores, Option<&Tensor>),
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
    let positions = Positions {
        seq_len,
        start,
        first: mask.first,
    };
    let turn = |x: Tensor| match rotation {
        Some(rotation) => rotary::composite(&x, rotation, positions),
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
    // (B, n_kv_head, group · T, head_dim): the queries that share a key head are stacked.
    let q = q.transpose(1, 2)?.contiguous()?.reshape((
        batch_size,
        n_kv_head,
        group * seq_len,
        head_dim,
    ))?;
    let kt = k.permute((0, 2, 3, 1))?.contiguous()?;
    let scale = how.scale.unwrap_or(1.0 / (head_dim as f64).sqrt());
    let mut scores = (q.matmul(&kt)? * scale)?.reshape((batch_size, n_head, seq_len, total))?;
    if let Some(cap) = how.softcap {
        scores = softcap::composite(&scores, cap)?;
    }
    if let Some(slopes) = how.slopes {
        scores = scores.broadcast_sub(&distances(slopes, (seq_len, start), &scores)?)?;
    }
    let scores =
        scores.broadcast_add(&mask_tensor(mask, (batch_size, seq_len, start), &scores)?)?;
    let weights = match sinks {
        None => super::softmax::composite(&scores)?,
        Some(sinks) => {
            let sinks = sinks
                .reshape((1, n_head, 1, 1))?
                .broadcast_as((batch_size, n_head, seq_len, 1))?;
            let all = Tensor::cat(&[&scores, &sinks], D::Minus1)?;
            super::softmax::composite(&all)?
                .narrow(D::Minus1, 0, total)?
                .contiguous()?
        }
    };
    let out = weights
        .reshape((batch_size, n_kv_head, group * seq_len, total))?
        .matmul(&v.transpose(1, 2)?.contiguous()?)?
        .reshape((batch_size, n_head, seq_len, head_dim))?
        .transpose(1, 2)?
        .reshape((batch_size, seq_len, heads.q_width()))?;
    Ok((out, (k, v)))
}

/// (1, n_head, T, start + T): slope · distance, 0 for future keys.
fn distances(slopes: &[f32], (seq_len, start): (usize, usize), like: &Tensor) -> Result<Tensor> {
    let total = start + seq_len;
    let mut values = Vec::with_capacity(slopes.len() * seq_len * total);
    for slope in slopes {
        for t in start..total {
            values.extend((0..total).map(|key| slope * t.saturating_sub(key) as f32));
        }
    }
    let shape = (1, slopes.len(), seq_len, total);
    Tensor::from_vec(values, shape, &candle_core::Device::Cpu)?
        .to_dtype(like.dtype())?
        .to_device(like.device())
}

/// (B or 1, 1, T, start + T): 0 where token t may attend, −∞ elsewhere.
fn mask_tensor(
    mask: Mask,
    (batch_size, seq_len, start): (usize, usize, usize),
    like: &Tensor,
) -> Result<Tensor> {
    if start > 0 && mask.first.is_some() {
        candle_core::bail!("attention: documents and a past do not go together")
    }
    let total = start + seq_len;
    let batch_size = mask.first.map_or(1, |_| batch_size);
    let mut values = vec![f32::NEG_INFINITY; batch_size * seq_len * total];
    for (row, values) in values.chunks_exact_mut(total).enumerate() {
        let (b, t) = (row / seq_len, start + row % seq_len);
        let first = mask.first_visible(b, t, seq_len);
        values[first..=t].fill(0.0);
    }
    Tensor::from_vec(
        values,
        (batch_size, 1, seq_len, total),
        &candle_core::Device::Cpu,
    )?
    .to_dtype(like.dtype())?
    .to_device(like.device())
}

impl Heads {
    /// First columns of query head `h` and of its keys and values in a row of `qkv`.
    fn columns(&self, h: usize) -> (usize, usize, usize) {
        let kv = h / (self.n_head / self.n_kv_head);
        let k = self.q_width() + kv * self.head_dim;
        (h * self.head_dim, k, k + self.kv_width())
    }
}
