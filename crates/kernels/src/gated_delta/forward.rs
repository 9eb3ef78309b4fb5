//! The forward: sequences, and heads within them, distributed over the threads.
#![allow(unsafe_code)]

use super::block::{KeyRows, Part, Segment, Source, gated_norm};
use super::chunk::{self, CHUNK, Token};
use super::{GatedDelta, Keep, SEGMENT};
use crate::causal_conv::{append, copy};
use crate::lanes::scratch::with_scratch;
use crate::numbers::{Number, Values, ValuesMut};
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
    /// (n_value_head, key_dim, value_dim).
    pub heads: &'a mut [f32],
}

/// `wide` (rows, [`super::Sizes::wide`]) → `out` (rows, values). Positions start at 0. For a backward, `keep` is written.
pub fn forward(
    net: GatedDelta,
    positions: Positions,
    wide: Values,
    out: ValuesMut,
    keep: Option<Keep>,
) {
    let source = Source {
        net,
        wide,
        positions,
        tail: None,
    };
    let rows = net.check(wide.len());
    assert_eq!(rows % positions.seq_len, 0, "rows of whole sequences");
    if let Some(keep) = &keep {
        let lens = [keep.states.len(), keep.updates.len()];
        assert_eq!(lens, net.sizes.kept(rows, positions.seq_len), "kept values");
    }
    match out {
        ValuesMut::F32(out) => forward_of(source, out, keep, None),
        ValuesMut::Bf16(out) => forward_of(source, out, keep, None),
    }
}

/// The same for further rows of one text: after `state`, which becomes that after the rows.
pub fn forward_after(net: GatedDelta, state: State, wide: Values, out: ValuesMut) {
    let sizes = net.sizes;
    let (rows, channels, kept) = (net.check(wide.len()), sizes.channels(), sizes.conv_len - 1);
    assert_eq!(state.conv.len(), kept * channels, "state of a convolution");
    assert_eq!(
        state.heads.len(),
        sizes.state(),
        "state of a gated delta net"
    );
    if rows == 0 {
        return;
    }
    let source = Source {
        net,
        wide,
        positions: Positions::whole_rows(rows),
        tail: Some(state.conv),
    };
    match out {
        ValuesMut::F32(out) => forward_of(source, out, None, Some(state.heads)),
        ValuesMut::Bf16(out) => forward_of(source, out, None, Some(state.heads)),
    }
    append(state.conv, channels, rows, |row, to| {
        let from = row * sizes.wide();
        copy(wide, from..from + channels, to);
    });
}

fn forward_of<N: Number>(
    source: Source,
    out: &mut [N],
    keep: Option<Keep>,
    heads: Option<&mut [f32]>,
) {
    let sizes = source.net.sizes;
    let (seq_len, group) = (source.positions.seq_len, sizes.group());
    let rows = source.wide.len() / sizes.wide();
    assert_eq!(out.len(), rows * sizes.values(), "gated delta net output");
    let of_keys = rows / seq_len * sizes.n_key_head;
    // Value heads are independent: a finer split changes no bits.
    let splits = threads::parts(of_keys, group);
    let kept = keep.map(|keep| {
        (
            SharedSlice::new(keep.states),
            SharedSlice::new(keep.updates),
        )
    });
    let task = Task {
        source,
        out: SharedSlice::new(out),
        kept,
        heads: heads.map(SharedSlice::new),
    };
    let cost = seq_len * sizes.cost() / splits;
    threads::tasks(of_keys * splits, cost, |at| {
        let (of_keys, split) = (at / splits, at % splits);
        let (b, key_head) = (of_keys / sizes.n_key_head, of_keys % sizes.n_key_head);
        let first = key_head * group;
        task.run(&Part {
            rows: b * seq_len..(b + 1) * seq_len,
            key_head,
            value_heads: first + group * split / splits..first + group * (split + 1) / splits,
        });
    });
}

struct Task<'a, N> {
    source: Source<'a>,
    out: SharedSlice<N>,
    /// States and updates to keep.
    kept: Option<(SharedSlice<f32>, SharedSlice<f32>)>,
    /// Continued states.
    heads: Option<SharedSlice<f32>>,
}

impl<N: Number> Task<'_, N> {
    fn run(&self, part: &Part) {
        let net = &self.source.net;
        let (shape, width) = (net.sizes.shape(), part.width(net));
        let (dk, dv) = (net.sizes.key_dim, net.sizes.value_dim);
        let heads = part.value_heads.len();
        let room = Segment::scratch(net.sizes.conv_len, width)
            + KeyRows::scratch(shape)
            + heads * shape.state()
            + 4 * CHUNK * shape.values
            + shape.values;
        with_scratch(room, |mut carver| {
            let mut segment = Segment::of(&mut carver, &self.source, part);
            let mut keys = KeyRows::of(&mut carver, shape);
            let mut states = carver.take(heads * shape.state());
            let mut rows = Rows {
                v: carver.take(CHUNK * shape.values),
                u: carver.take(CHUNK * shape.values),
                o: carver.take(CHUNK * shape.values),
                w: carver.take(CHUNK * shape.values),
                z: carver.take(shape.values),
            };
            rows.v.fill(0.0);
            let is_padded = shape.state() != dk * dv;
            if is_padded || self.heads.is_none() {
                states.fill(0.0);
            } else if let Some(heads) = &self.heads {
                let (from, to) = (part.value_heads.start, part.value_heads.end);
                // SAFETY: each task has its own heads.
                states = unsafe { heads.range(from * dk * dv..to * dk * dv) };
            }
            self.padded(part, |at, head| {
                let padded = states[at * shape.state()..].chunks_exact_mut(shape.values);
                for (to, from) in padded.zip(head.chunks_exact(dv)) {
                    to[..dv].copy_from_slice(from);
                }
            });
            for from in part.rows.clone().step_by(SEGMENT) {
                let to = (from + SEGMENT).min(part.rows.end);
                segment.compute(&self.source, part, from..to);
                self.keep_states(part, from, states);
                for from_chunk in (from..to).step_by(CHUNK) {
                    let chunk = from_chunk..(from_chunk + CHUNK).min(to);
                    let values = |row: usize| segment.row(row - from, width);
                    keys.load(dk, chunk.clone().map(values));
                    if chunk.len() > FEW {
                        keys.multiply();
                    }
                    let of_heads = part
                        .value_heads
                        .clone()
                        .zip(states.chunks_exact_mut(shape.state()));
                    for (at, (head, state)) in of_heads.enumerate() {
                        let first = 2 * dk + at * dv;
                        rows.load(dv, chunk.clone().map(|row| &values(row)[first..first + dv]));
                        self.advance(head, chunk.clone(), &keys, &mut rows, state);
                    }
                }
            }
            self.padded(part, |at, head| {
                let padded = states[at * shape.state()..].chunks_exact(shape.values);
                for (from, to) in padded.zip(head.chunks_exact_mut(dv)) {
                    to.copy_from_slice(&from[..dv]);
                }
            });
        });
    }

    /// Calls `f` with each continued state, if there are any and they need padding.
    fn padded(&self, part: &Part, mut f: impl FnMut(usize, &mut [f32])) {
        let Some(heads) = &self.heads else {
            return;
        };
        let sizes = self.source.net.sizes;
        let len = sizes.key_dim * sizes.value_dim;
        if sizes.shape().state() == len {
            return;
        }
        for (at, head) in part.value_heads.clone().enumerate() {
            // SAFETY: each task has its own heads.
            f(at, unsafe { heads.range(head * len..(head + 1) * len) });
        }
    }

    fn keep_states(&self, part: &Part, from: usize, states: &[f32]) {
        let Some((kept, _)) = &self.kept else {
            return;
        };
        let sizes = self.source.net.sizes;
        let seq_len = self.source.positions.seq_len;
        let segment = from / seq_len * seq_len.div_ceil(SEGMENT) + from % seq_len / SEGMENT;
        let at = (segment * sizes.n_value_head + part.value_heads.start) * sizes.shape().state();
        // SAFETY: each task has its own sequence and heads.
        unsafe { kept.range(at..at + states.len()) }.copy_from_slice(states);
    }

    /// One value head over one chunk.
    fn advance(
        &self,
        head: usize,
        chunk: Range<usize>,
        keys: &KeyRows,
        rows: &mut Rows,
        state: &mut [f32],
    ) {
        let net = &self.source.net;
        let (shape, dv) = (net.sizes.shape(), net.sizes.value_dim);
        let gates = self.source.gates(head, chunk.clone());
        // SAFETY: the dispatch picks only instructions that the machine has.
        unsafe {
            if chunk.len() > FEW {
                let keys = keys.keys();
                let to = [&mut *rows.u, &mut *rows.o, &mut *rows.w];
                chunk::forward(false, shape, keys, &gates, state, rows.v, to);
            } else {
                for t in 0..chunk.len() {
                    let [q, k] = keys.token(t);
                    let row = t * shape.values..(t + 1) * shape.values;
                    let token = Token {
                        q,
                        k,
                        v: &rows.v[row.clone()],
                        remains: gates.remains[t],
                        beta: gates.beta[t],
                    };
                    let (u, o) = (&mut rows.u[row.clone()], &mut rows.o[row]);
                    chunk::step(false, token, state, u, o);
                }
            }
        }
        let z = net.sizes.channels() + head * dv;
        for (t, row) in chunk.enumerate() {
            let at = row * net.sizes.values() + head * dv;
            let columns = t * shape.values..t * shape.values + dv;
            if let Some((_, updates)) = &self.kept {
                // SAFETY: each task has its own rows of its own heads, here and below.
                let updates = unsafe { updates.range(at..at + dv) };
                updates.copy_from_slice(&rows.u[columns.clone()]);
            }
            let z = self.source.read(row, z..z + dv, rows.z);
            // SAFETY: as above.
            let out = unsafe { self.out.range(at..at + dv) };
            gated_norm(out, &rows.o[columns], z, net.gain, net.eps);
        }
    }
}

/// Scratch memory of a value head's chunk, (CHUNK, values) each.
struct Rows<'a> {
    v: &'a mut [f32],
    u: &'a mut [f32],
    o: &'a mut [f32],
    w: &'a mut [f32],
    /// One row.
    z: &'a mut [f32],
}

impl Rows<'_> {
    /// Values of up to a chunk of rows; the others' are 0.
    fn load<'r>(&mut self, dv: usize, rows: impl ExactSizeIterator<Item = &'r [f32]>) {
        let width = self.v.len() / CHUNK;
        self.v[rows.len() * width..].fill(0.0);
        for (to, from) in self.v.chunks_exact_mut(width).zip(rows) {
            to[..dv].copy_from_slice(from);
        }
    }
}
