//! Attention, and the mixers that blocks have in its place, as transformers computes them (`modeling_lfm2.py`,
//! `modeling_qwen3_5.py`).

use super::Decoder;
use crate::kernels::activation::Activation;
use crate::kernels::attention::{Mask, PastKeyValues, Scores};
use crate::kernels::norm::NormKind;
use crate::kernels::positions::Positions;
use crate::kernels::rotary::Rotation;
use crate::kernels::{activation, attention, causal_conv, gate, norm, qk_norm};
use crate::nn::layout::{
    AttentionSpans, ConvSpans, GatedDeltaSpans, LatentSpans, MixingSpans, ShortConvSpans, Span,
};
use crate::nn::mixer::{GatedDeltaNetConfig, Mixer, MixerConfig};
use crate::nn::mla::MlaConfig;
use candle_core::{D, Result, Tensor, bail};

/// Added to the sum of squares before the root, where queries and keys get length 1.
const LENGTH_EPS: f64 = 1e-6;

/// What is kept of the earlier tokens of a text.
#[derive(Clone, Default)]
pub(crate) struct Past {
    pub(super) tokens: usize,
    pub(super) blocks: Vec<BlockPast>,
}

/// The same of one block.
#[derive(Clone, Default)]
pub(super) struct BlockPast {
    /// Of attention.
    attention: PastKeyValues,
    /// The last inputs of a mixer's convolution, (B, at most taps − 1, channels).
    conv: Option<Tensor>,
    /// A gated delta net's state, (B, value heads, key_dim, value_dim), or Mamba 2's, (B, heads, state_dim, head_dim).
    pub(super) state: Option<Tensor>,
}

/// Takes the current token's slice of a tensor (B, T, …): (B, …).
pub(super) type At<'a> = dyn Fn(&Tensor) -> Result<Tensor> + 'a;

impl BlockPast {
    /// Carries a matrix per head, of `shape`, from token to token. `keep` (B, T, heads) is the share of it that remains, 0 where a
    /// document begins; then `step` gives the next one, (B, heads, shape), and the token's output, (B, heads, shape's last).
    /// Returns all outputs, (B, T, heads, shape's last).
    pub(super) fn recur(
        &mut self,
        keep: &Tensor,
        shape: [usize; 2],
        step: impl Fn(&At, Tensor) -> Result<(Tensor, Tensor)>,
    ) -> Result<Tensor> {
        let (batch_size, seq_len, heads) = keep.dims3()?;
        let mut state = match self.state.take() {
            Some(state) => state,
            None => {
                let all = (batch_size, heads, shape[0], shape[1]);
                Tensor::zeros(all, keep.dtype(), keep.device())?
            }
        };
        let mut outs = Vec::with_capacity(seq_len);
        for t in 0..seq_len {
            let at = |x: &Tensor| x.narrow(1, t, 1)?.squeeze(1);
            let keep = at(keep)?.unsqueeze(2)?.unsqueeze(3)?;
            let (next, out) = step(&at, state.broadcast_mul(&keep)?)?;
            state = next;
            outs.push(out);
        }
        self.state = Some(state);
        Tensor::stack(&outs, 1)
    }
}

/// log(1 + exp(x)), without overflow.
pub(super) fn softplus(x: &Tensor) -> Result<Tensor> {
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}

/// `x` (…, features) with length 1.
fn normalized(x: &Tensor) -> Result<Tensor> {
    let squares = (x.sqr()?.sum_keepdim(D::Minus1)? + LENGTH_EPS)?;
    x.broadcast_div(&squares.sqrt()?)
}

/// Features (…, n) that are paired with their neighbour → firsts of all pairs, then seconds.
fn pairs_apart(x: &Tensor) -> Result<Tensor> {
    let mut shape = x.dims().to_vec();
    let last = shape.pop().unwrap_or(0);
    shape.extend([last / 2, 2]);
    let pairs = x.reshape(shape)?.transpose(D::Minus1, D::Minus2)?;
    pairs.contiguous()?.flatten_from(D::Minus2)
}

impl Decoder<'_> {
    /// `h` (B, T, D) → what the block adds to the residual stream, (B, T, D).
    pub(super) fn mixed(
        &self,
        (layer, spans): (usize, &MixingSpans),
        h: &Tensor,
        (past, positions): (&mut BlockPast, Positions),
        rotations: &[Option<Rotation>; 2],
    ) -> Result<Tensor> {
        match (spans, self.config.mixer(layer)) {
            (MixingSpans::Attention(spans), None) => {
                let past = (&mut past.attention, positions.first);
                self.attention((layer, spans), h, past, rotations)
            }
            (MixingSpans::Latent(spans), None) => {
                let Some(mla) = &self.config.mla else {
                    bail!("block {layer} has the parameters of latent attention")
                };
                let past = (&mut past.attention, positions.first);
                self.latent((layer, spans, mla), h, past, rotations)
            }
            (MixingSpans::ShortConv(spans), Some(mixer)) => {
                self.short_conv(spans, mixer.conv_len(), h, (past, positions))
            }
            (MixingSpans::GatedDelta(spans), Some(MixerConfig::GatedDeltaNet(net))) => {
                self.gated_delta((spans, net), h, (past, positions))
            }
            (MixingSpans::Mamba2(spans), Some(MixerConfig::Mamba2(net))) => {
                self.mamba2((spans, net), h, (past, positions))
            }
            _ => bail!("block {layer} has the parameters of another mixer"),
        }
    }

    fn attention(
        &self,
        (layer, spans): (usize, &AttentionSpans),
        h: &Tensor,
        (past, first): (&mut PastKeyValues, Option<&[u32]>),
        rotations: &[Option<Rotation>; 2],
    ) -> Result<Tensor> {
        let heads = self.shape.heads();
        let mut qkv = self.linear(&spans.qkv, h)?;
        if let Some([q, k]) = spans.qk_norm {
            let (q, k) = (self.gain(q)?, self.gain(k)?);
            qkv = qk_norm::composite(heads, &qkv, [&q, &k], self.config.norm.eps())?;
        }
        let of = (layer, spans.sinks);
        let mut mixed = self.attended(of, &qkv, (past, first), rotations)?;
        if let Some(gate) = &spans.gate {
            mixed = gate::composite(&mixed, &self.linear(gate, h)?)?;
        }
        self.linear(&spans.out, &mixed)
    }

    /// `qkv` (B, T, qkv_width), not rotated → (B, T, q_width).
    fn attended(
        &self,
        (layer, sinks): (usize, Option<Span>),
        qkv: &Tensor,
        (past, first): (&mut PastKeyValues, Option<&[u32]>),
        rotations: &[Option<Rotation>; 2],
    ) -> Result<Tensor> {
        let heads = self.shape.heads();
        let window = self.config.window(layer);
        let slopes = self.config.position.slopes(heads.n_head);
        let scores = Scores {
            scale: self.config.score_scale(),
            softcap: self.config.attention_softcap,
            slopes: slopes.as_deref(),
            sinks: None,
        };
        let sinks = match sinks {
            Some(span) => Some(self.leaves.get(span)?),
            None => None,
        };
        let rotation = rotations[usize::from(window.is_some())].as_ref();
        let rotation = rotation.filter(|_| self.config.rotates(layer));
        let how = (Mask { window, first }, scores, sinks);
        let (mixed, present) = attention::composite_masked(heads, qkv, rotation, past, how)?;
        *past = Some(present);
        Ok(mixed)
    }

    /// Latent attention as that of heads of one width, rotated features first and zeros last; of earlier tokens keys and values are
    /// kept.
    fn latent(
        &self,
        (layer, spans, mla): (usize, &LatentSpans, &MlaConfig),
        h: &Tensor,
        past: (&mut PastKeyValues, Option<&[u32]>),
        rotations: &[Option<Rotation>; 2],
    ) -> Result<Tensor> {
        let (batch_size, seq_len, _) = h.dims3()?;
        let (n_head, head_dim) = (self.shape.n_head, mla.head_dim());
        let (nope, rope, eps) = (mla.nope_dim, mla.rope_dim, mla.norm_eps);
        let wide = self.linear(&spans.wide, h)?;
        let q_width = wide.dim(D::Minus1)? - mla.kept();
        let mut q = wide.narrow(D::Minus1, 0, q_width)?;
        if let Some((gain, linear)) = &spans.q {
            let normed = norm::composite(NormKind::Rms, &q, self.leaves.get(*gain)?, None, eps)?;
            q = self.linear(linear, &normed)?;
        }
        let latent = wide.narrow(D::Minus1, q_width, mla.kv_rank)?;
        let gain = self.leaves.get(spans.kv_norm)?;
        let latent = norm::composite(NormKind::Rms, &latent, gain, None, eps)?;
        let of_head = |width| (batch_size, seq_len, n_head, width);
        let kv = self.linear(&spans.kv, &latent)?;
        let kv = kv.reshape(of_head(nope + mla.v_dim))?;
        let key = wide.narrow(D::Minus1, q_width + mla.kv_rank, rope)?;
        let key = pairs_apart(&key)?;
        let key = key.unsqueeze(2)?.broadcast_as(of_head(rope))?;
        let q = q.reshape(of_head(mla.qk_dim()))?;
        let padded = |parts: &[&Tensor]| {
            let parts = Tensor::cat(parts, D::Minus1)?;
            let missing = head_dim - parts.dim(D::Minus1)?;
            let parts = parts.pad_with_zeros(D::Minus1, 0, missing)?;
            parts.reshape((batch_size, seq_len, n_head * head_dim))
        };
        let q_rope = pairs_apart(&q.narrow(3, nope, rope)?)?;
        let q_nope = q.narrow(3, 0, nope)?;
        let (k_nope, v) = (kv.narrow(3, 0, nope)?, kv.narrow(3, nope, mla.v_dim)?);
        let qkv = [
            padded(&[&q_rope, &q_nope])?,
            padded(&[&key.contiguous()?, &k_nope])?,
            padded(&[&v])?,
        ];
        let qkv = Tensor::cat(&qkv, D::Minus1)?;
        let mixed = self.attended((layer, None), &qkv, past, rotations)?;
        let mixed = mixed.reshape(of_head(head_dim))?.narrow(3, 0, mla.v_dim)?;
        let mixed = mixed.reshape((batch_size, seq_len, n_head * mla.v_dim))?;
        self.linear(&spans.out, &mixed)
    }

    /// out(c ∘ conv(b ∘ x)).
    fn short_conv(
        &self,
        spans: &ShortConvSpans,
        taps: usize,
        h: &Tensor,
        past: (&mut BlockPast, Positions),
    ) -> Result<Tensor> {
        let parts = self.linear(&spans.wide, h)?.chunk(3, D::Minus1)?;
        let [b, c, x] = &parts[..] else {
            bail!("a short convolution has three inputs")
        };
        let sum = self.conv((&spans.conv, taps), &(b * x)?, past)?;
        self.linear(&spans.out, &(c * sum)?)
    }

    /// A causal depthwise convolution of `x` (B, T, channels), and its bias.
    pub(super) fn conv(
        &self,
        (spans, taps): (&ConvSpans, usize),
        x: &Tensor,
        (past, positions): (&mut BlockPast, Positions),
    ) -> Result<Tensor> {
        let weight = self.leaves.get(spans.weight)?;
        let weight = weight.reshape((spans.weight.len() / taps, taps))?;
        let seq_len = positions.seq_len;
        let (all, positions) = match past.conv.take() {
            Some(earlier) => {
                let all = Tensor::cat(&[&earlier, x], 1)?;
                // What precedes the rows that are kept is padding or not read.
                let positions = Positions {
                    seq_len: all.dim(1)?,
                    start: taps,
                    first: None,
                };
                (all, positions)
            }
            None => (
                x.clone(),
                Positions {
                    start: 0,
                    ..positions
                },
            ),
        };
        let len = all.dim(1)?;
        let kept = len.min(taps - 1);
        past.conv = match kept {
            0 => None,
            kept => Some(all.narrow(1, len - kept, kept)?),
        };
        let sum = causal_conv::composite(&all, &weight, positions)?;
        let sum = sum.narrow(1, len - seq_len, seq_len)?;
        match spans.bias {
            Some(bias) => sum.broadcast_add(self.leaves.get(bias)?),
            None => Ok(sum),
        }
    }

    /// Token after token.
    fn gated_delta(
        &self,
        (spans, net): (&GatedDeltaSpans, &GatedDeltaNetConfig),
        h: &Tensor,
        (past, positions): (&mut BlockPast, Positions),
    ) -> Result<Tensor> {
        let (batch_size, seq_len, d_model) = h.dims3()?;
        let (values, heads) = (net.values(), net.n_value_head);
        let wide = self.linear(&spans.wide, h)?;
        let mut end = 0;
        let mut part = |width: usize| {
            end += width;
            wide.narrow(D::Minus1, end - width, width)
        };
        let [qkv, z, b, a] = [net.conv_channels(d_model), values, heads, heads].map(&mut part);
        let qkv = self.conv((&spans.conv, net.conv_len), &qkv?, (past, positions))?;
        let qkv = activation::composite(Activation::Silu, &qkv)?;
        let keyed = |at: usize| {
            let (n, width) = (net.n_key_head, net.key_dim);
            let x = qkv.narrow(D::Minus1, at * net.keys(), net.keys())?;
            let x = normalized(&x.reshape((batch_size, seq_len, n, width))?)?;
            // Each is shared by value heads in turn.
            let shared = (batch_size, seq_len, n, heads / n, width);
            let x = x.unsqueeze(3)?.broadcast_as(shared)?;
            x.reshape((batch_size, seq_len, heads, width))
        };
        let q = (keyed(0)? / (net.key_dim as f64).sqrt())?;
        let k = keyed(1)?;
        let per_head = (batch_size, seq_len, heads, net.value_dim);
        let v = qkv
            .narrow(D::Minus1, 2 * net.keys(), values)?
            .reshape(per_head)?;
        let beta = gate::sigmoid_composite(&b?)?;
        let steps = softplus(&a?.broadcast_add(self.leaves.get(spans.dt_bias)?)?)?;
        let keep = steps
            .broadcast_mul(&self.leaves.get(spans.a_log)?.exp()?)?
            .neg()?
            .exp()?;
        let begins = self.begins(positions, batch_size, h)?;
        let keep = keep.broadcast_mul(&begins)?;
        let out = past.recur(&keep, [net.key_dim, net.value_dim], |at, state| {
            let (q, k, v) = (at(&q)?.unsqueeze(3)?, at(&k)?.unsqueeze(3)?, at(&v)?);
            let held = state.broadcast_mul(&k)?.sum(2)?;
            let change = (v - held)?.broadcast_mul(&at(&beta)?.unsqueeze(2)?)?;
            let state = (state + k.broadcast_mul(&change.unsqueeze(2)?)?)?;
            let out = state.broadcast_mul(&q)?.sum(2)?;
            Ok((state, out))
        })?;
        let (gain, eps) = (self.leaves.get(spans.norm)?, self.config.norm.eps());
        let out = norm::composite(NormKind::Rms, &out, gain, None, eps)?;
        let gate = activation::composite(Activation::Silu, &z?.reshape(per_head)?)?;
        let out = (out * gate)?.reshape((batch_size, seq_len, values))?;
        self.linear(&spans.out, &out)
    }

    /// 0 for the first token of each document, 1 for others, (B, T, 1).
    pub(super) fn begins(
        &self,
        positions: Positions,
        batch_size: usize,
        h: &Tensor,
    ) -> Result<Tensor> {
        let n = batch_size * positions.seq_len;
        let keeps = |at: usize| f64::from(u8::from(positions.at(at) > 0));
        let keeps: Vec<f64> = (0..n).map(keeps).collect();
        let keeps = Tensor::from_vec(keeps, (batch_size, positions.seq_len, 1), h.device())?;
        keeps.to_dtype(h.dtype())
    }
}
