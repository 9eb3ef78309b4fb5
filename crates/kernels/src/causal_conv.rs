//! Causal depthwise convolution, row by row: each channel is a weighted sum of its last few values. What goes in and what is
//! done with the sum is up to the mixers that have one: `short_conv`, `gated_delta` and `mamba2`.

use super::math::{EXP_END, exp};
use super::matmul::Accumulation;
use super::numbers::{Number, Values};
use super::positions::Positions;
use super::simd::multiversion;
use candle_core::{Result, Tensor};
use std::cell::Cell;

/// `x` (B, T, C), `weight` (C, k) → (B, T, C): token t is Σ_j weight[k−1−j] ∘ x[t−j], within its document.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(x: &Tensor, weight: &Tensor, positions: Positions) -> Result<Tensor> {
    let (batch_size, seq_len, _) = x.dims3()?;
    let len = weight.dim(1)?;
    let rows = positions.first.map_or(1, |_| batch_size);
    let at: Vec<usize> = (0..rows * seq_len).map(|i| positions.at(i)).collect();
    let mut sum = x.broadcast_mul(&weight.narrow(1, len - 1, 1)?.squeeze(1)?)?;
    for back in 1..len.min(seq_len) {
        let is_within: Vec<f64> = at.iter().map(|&at| f64::from(at >= back)).collect();
        let is_within = Tensor::from_vec(is_within, (rows, seq_len, 1), x.device())?;
        let earlier = x.pad_with_zeros(1, back, 0)?.narrow(1, 0, seq_len)?;
        let tap = weight.narrow(1, len - 1 - back, 1)?.squeeze(1)?;
        let share = earlier.broadcast_mul(&is_within.to_dtype(x.dtype())?)?;
        sum = (sum + share.broadcast_mul(&tap)?)?;
    }
    Ok(sum)
}

thread_local! {
    /// The taps of one convolution.
    static TAPS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with the taps of a `weight` (C, k) as rows (k, C), the current token's first.
pub(super) fn with_taps<R>(weight: &[f32], len: usize, work: impl FnOnce(Taps) -> R) -> R {
    // Moved out while in use: a waiting thread may be given other work.
    let mut rows = TAPS.take();
    let channels = weight.len() / len;
    if rows.len() < weight.len() {
        rows.resize(weight.len(), 0.0);
    }
    for (channel, taps) in weight.chunks_exact(len).enumerate() {
        for (back, &tap) in taps.iter().rev().enumerate() {
            rows[back * channels + channel] = tap;
        }
    }
    let taps = Taps {
        rows: &rows[..weight.len()],
        channels,
    };
    let result = work(taps);
    TAPS.set(rows);
    result
}

/// `dweight` (C, k) = (or +=) the gradients of the taps, as rows (k, C) like [`Taps`].
pub(super) fn join_taps(dweight: &mut [f32], dtaps: &[f32], len: usize, into: Accumulation) {
    let channels = dweight.len() / len;
    for (channel, dweight) in dweight.chunks_exact_mut(len).enumerate() {
        for (back, dweight) in dweight.iter_mut().rev().enumerate() {
            let gradient = dtaps[back * channels + channel];
            *dweight = match into {
                Accumulation::Overwrite => gradient,
                Accumulation::Add => *dweight + gradient,
            };
        }
    }
}

/// The taps of all channels, C.
#[derive(Clone, Copy)]
pub(super) struct Taps<'a> {
    /// (k, C): row j multiplies the value of j tokens before.
    rows: &'a [f32],
    channels: usize,
}

impl<'a> Taps<'a> {
    /// Of rows (k, `channels`).
    pub fn of(rows: &'a [f32], channels: usize) -> Taps<'a> {
        Taps { rows, channels }
    }

    fn back(&self, back: usize) -> &'a [f32] {
        &self.rows[back * self.channels..][..self.channels]
    }

    /// `y` += Σ over `reach` + 1 values up to row `at`.
    pub fn add(&self, values: &Ring, at: usize, reach: usize, y: &mut [f32]) {
        for back in 0..=reach {
            add_product(y, self.back(back), values.at(at - back));
        }
    }

    /// `dx` = the gradient with respect to the value of row `at`: from the gradients `dy` of the sums of the `later` + 1 rows
    /// that read it.
    pub fn backward(&self, dy: &Ring, at: usize, later: usize, dx: &mut [f32]) {
        dx.fill(0.0);
        for back in 0..=later {
            add_product(dx, self.back(back), dy.at(at + back));
        }
    }

    /// `dtaps`, rows of all channels, += the gradient of row `at`, for the gradient `dy` with respect to its sum.
    pub fn add_gradient(
        &self,
        values: &Ring,
        at: usize,
        reach: usize,
        dy: &[f32],
        dtaps: &mut [f32],
    ) {
        for back in 0..=reach {
            let dtap = &mut dtaps[back * self.channels..][..dy.len()];
            add_product(dtap, dy, values.at(at - back));
        }
    }
}

/// How many tokens before `row` the convolution reads: those of its document.
pub(super) fn reach(positions: Positions, len: usize, row: usize) -> usize {
    positions.at(row).min(len - 1)
}

/// How many tokens after `row`, of `rows`, read it.
pub(super) fn later(positions: Positions, len: usize, row: usize, rows: usize) -> usize {
    (1..len)
        .take_while(|&back| row + back < rows && positions.at(row + back) >= back)
        .count()
}

/// The last rows of a matrix, as many as the convolution reads.
pub(super) struct Ring<'a> {
    rows: &'a mut [f32],
    len: usize,
    width: usize,
}

impl<'a> Ring<'a> {
    /// `rows` has room for `len` rows of `width`.
    pub fn new(rows: &'a mut [f32], len: usize, width: usize) -> Self {
        assert_eq!(rows.len(), len * width, "rows of a convolution");
        Ring { rows, len, width }
    }

    pub fn at(&self, row: usize) -> &[f32] {
        &self.rows[row % self.len * self.width..][..self.width]
    }

    pub fn at_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.rows[row % self.len * self.width..][..self.width]
    }
}

/// The values of `range` as f32, widened into `buffer` if they are stored otherwise.
pub(super) fn widened<'a>(
    x: Values<'a>,
    range: std::ops::Range<usize>,
    buffer: &'a mut [f32],
) -> &'a [f32] {
    match x.range(range) {
        Values::F32(x) => x,
        Values::Bf16(x) => {
            let buffer = &mut buffer[..x.len()];
            widen(x, buffer);
            buffer
        }
    }
}

/// The values of `range` as f32, copied.
pub(super) fn copy(x: Values, range: std::ops::Range<usize>, to: &mut [f32]) {
    match x.range(range) {
        Values::F32(x) => to.copy_from_slice(x),
        Values::Bf16(x) => widen(x, to),
    }
}

multiversion! {
    /// `to` = `from`, as `to` is stored.
    pub(super) fn store<N: Number>(to: &mut [N], from: &[f32]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = N::narrow(from);
        }
    }
}

/// `sum` = the bias of a convolution, before its taps are added.
pub(super) fn begin(bias: Option<&[f32]>, sum: &mut [f32]) {
    match bias {
        Some(bias) => sum.copy_from_slice(bias),
        None => sum.fill(0.0),
    }
}

/// `tail` (k−1, `channels`), the last values of a text, oldest first, becomes that after `rows` further ones, of which `value` writes
/// those that are kept.
pub(super) fn append(
    tail: &mut [f32],
    channels: usize,
    rows: usize,
    mut value: impl FnMut(usize, &mut [f32]),
) {
    let kept = tail.len() / channels;
    let new = rows.min(kept);
    tail.copy_within(new * channels.., 0);
    let last = tail[(kept - new) * channels..].chunks_exact_mut(channels);
    for (row, to) in (rows - new..rows).zip(last) {
        value(row, to);
    }
}

multiversion! {
    fn widen<N: Number>(x: &[N], to: &mut [f32]) {
        for (to, x) in to.iter_mut().zip(x) {
            *to = x.wide();
        }
    }
}

multiversion! {
    /// `y` += `a` ∘ `b`.
    pub(super) fn add_product(y: &mut [f32], a: &[f32], b: &[f32]) {
        for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
            *y += a * b;
        }
    }
}

multiversion! {
    /// `y` = `a` ∘ `b`, stored as `y` is.
    pub(super) fn product<N: Number>(y: &mut [N], a: &[f32], b: &[f32]) {
        for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
            *y = N::narrow(a * b);
        }
    }
}

multiversion! {
    /// `y` = x · sigmoid(x).
    pub(super) fn silu(y: &mut [f32], x: &[f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x / (1.0 + exp(-x));
        }
    }
}

multiversion! {
    /// `dx` = `dy` · SiLU's derivative at `x`.
    pub(super) fn silu_backward(dx: &mut [f32], dy: &[f32], x: &[f32]) {
        for ((dx, &dy), &x) in dx.iter_mut().zip(dy).zip(x) {
            let e = 1.0 + exp(-x);
            // s + x s (1 − s)
            let value = x / e;
            let s = if x < EXP_END { 0.0 } else { 1.0 / e };
            *dx = dy * (s + value * (1.0 - s));
        }
    }
}
