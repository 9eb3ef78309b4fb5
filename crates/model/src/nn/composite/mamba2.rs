//! Mamba 2 as transformers computes it (`modeling_granitemoehybrid.py`), token after token.

use super::Decoder;
use super::mixing::{BlockPast, softplus};
use crate::kernels::activation::{self, Activation};
use crate::kernels::norm::{self, NormKind};
use crate::kernels::positions::Positions;
use crate::nn::layout::Mamba2Spans;
use crate::nn::mixer::Mamba2Config;
use candle_core::{D, Result, Tensor};

impl Decoder<'_> {
    /// `h` (B, T, D) → (B, T, D).
    pub(super) fn mamba2(
        &self,
        (spans, net): (&Mamba2Spans, &Mamba2Config),
        h: &Tensor,
        (past, positions): (&mut BlockPast, Positions),
    ) -> Result<Tensor> {
        let (batch_size, seq_len, _) = h.dims3()?;
        let (inner, heads, groups) = (net.inner(), net.n_head, net.n_group);
        let wide = self.linear(&spans.wide, h)?;
        let mut end = 0;
        let mut part = |width: usize| {
            end += width;
            wide.narrow(D::Minus1, end - width, width)
        };
        let [z, xbc, dt] = [inner, net.sizes().channels(), heads].map(&mut part);
        let begins = self.begins(positions, batch_size, h)?;
        let xbc = self.conv((&spans.conv, net.conv_len), &xbc?, (past, positions))?;
        let xbc = activation::composite(Activation::Silu, &xbc)?;
        let per_head = (batch_size, seq_len, heads, net.head_dim);
        let x = xbc.narrow(D::Minus1, 0, inner)?.reshape(per_head)?;
        let grouped = |at: usize| {
            let width = groups * net.state_dim;
            let x = xbc.narrow(D::Minus1, inner + at * width, width)?;
            let x = x.reshape((batch_size, seq_len, groups, net.state_dim))?;
            // Each is shared by heads in turn.
            let shared = (batch_size, seq_len, groups, heads / groups, net.state_dim);
            let x = x.unsqueeze(3)?.broadcast_as(shared)?;
            x.reshape((batch_size, seq_len, heads, net.state_dim))
        };
        let (b, c) = (grouped(0)?, grouped(1)?);
        let mut dt = softplus(&dt?.broadcast_add(self.leaves.get(spans.dt_bias)?)?)?;
        if net.dt_min > 0.0 {
            dt = dt.maximum(net.dt_min)?;
        }
        if let Some(most) = net.dt_max {
            dt = dt.minimum(most)?;
        }
        let rate = self.leaves.get(spans.a_log)?.exp()?;
        let keep = dt.broadcast_mul(&rate)?.neg()?.exp()?;
        let keep = keep.broadcast_mul(&begins)?;
        let y = past.recur(&keep, [net.state_dim, net.head_dim], |at, state| {
            let (b, c) = (at(&b)?.unsqueeze(3)?, at(&c)?.unsqueeze(3)?);
            let new = at(&x)?.broadcast_mul(&at(&dt)?.unsqueeze(2)?)?;
            let state = (state + b.broadcast_mul(&new.unsqueeze(2)?)?)?;
            let y = state.broadcast_mul(&c)?.sum(2)?;
            Ok((state, y))
        })?;
        let passed = x.broadcast_mul(&self.leaves.get(spans.d)?.reshape((heads, 1))?)?;
        let y = (y + passed)?.reshape((batch_size, seq_len, inner))?;
        let y = (y * activation::composite(Activation::Silu, &z?)?)?;
        let (gain, eps) = (self.leaves.get(spans.norm)?, self.config.norm.eps());
        let gains = gain.chunk(groups, 0)?;
        let parts = y.chunk(groups, D::Minus1)?;
        let normed: Vec<Tensor> = parts
            .iter()
            .zip(&gains)
            .map(|(part, gain)| norm::composite(NormKind::Rms, part, gain, None, eps))
            .collect::<Result<_>>()?;
        self.linear(&spans.out, &Tensor::cat(&normed, D::Minus1)?)
    }
}
