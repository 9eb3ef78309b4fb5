//! Segments of a sequence: the inputs of one key head and its value heads through convolution, SiLU and normalization, and back.

use super::chunk::{self, CHUNK, Gates, Keys, Shape};
use super::{GatedDelta, LENGTH_EPS, SEGMENT};
use crate::causal_conv::{Ring, Taps, copy, later, reach, silu, widened};
use crate::lanes::scratch::Carver;
use crate::math::{EXP_END, exp, sigmoid, softplus, sum1, sum2};
use crate::numbers::{Number, Values};
use crate::positions::Positions;
use crate::simd::multiversion;
use std::ops::Range;

/// One key head's part of the work: some of its value heads, in one sequence.
#[derive(Clone)]
pub struct Part {
    /// The sequence's rows.
    pub rows: Range<usize>,
    pub key_head: usize,
    pub value_heads: Range<usize>,
}

impl Part {
    /// Columns of the convolution: q, k, v.
    pub fn columns(&self, net: &GatedDelta) -> [Range<usize>; 3] {
        let sizes = net.sizes;
        let (dk, dv, q) = (
            sizes.key_dim,
            sizes.value_dim,
            self.key_head * sizes.key_dim,
        );
        let (k, v) = (sizes.keys() + q, 2 * sizes.keys());
        let values = v + self.value_heads.start * dv..v + self.value_heads.end * dv;
        [q..q + dk, k..k + dk, values]
    }

    /// Number of these columns: q and k, then v.
    pub fn width(&self, net: &GatedDelta) -> usize {
        2 * net.sizes.key_dim + self.value_heads.len() * net.sizes.value_dim
    }
}

/// Where the input is, and what comes before it.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub net: GatedDelta<'a>,
    pub wide: Values<'a>,
    pub positions: Positions<'a>,
    /// (conv_len − 1, channels): the inputs of the convolution before the rows, of one text.
    pub tail: Option<&'a [f32]>,
}

impl<'a> Source<'a> {
    /// Columns `columns` of a row of the input, widened into `buffer` if need be.
    pub fn read<'b>(&self, row: usize, columns: Range<usize>, buffer: &'b mut [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        let from = row * self.net.sizes.wide();
        widened(self.wide, from + columns.start..from + columns.end, buffer)
    }

    /// Tokens before `row` that the convolution reads.
    pub fn reach(&self, row: usize) -> usize {
        match self.tail {
            Some(_) => self.net.sizes.conv_len - 1,
            None => reach(self.positions, self.net.sizes.conv_len, row),
        }
    }

    /// Tokens after `row`, of a sequence that ends at `end`, that read it.
    pub fn later(&self, row: usize, end: usize) -> usize {
        later(self.positions, self.net.sizes.conv_len, row, end)
    }

    /// The inputs of rows `from`.. of a part, after those before them that the convolution reads.
    pub fn gather(&self, part: &Part, rows: Range<usize>, x: &mut [f32]) {
        let kept = self.net.sizes.conv_len - 1;
        let width = part.width(&self.net);
        for (i, x) in x.chunks_exact_mut(width).enumerate() {
            let mut to = x;
            for columns in part.columns(&self.net) {
                let (own, rest) = std::mem::take(&mut to).split_at_mut(columns.len());
                to = rest;
                // Row i is row i − kept of the segment.
                let at = rows.start + i;
                if at >= rows.end + kept {
                    return;
                } else if at >= kept + part.rows.start {
                    self.copy(at - kept, columns, own);
                } else if let Some(tail) = self.tail {
                    let at = (at - part.rows.start) * self.net.sizes.channels();
                    own.copy_from_slice(&tail[at + columns.start..at + columns.end]);
                } else {
                    own.fill(0.0);
                }
            }
        }
    }

    /// Copies columns of a row of the input as f32.
    pub fn copy(&self, row: usize, columns: Range<usize>, to: &mut [f32]) {
        let from = row * self.net.sizes.wide();
        copy(self.wide, from + columns.start..from + columns.end, to);
    }

    /// Gates of value head `head`: the share of the state that remains, and β, of up to a chunk of rows.
    pub fn gates(&self, head: usize, rows: Range<usize>) -> Gates {
        let (mut remains, mut beta) = ([1.0; CHUNK], [0.0; CHUNK]);
        for (t, row) in rows.enumerate() {
            let rate = self.rate(head, row);
            remains[t] = match self.begins(row) {
                true => 0.0,
                false => exp(rate.log_remains),
            };
            beta[t] = sigmoid(self.scalar(head, row, 0));
        }
        Gates::new(remains, beta)
    }

    /// Whether a document begins at `row`.
    fn begins(&self, row: usize) -> bool {
        self.tail.is_none() && self.positions.at(row) == 0
    }

    /// b (0) or a (1) of a row.
    fn scalar(&self, head: usize, row: usize, which: usize) -> f32 {
        let sizes = self.net.sizes;
        let from = sizes.channels() + sizes.values() + which * sizes.n_value_head;
        self.wide.get(row * sizes.wide() + from + head)
    }

    /// The decay of a row.
    pub fn rate(&self, head: usize, row: usize) -> Rate {
        let a = self.scalar(head, row, 1) + self.net.dt_bias[head];
        let factor = exp(self.net.a_log[head]);
        Rate {
            log_remains: -factor * softplus(a),
            slope: -factor * sigmoid(a),
        }
    }
}

/// The logarithm of the share that remains, and its derivative with respect to a.
pub struct Rate {
    pub log_remains: f32,
    pub slope: f32,
}

/// Scratch memory of a segment: inputs of the convolution, its sums, and values after SiLU; and the taps of the part.
pub struct Segment<'a> {
    /// (conv_len − 1 + SEGMENT, width).
    pub x: &'a mut [f32],
    /// (SEGMENT, width).
    pub sums: &'a mut [f32],
    /// (SEGMENT, width).
    pub y: &'a mut [f32],
    /// (conv_len, width): as of `Taps`.
    pub taps: &'a mut [f32],
}

impl<'a> Segment<'a> {
    pub fn scratch(len: usize, width: usize) -> usize {
        Carver::room(&[
            (len - 1 + SEGMENT) * width,
            SEGMENT * width,
            SEGMENT * width,
            len * width,
        ])
    }

    pub fn of(carver: &mut Carver<'a>, source: &Source, part: &Part) -> Segment<'a> {
        let (len, width) = (source.net.sizes.conv_len, part.width(&source.net));
        let segment = Segment {
            x: carver.take((len - 1 + SEGMENT) * width),
            sums: carver.take(SEGMENT * width),
            y: carver.take(SEGMENT * width),
            taps: carver.take(len * width),
        };
        let channels = part.columns(&source.net).into_iter().flatten();
        for (at, channel) in channels.enumerate() {
            let taps = &source.net.conv[channel * len..][..len];
            for (back, &tap) in taps.iter().rev().enumerate() {
                segment.taps[back * width + at] = tap;
            }
        }
        segment
    }

    /// Computes the values of some rows.
    pub fn compute(&mut self, source: &Source, part: &Part, rows: Range<usize>) {
        source.gather(part, rows.clone(), self.x);
        let kept = source.net.sizes.conv_len - 1;
        let width = part.width(&source.net);
        let taps = Taps::of(self.taps, width);
        let x = Ring::new(self.x, kept + SEGMENT, width);
        for (i, row) in rows.enumerate() {
            let columns = i * width..(i + 1) * width;
            let sums = &mut self.sums[columns.clone()];
            sums.fill(0.0);
            taps.add(&x, kept + i, source.reach(row), sums);
            silu(&mut self.y[columns], sums);
        }
    }

    /// Values of the segment's row `row`.
    pub fn row(&self, row: usize, width: usize) -> &[f32] {
        &self.y[row * width..][..width]
    }
}

/// Scratch memory of a chunk's queries and keys.
pub struct KeyRows<'a> {
    shape: Shape,
    q: &'a mut [f32],
    k: &'a mut [f32],
    turned_q: &'a mut [f32],
    turned_k: &'a mut [f32],
    qk: &'a mut [f32],
    kk: &'a mut [f32],
}

impl<'a> KeyRows<'a> {
    pub fn scratch(shape: Shape) -> usize {
        4 * CHUNK * shape.keys + 2 * CHUNK * CHUNK
    }

    pub fn of(carver: &mut Carver<'a>, shape: Shape) -> KeyRows<'a> {
        let mut take = || carver.take(CHUNK * shape.keys);
        let (q, k, turned_q, turned_k) = (take(), take(), take(), take());
        KeyRows {
            shape,
            q,
            k,
            turned_q,
            turned_k,
            qk: carver.take(CHUNK * CHUNK),
            kk: carver.take(CHUNK * CHUNK),
        }
    }

    /// Normalizes queries and keys of up to a chunk of rows, each q, then k, then more.
    pub fn load<'r>(&mut self, key_dim: usize, rows: impl Iterator<Item = &'r [f32]>) {
        self.q.fill(0.0);
        self.k.fill(0.0);
        let to = self.q.chunks_exact_mut(self.shape.keys);
        let to = to.zip(self.k.chunks_exact_mut(self.shape.keys));
        for ((q, k), row) in to.zip(rows) {
            let scale = 1.0 / (key_dim as f32).sqrt();
            normalize(&mut q[..key_dim], &row[..key_dim], scale);
            normalize(&mut k[..key_dim], &row[key_dim..2 * key_dim], 1.0);
        }
    }

    /// Computes the chunk's products.
    pub fn multiply(&mut self) {
        #[allow(unsafe_code)]
        // SAFETY: the dispatch picks only instructions that the machine has.
        unsafe {
            chunk::products(
                false,
                [&*self.q, &*self.k],
                [&mut *self.turned_q, &mut *self.turned_k],
                [&mut *self.qk, &mut *self.kk],
            );
        }
    }

    /// Valid after [`KeyRows::multiply`].
    pub fn keys(&self) -> Keys<'_> {
        Keys {
            q: self.q,
            k: self.k,
            turned_q: self.turned_q,
            turned_k: self.turned_k,
            qk: self.qk,
            kk: self.kk,
        }
    }

    /// The query and key of one token.
    pub fn token(&self, t: usize) -> [&[f32]; 2] {
        let row = t * self.shape.keys..(t + 1) * self.shape.keys;
        [&self.q[row.clone()], &self.k[row]]
    }
}

multiversion! {
    /// `y` = `scale` · x / |x|.
    fn normalize(y: &mut [f32], x: &[f32], scale: f32) {
        let scale = scale / (sum1(x, |x| x * x) + LENGTH_EPS).sqrt();
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x * scale;
        }
    }
}

multiversion! {
    /// `dx` = the gradient with respect to `x` of scale · x / |x|, for `dy`.
    pub fn normalize_backward(dx: &mut [f32], dy: &[f32], x: &[f32], scale: f32) {
        let r = 1.0 / (sum1(x, |x| x * x) + LENGTH_EPS).sqrt();
        let along = sum2(x, dy, |x, dy| x * dy) * r * r;
        for ((dx, &dy), &x) in dx.iter_mut().zip(dy).zip(x) {
            *dx = scale * r * (dy - x * along);
        }
    }
}

multiversion! {
    /// `out` = RMSNorm(`o`) ∘ SiLU(`z`).
    pub fn gated_norm<N: Number>(out: &mut [N], o: &[f32], z: &[f32], gain: &[f32], eps: f32) {
        let scale = 1.0 / (sum1(o, |o| o * o) / o.len() as f32 + eps).sqrt();
        let all = out.iter_mut().zip(o).zip(z.iter().zip(gain));
        for ((out, &o), (&z, &gain)) in all {
            *out = N::narrow(o * scale * gain * (z / (1.0 + exp(-z))));
        }
    }
}

multiversion! {
    /// Its gradients: `doutput` = that with respect to `o`, for `dout`; adds that of the gain to `dgain` and replaces `z` by
    /// its own.
    pub fn gated_norm_backward(
        doutput: &mut [f32],
        o: &[f32],
        z: &mut [f32],
        gain: &[f32],
        eps: f32,
        dout: &[f32],
        dgain: &mut [f32],
    ) {
        let n = o.len() as f32;
        let scale = 1.0 / (sum1(o, |o| o * o) / n + eps).sqrt();
        let all = doutput.iter_mut().zip(o).zip(z.iter_mut().zip(gain));
        for (((doutput, &o), (z, &gain)), (&dout, dgain)) in all.zip(dout.iter().zip(dgain)) {
            let e = 1.0 + exp(-*z);
            let value = *z / e;
            let s = if *z < EXP_END { 0.0 } else { 1.0 / e };
            let normal = o * scale;
            *dgain += dout * value * normal;
            *z = dout * normal * gain * (s + value * (1.0 - s));
            // For now with respect to the normalized output.
            *doutput = dout * gain * value;
        }
        let along = sum2(doutput, o, |d, o| d * o) * scale * scale / n;
        for (doutput, &o) in doutput.iter_mut().zip(o) {
            *doutput = scale * (*doutput - o * along);
        }
    }
}
