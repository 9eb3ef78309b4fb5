//! The gated short convolution of LFM2 (Liquid AI 2025, arXiv 2511.23404): c ∘ (conv(b ∘ x) + bias), with a causal depthwise
//! convolution over the last few tokens of a document. The backward recomputes it: nothing is kept but the input.

use super::causal_conv::{
    Ring, Taps, append, begin, join_taps, later, product, reach, widened, with_taps,
};
use super::matmul::Accumulation;
use super::numbers::{Number, Values, ValuesMut};
use super::positions::Positions;
use super::reduce;
use super::threads::{self, SharedSlice};
use std::cell::Cell;
use std::ops::Range;

/// Its parameters.
#[derive(Debug, Clone, Copy)]
pub struct ShortConv<'a> {
    /// (C, k): the last of a channel's k multiplies the current token.
    pub weight: &'a [f32],
    /// (C).
    pub bias: Option<&'a [f32]>,
    /// Tokens that the convolution reads, the current one included: k.
    pub len: usize,
}

impl ShortConv<'_> {
    /// Channels, C.
    pub fn channels(&self) -> usize {
        self.weight.len() / self.len
    }

    /// FLOPs per row, for choosing the thread count.
    fn cost(&self) -> usize {
        (2 * self.len + 4) * self.channels()
    }

    /// Rejects inputs that do not fit together.
    fn check(&self, rows: usize, wide: usize) {
        let channels = self.channels();
        assert_eq!(self.weight.len(), channels * self.len, "taps");
        assert_eq!(wide, rows * 3 * channels, "input of a short convolution");
        assert!(
            self.bias.is_none_or(|bias| bias.len() == channels),
            "bias of a short convolution"
        );
    }
}

thread_local! {
    /// Rows of one task. Moved out while in use: a waiting thread may be given other work.
    static ROWS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with `len` numbers of scratch memory.
fn with_scratch(len: usize, work: impl FnOnce(&mut [f32])) {
    let mut rows = ROWS.take();
    if rows.len() < len {
        rows.resize(len, 0.0);
    }
    work(&mut rows[..len]);
    ROWS.set(rows);
}

/// What is known about the tokens before a row.
#[derive(Clone, Copy)]
enum Before<'a> {
    /// Those of its document.
    Document(Positions<'a>),
    /// Rows of one text, after a state: (k−1, C), the last values of b ∘ x.
    State(&'a [f32]),
}

/// `wide` (rows, 3C) → `out` (rows, C). Positions start at 0.
pub fn forward(conv: ShortConv, positions: Positions, wide: Values, out: ValuesMut) {
    with_taps(conv.weight, conv.len, |taps| {
        let before = Before::Document(positions);
        match out {
            ValuesMut::F32(out) => forward_of(conv, taps, before, wide, out),
            ValuesMut::Bf16(out) => forward_of(conv, taps, before, wide, out),
        }
    });
}

/// The same for further rows of one text; `state` (k−1, C) holds the last values of b ∘ x, oldest first, zeros before the first
/// token, and is replaced by those after the rows.
pub fn forward_after(conv: ShortConv, state: &mut [f32], wide: Values, out: ValuesMut) {
    let (channels, kept) = (conv.channels(), conv.len - 1);
    assert_eq!(state.len(), kept * channels, "state of a short convolution");
    let rows = out.len() / channels;
    with_taps(conv.weight, conv.len, |taps| {
        let before = Before::State(state);
        match out {
            ValuesMut::F32(out) => forward_of(conv, taps, before, wide, out),
            ValuesMut::Bf16(out) => forward_of(conv, taps, before, wide, out),
        }
    });
    with_scratch(3 * channels, |buffer| {
        append(state, channels, rows, |row, value| {
            gated(wide, row, channels, buffer, value);
        });
    });
}

/// `value` = b ∘ x of a row.
fn gated(wide: Values, row: usize, channels: usize, buffer: &mut [f32], value: &mut [f32]) {
    let wide = widened(
        wide,
        row * 3 * channels..(row + 1) * 3 * channels,
        &mut buffer[..3 * channels],
    );
    product(value, &wide[..channels], &wide[2 * channels..]);
}

fn forward_of<N: Number>(conv: ShortConv, taps: Taps, before: Before, wide: Values, out: &mut [N]) {
    let channels = conv.channels();
    conv.check(out.len() / channels, wide.len());
    threads::rows1(out, channels, conv.cost(), |first, out| {
        with_scratch((conv.len + 4) * channels, |scratch| {
            let (ring, rest) = scratch.split_at_mut(conv.len * channels);
            let (sum, buffer) = rest.split_at_mut(channels);
            let mut ring = Ring::new(ring, conv.len, channels);
            // Rows of the ring are counted from the first of the state's.
            let kept = conv.len - 1;
            let value = |at: usize, ring: &mut Ring, buffer: &mut [f32]| match before {
                Before::State(state) if at < kept => {
                    ring.at_mut(at)
                        .copy_from_slice(&state[at * channels..][..channels]);
                }
                _ => gated(wide, at - kept, channels, buffer, ring.at_mut(at)),
            };
            let reach = |row: usize| match before {
                Before::Document(positions) => reach(positions, conv.len, row),
                Before::State(_) => kept,
            };
            for back in (1..=reach(first)).rev() {
                value(first + kept - back, &mut ring, buffer);
            }
            for (i, out) in out.chunks_exact_mut(channels).enumerate() {
                let row = first + i;
                value(row + kept, &mut ring, buffer);
                begin(conv.bias, sum);
                taps.add(&ring, row + kept, reach(row), sum);
                let c = (row * 3 + 1) * channels..(row * 3 + 2) * channels;
                product(out, widened(wide, c, buffer), sum);
            }
        });
    });
}

/// Gradients with respect to the parameters, unless they are frozen.
#[derive(Debug)]
pub struct ParamGradients<'a> {
    /// (C, k).
    pub weight: Option<&'a mut [f32]>,
    /// (C).
    pub bias: Option<&'a mut [f32]>,
    pub into: Accumulation,
}

/// `dwide` (rows, 3C) = the gradient with respect to the input `wide`, for `dout` (rows, C), and in the same pass the gradients
/// with respect to taps and bias.
pub fn backward(
    conv: ShortConv,
    positions: Positions,
    wide: Values,
    dout: Values,
    dwide: ValuesMut,
    params: ParamGradients,
) {
    with_taps(conv.weight, conv.len, |taps| {
        let task = Backward {
            conv,
            taps,
            positions,
            wide,
            dout,
        };
        match dwide {
            ValuesMut::F32(dwide) => task.run(dwide, params),
            ValuesMut::Bf16(dwide) => task.run(dwide, params),
        }
    });
}

struct Backward<'a> {
    conv: ShortConv<'a>,
    taps: Taps<'a>,
    positions: Positions<'a>,
    wide: Values<'a>,
    dout: Values<'a>,
}

impl Backward<'_> {
    fn run<N: Number>(&self, dwide: &mut [N], params: ParamGradients) {
        let (conv, channels) = (self.conv, self.conv.channels());
        let rows = self.dout.len() / channels;
        conv.check(rows, self.wide.len());
        assert_eq!(dwide.len(), self.wide.len(), "short convolution gradient");
        let dwide = SharedSlice::new(dwide);
        let of_taps = conv.weight.len();
        let width = match (&params.weight, &params.bias) {
            (None, None) => 0,
            _ => of_taps + channels,
        };
        let work = |rows: Range<usize>, sums: &mut [f32]| {
            let width = 3 * channels;
            #[allow(unsafe_code)]
            // SAFETY: each call owns its rows of dwide.
            let dwide = unsafe { dwide.range(rows.start * width..rows.end * width) };
            self.rows(rows, dwide, sums);
        };
        reduce::over_rows(rows, width, 3 * conv.cost(), work, |sums| {
            if let Some(dweight) = params.weight {
                join_taps(dweight, &sums[..of_taps], conv.len, params.into);
            }
            if let Some(dbias) = params.bias {
                reduce::join(dbias, &sums[of_taps..], params.into);
            }
        });
    }

    /// `dwide` of some rows; `sums`, (k, C) of the taps and (C) of the bias, may be empty.
    fn rows<N: Number>(&self, rows: Range<usize>, dwide: &mut [N], sums: &mut [f32]) {
        let (len, channels) = (self.conv.len, self.conv.channels());
        let all = self.dout.len() / channels;
        with_scratch((2 * len + 5) * channels, |scratch| {
            let (values, rest) = scratch.split_at_mut(len * channels);
            let (gradients, rest) = rest.split_at_mut(len * channels);
            let (sum, rest) = rest.split_at_mut(channels);
            let (buffer, other) = rest.split_at_mut(3 * channels);
            let mut values = Ring::new(values, len, channels);
            // Gradients with respect to the sums.
            let mut gradients = Ring::new(gradients, len, channels);
            let (wide, dout) = (self.wide, self.dout);
            let of_wide = |row: usize, part: usize| {
                (row * 3 + part) * channels..(row * 3 + part + 1) * channels
            };
            let of_dout = |row: usize| row * channels..(row + 1) * channels;
            for back in (1..=reach(self.positions, len, rows.start)).rev() {
                let row = rows.start - back;
                gated(wide, row, channels, buffer, values.at_mut(row));
            }
            let mut next = rows.start;
            for (row, dwide) in rows.zip(dwide.chunks_exact_mut(3 * channels)) {
                let later = later(self.positions, len, row, all);
                for row in next.max(row)..=row + later {
                    let c = widened(wide, of_wide(row, 1), buffer);
                    let dout = widened(dout, of_dout(row), other);
                    product(gradients.at_mut(row), c, dout);
                }
                next = next.max(row + later + 1);
                gated(wide, row, channels, buffer, values.at_mut(row));
                let reach = reach(self.positions, len, row);
                begin(self.conv.bias, sum);
                self.taps.add(&values, row, reach, sum);
                let (db, rest) = dwide.split_at_mut(channels);
                let (dc, dx) = rest.split_at_mut(channels);
                product(dc, widened(dout, of_dout(row), other), sum);
                if !sums.is_empty() {
                    let (dtaps, dbias) = sums.split_at_mut(self.conv.weight.len());
                    let gradient = gradients.at(row);
                    self.taps.add_gradient(&values, row, reach, gradient, dtaps);
                    reduce::add_part(dbias, gradient);
                }
                self.taps.backward(&gradients, row, later, sum);
                product(db, sum, widened(wide, of_wide(row, 2), buffer));
                product(dx, sum, widened(wide, of_wide(row, 0), buffer));
            }
        });
    }
}

#[cfg(test)]
mod tests;
