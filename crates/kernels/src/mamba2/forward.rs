//! The forward: the scan over sequences and heads distributed over the threads, between the convolution and the norm.
#![allow(unsafe_code)]

use super::chunk::{self, Gates, Keys, Token};
use super::conv::{self, Source};
use super::head::Mixed;
use super::{Buffers, CHUNK, Mamba2, Part, norm};
use crate::causal_conv::{append, copy};
use crate::lanes::scratch::with_scratch;
use crate::numbers::{Values, ValuesMut};
use crate::positions::Positions;
use crate::threads::{self, SharedSlice};
use std::ops::Range;

/// Tokens up to which a chunk is computed token by token.
const FEW: usize = 4;

/// What a text's earlier tokens leave; zeros before the first.
#[derive(Debug)]
pub struct State<'a> {
    /// (conv_len − 1, channels): the last inputs of the convolution, oldest first.
    pub conv: &'a mut [f32],
    /// See [`super::Sizes::state`].
    pub heads: &'a mut [f32],
}

/// `wide` (rows, [`super::Sizes::wide`]) → `out` (rows, inner). Positions start at 0.
pub fn forward(net: Mamba2, positions: Positions, wide: Values, buffers: Buffers, out: ValuesMut) {
    let rows = net.check(wide.len());
    assert_eq!(rows % positions.seq_len, 0, "rows of whole sequences");
    let source = Source {
        net,
        wide,
        positions,
        tail: None,
    };
    if let Some(states) = &buffers.states {
        let kept = net.sizes.kept(rows, positions.seq_len);
        assert_eq!(states.len(), kept, "kept states");
    }
    passes(source, buffers, out, None);
}

/// The same for further rows of one text: after `state`, which becomes that after the rows.
pub fn forward_after(net: Mamba2, state: State, wide: Values, buffers: Buffers, out: ValuesMut) {
    let sizes = net.sizes;
    let (rows, channels, kept) = (net.check(wide.len()), sizes.channels(), sizes.conv_len - 1);
    assert_eq!(state.conv.len(), kept * channels, "state of a convolution");
    assert_eq!(state.heads.len(), sizes.state(), "state of Mamba 2");
    if rows == 0 {
        return;
    }
    let source = Source {
        net,
        wide,
        positions: Positions::whole_rows(rows),
        tail: Some(state.conv),
    };
    passes(source, buffers, out, Some(state.heads));
    append(state.conv, channels, rows, |row, to| {
        let from = row * sizes.wide() + sizes.inner();
        copy(wide, from..from + channels, to);
    });
}

fn passes(source: Source, buffers: Buffers, out: ValuesMut, heads: Option<&mut [f32]>) {
    let (net, wide) = (source.net, source.wide);
    let rows = wide.len() / net.sizes.wide();
    let Buffers { xbc, y, states } = buffers;
    let lens = [xbc.len(), y.len()];
    let own = [net.sizes.channels(), net.sizes.inner()];
    assert_eq!(lens, own.map(|width| rows * width), "buffers of Mamba 2");
    conv::forward(source, xbc);
    scan(source, xbc, y, states, heads);
    match out {
        ValuesMut::F32(out) => norm::forward(net, wide, y, out),
        ValuesMut::Bf16(out) => norm::forward(net, wide, y, out),
    }
}

fn scan(
    source: Source,
    xbc: &[f32],
    y: &mut [f32],
    states: Option<&mut [f32]>,
    heads: Option<&mut [f32]>,
) {
    let (net, sizes) = (source.net, source.net.sizes);
    let (seq_len, n_part) = (source.positions.seq_len, sizes.n_part());
    let rows = y.len() / sizes.inner();
    let task = Task {
        source,
        mixed: Mixed { net, xbc },
        y: SharedSlice::new(y),
        kept: states.map(SharedSlice::new),
        heads: heads.map(SharedSlice::new),
    };
    threads::tasks(rows / seq_len * n_part, seq_len * sizes.cost(), |at| {
        let (b, part) = (at / n_part, sizes.part(at % n_part));
        task.run(&part, b * seq_len..(b + 1) * seq_len);
    });
}

struct Task<'a> {
    source: Source<'a>,
    mixed: Mixed<'a>,
    y: SharedSlice<f32>,
    /// States to keep.
    kept: Option<SharedSlice<f32>>,
    /// Continued states.
    heads: Option<SharedSlice<f32>>,
}

impl Task<'_> {
    fn run(&self, part: &Part, rows: Range<usize>) {
        let shape = self.source.net.sizes.shape();
        let len = part.heads.len() * shape.state();
        let room = Keys::scratch(shape) + Gates::scratch() + len + 3 * CHUNK * shape.values;
        with_scratch(room, |mut carver| {
            let mut keys = Keys::of(&mut carver, shape);
            let mut gates = Gates::of(&mut carver);
            let mut take = || carver.take(CHUNK * shape.values);
            let mut of_head = [take(), take(), take()];
            let states = match &self.heads {
                // SAFETY: each task has its own heads.
                Some(heads) => unsafe {
                    heads.range(part.heads.start * shape.state()..part.heads.end * shape.state())
                },
                None => {
                    let states = carver.take(len);
                    states.fill(0.0);
                    states
                }
            };
            for from in rows.clone().step_by(CHUNK) {
                let chunk = from..(from + CHUNK).min(rows.end);
                self.keep_states(part, from, states);
                self.mixed.load(&mut keys, part, chunk.clone());
                if chunk.len() > FEW {
                    keys.multiply(shape, false);
                }
                let of_heads = part
                    .heads
                    .clone()
                    .zip(states.chunks_exact_mut(shape.state()));
                for (head, state) in of_heads {
                    let [u, y, w] = of_head.each_mut().map(|x| &mut **x);
                    self.advance(head, chunk.clone(), (&keys, &mut gates), [u, y, w, state]);
                }
            }
        });
    }

    fn keep_states(&self, part: &Part, from: usize, states: &[f32]) {
        let Some(kept) = &self.kept else {
            return;
        };
        let sizes = self.source.net.sizes;
        let at = state_at(&self.source, part.heads.start, from);
        debug_assert_eq!(states.len(), part.heads.len() * sizes.shape().state());
        // SAFETY: each task has its own sequence and heads.
        unsafe { kept.range(at..at + states.len()) }.copy_from_slice(states);
    }

    /// One head over one chunk.
    fn advance(
        &self,
        head: usize,
        chunk: Range<usize>,
        (keys, gates): (&Keys, &mut Gates),
        [u, y, w, state]: [&mut [f32]; 4],
    ) {
        let net = &self.source.net;
        let shape = net.sizes.shape();
        let steps = self.source.steps(head, chunk.clone());
        self.mixed.updates(head, chunk.clone(), &steps, u);
        // SAFETY: the dispatch picks only instructions that the machine has.
        unsafe {
            if chunk.len() > FEW {
                gates.load(&steps.remains, keys);
                chunk::forward(false, shape, keys, gates, state, u, [&mut *y, w]);
            } else {
                for t in 0..chunk.len() {
                    let [b, c] = keys.token(shape, t);
                    let row = t * shape.values..(t + 1) * shape.values;
                    let token = Token {
                        b,
                        c,
                        u: &u[row.clone()],
                        remains: steps.remains[t],
                    };
                    chunk::step(false, token, state, &mut y[row]);
                }
            }
        }
        let dim = net.sizes.head_dim;
        for (row, y) in chunk.zip(y.chunks_exact(shape.values)) {
            let at = row * net.sizes.inner() + head * dim;
            // SAFETY: each task has its own rows of its own heads.
            let to = unsafe { self.y.range(at..at + dim) };
            for ((to, &y), &x) in to.iter_mut().zip(y).zip(self.mixed.x(head, row)) {
                *to = y + net.d[head] * x;
            }
        }
    }
}

/// Where the state of a head before the chunk at row `from` is among those kept.
pub fn state_at(source: &Source, head: usize, from: usize) -> usize {
    let (sizes, seq_len) = (source.net.sizes, source.positions.seq_len);
    let chunk = from / seq_len * seq_len.div_ceil(CHUNK) + from % seq_len / CHUNK;
    chunk * sizes.state() + head * sizes.shape().state()
}
