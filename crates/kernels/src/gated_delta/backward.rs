//! The backward: sequences and key heads distributed over the threads. Segments are computed from the last to the first; in each,
//! the forward once more from the kept state, then chunks from the last to the first.
#![allow(unsafe_code)]

use super::block::{KeyRows, Part, Segment, Source, gated_norm_backward, normalize_backward};
use super::chunk::{self, CHUNK, Gradients, Saved};
use super::{GatedDelta, Kept, SEGMENT, Sizes};
use crate::causal_conv::{Ring, Taps, join_taps, silu_backward, store, widened};
use crate::lanes::scratch::{Carver, with_scratch};
use crate::matmul::Accumulation;
use crate::numbers::{Number, Values, ValuesMut};
use crate::positions::Positions;
use crate::reduce::{add_part, join};
use crate::threads::{self, SharedSlice};
use std::cell::Cell;
use std::ops::Range;

/// Chunks of a segment.
const CHUNKS: usize = SEGMENT / CHUNK;

/// Gradients with respect to the parameters, unless they are frozen; shaped as in [`GatedDelta`].
#[derive(Debug)]
pub struct ParamGradients<'a> {
    pub conv: Option<&'a mut [f32]>,
    pub a_log: Option<&'a mut [f32]>,
    pub dt_bias: Option<&'a mut [f32]>,
    pub gain: Option<&'a mut [f32]>,
    pub into: Accumulation,
}

impl ParamGradients<'_> {
    fn wants_any(&self) -> bool {
        [&self.conv, &self.a_log, &self.dt_bias, &self.gain]
            .iter()
            .any(|gradient| gradient.is_some())
    }
}

thread_local! {
    /// Gradients with respect to the parameters of each sequence. Moved out while in use: a waiting thread may be given other
    /// work.
    static PARTIAL: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// `dwide` (rows, [`Sizes::wide`]) = the gradient with respect to the input `wide`, for `dout` (rows, values), and in the same pass
/// the gradients with respect to the parameters, summed sequence by sequence.
pub fn backward(
    net: GatedDelta,
    positions: Positions,
    wide: Values,
    kept: Kept,
    dout: Values,
    dwide: ValuesMut,
    params: ParamGradients,
) {
    let rows = net.check(wide.len());
    assert_eq!(rows % positions.seq_len, 0, "rows of whole sequences");
    let lens = [kept.states.len(), kept.updates.len()];
    assert_eq!(lens, net.sizes.kept(rows, positions.seq_len), "kept values");
    assert_eq!(dwide.len(), wide.len(), "gated delta net gradient");
    assert_eq!(dout.len(), rows * net.sizes.values(), "output gradient");
    let source = Source {
        net,
        wide,
        positions,
        tail: None,
    };
    match dwide {
        ValuesMut::F32(dwide) => backward_of(source, kept, dout, dwide, params),
        ValuesMut::Bf16(dwide) => backward_of(source, kept, dout, dwide, params),
    }
}

/// Where each parameter's gradient begins among a sequence's.
#[derive(Clone, Copy)]
struct Places {
    a_log: usize,
    dt_bias: usize,
    /// (n_key_head, value_dim).
    gain: usize,
    end: usize,
}

impl Places {
    fn of(sizes: Sizes) -> Places {
        let a_log = sizes.channels() * sizes.conv_len;
        let gain = a_log + 2 * sizes.n_value_head;
        Places {
            a_log,
            dt_bias: a_log + sizes.n_value_head,
            gain,
            end: gain + sizes.n_key_head * sizes.value_dim,
        }
    }
}

fn backward_of<N: Number>(
    source: Source,
    kept: Kept,
    dout: Values,
    dwide: &mut [N],
    params: ParamGradients,
) {
    let (sizes, seq_len) = (source.net.sizes, source.positions.seq_len);
    let sequences = source.wide.len() / sizes.wide() / seq_len;
    let places = Places::of(sizes);
    let has_params = params.wants_any();
    let kept_sums = if has_params {
        sequences * places.end
    } else {
        0
    };
    let mut partial = PARTIAL.take();
    if partial.len() < kept_sums {
        partial.resize(kept_sums, 0.0);
    }
    let sums = &mut partial[..kept_sums];
    let task = Task {
        source,
        kept,
        dout,
        dwide: SharedSlice::new(dwide),
        sums: SharedSlice::new(sums),
        has_params,
        places,
    };
    let group = sizes.group();
    threads::tasks(
        sequences * sizes.n_key_head,
        3 * seq_len * sizes.cost(),
        |at| {
            let (b, key_head) = (at / sizes.n_key_head, at % sizes.n_key_head);
            task.run(&Part {
                rows: b * seq_len..(b + 1) * seq_len,
                key_head,
                value_heads: key_head * group..(key_head + 1) * group,
            });
        },
    );
    if kept_sums > 0 {
        let (total, rest) = sums.split_at_mut(places.end);
        let rest = &*rest;
        // Each column's sequences in order, on whichever thread.
        threads::rows1(total, 1, sequences, |first, total| {
            rest.chunks_exact(places.end)
                .for_each(|part| add_part(total, &part[first..]));
        });
        let (of_heads, gains) = total.split_at_mut(places.gain);
        let (gain, rest) = gains.split_at_mut(sizes.value_dim);
        rest.chunks_exact(sizes.value_dim)
            .for_each(|part| add_part(gain, part));
        if let Some(dconv) = params.conv {
            join_taps(
                dconv,
                &of_heads[..places.a_log],
                sizes.conv_len,
                params.into,
            );
        }
        for (to, from) in [
            (params.a_log, &of_heads[places.a_log..places.dt_bias]),
            (params.dt_bias, &of_heads[places.dt_bias..]),
            (params.gain, &*gain),
        ] {
            if let Some(to) = to {
                join(to, from, params.into);
            }
        }
    }
    PARTIAL.set(partial);
}

struct Task<'a, N> {
    source: Source<'a>,
    kept: Kept<'a>,
    dout: Values<'a>,
    dwide: SharedSlice<N>,
    /// The gradients with respect to the parameters of each sequence; empty if none is wanted.
    sums: SharedSlice<f32>,
    has_params: bool,
    places: Places,
}

/// Scratch memory of a task.
struct Scratch<'a> {
    segment: Segment<'a>,
    keys: [KeyRows<'a>; CHUNKS],
    /// States before each chunk of the segment, of one head.
    states: &'a mut [f32],
    /// Gradients with respect to each head's state.
    dstates: &'a mut [f32],
    /// Updates, outputs, gradients with respect to outputs and values, and scratch: (CHUNK, values) each.
    u: &'a mut [f32],
    o: &'a mut [f32],
    doutputs: &'a mut [f32],
    dv: &'a mut [f32],
    w: &'a mut [f32],
    /// Gradients with respect to queries and keys: (keys, 2 CHUNK) of a head, and of each chunk.
    dqk: &'a mut [f32],
    dqk_sums: &'a mut [f32],
    /// (SEGMENT, width): gradients with respect to the values after SiLU.
    dy: &'a mut [f32],
    /// (SEGMENT + conv_len − 1, width): with respect to the convolution's sums, with the rows after the segment.
    dsums: &'a mut [f32],
    /// (conv_len, width): of the segment, and of all later ones too.
    dtaps: &'a mut [f32],
    dtaps_sums: &'a mut [f32],
    /// Of A_log, then of dt_bias, of each head; and of the gain: of all segments.
    dheads: &'a mut [f32],
    dgain: &'a mut [f32],
    /// One row.
    row: &'a mut [f32],
    other_row: &'a mut [f32],
    of_chunk: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    fn lens(source: &Source, part: &Part) -> [usize; 18] {
        let sizes = source.net.sizes;
        let (shape, width) = (sizes.shape(), part.width(&source.net));
        let rows = CHUNK * shape.values;
        let qk = 2 * CHUNK * shape.keys;
        let taps = sizes.conv_len * width;
        let row = width.max(shape.values).max(2 * shape.keys);
        [
            CHUNKS * shape.state(),
            part.value_heads.len() * shape.state(),
            rows,
            rows,
            rows,
            rows,
            rows,
            qk,
            CHUNKS * qk,
            SEGMENT * width,
            (SEGMENT + sizes.conv_len - 1) * width,
            taps,
            taps,
            2 * part.value_heads.len(),
            sizes.value_dim,
            row,
            row,
            chunk::scratch(shape),
        ]
    }

    fn room(source: &Source, part: &Part) -> usize {
        let sizes = source.net.sizes;
        Segment::scratch(sizes.conv_len, part.width(&source.net))
            + CHUNKS * KeyRows::scratch(sizes.shape())
            + Carver::room(&Self::lens(source, part))
    }

    fn of(mut carver: Carver<'a>, source: &Source, part: &Part) -> Scratch<'a> {
        let segment = Segment::of(&mut carver, source, part);
        let shape = source.net.sizes.shape();
        let keys = std::array::from_fn(|_| KeyRows::of(&mut carver, shape));
        let [
            states,
            dstates,
            u,
            o,
            doutputs,
            dv,
            w,
            dqk,
            dqk_sums,
            dy,
            dsums,
            dtaps,
            dtaps_sums,
            dheads,
            dgain,
            row,
            other_row,
            of_chunk,
        ] = Self::lens(source, part).map(|len| {
            let array = carver.take(len);
            array.fill(0.0);
            array
        });
        Scratch {
            segment,
            keys,
            states,
            dstates,
            u,
            o,
            doutputs,
            dv,
            w,
            dqk,
            dqk_sums,
            dy,
            dsums,
            dtaps,
            dtaps_sums,
            dheads,
            dgain,
            row,
            other_row,
            of_chunk,
        }
    }
}

impl<N: Number> Task<'_, N> {
    fn run(&self, part: &Part) {
        let sizes = self.source.net.sizes;
        let seq_len = self.source.positions.seq_len;
        let b = part.rows.start / seq_len;
        with_scratch(Scratch::room(&self.source, part), |carver| {
            let mut scratch = Scratch::of(carver, &self.source, part);
            let segments = part.rows.clone().step_by(SEGMENT);
            for from in segments.rev() {
                let rows = from..(from + SEGMENT).min(part.rows.end);
                self.segment(part, rows, &mut scratch);
            }
            if !self.has_params {
                return;
            }
            let width = part.width(&self.source.net);
            for (back, dtaps) in scratch.dtaps_sums.chunks_exact(width).enumerate() {
                let mut from = 0;
                for columns in part.columns(&self.source.net) {
                    let at = back * sizes.channels();
                    let to = self.of_params(b, at + columns.start..at + columns.end);
                    to.copy_from_slice(&dtaps[from..from + columns.len()]);
                    from += columns.len();
                }
            }
            let heads = part.value_heads.clone();
            let places = [self.places.a_log, self.places.dt_bias];
            for (place, sums) in places.iter().zip(scratch.dheads.chunks_exact(heads.len())) {
                self.of_params(b, place + heads.start..place + heads.end)
                    .copy_from_slice(sums);
            }
            self.of_params(b, self.gain(part))
                .copy_from_slice(scratch.dgain);
        });
    }

    /// Part of the gradients with respect to the parameters of sequence `b`.
    #[allow(clippy::mut_from_ref, reason = "tasks have disjoint ranges")]
    fn of_params(&self, b: usize, range: Range<usize>) -> &mut [f32] {
        let at = b * self.places.end;
        // SAFETY: each task has its own sequence, heads and channels.
        unsafe { self.sums.range(at + range.start..at + range.end) }
    }

    fn gain(&self, part: &Part) -> Range<usize> {
        let dv = self.source.net.sizes.value_dim;
        let from = self.places.gain + part.key_head * dv;
        from..from + dv
    }

    /// Columns of a row of `dwide`.
    #[allow(clippy::mut_from_ref, reason = "tasks have disjoint ranges")]
    fn dwide(&self, row: usize, columns: Range<usize>) -> &mut [N] {
        let from = row * self.source.net.sizes.wide();
        // SAFETY: each task has its own sequence and heads.
        unsafe { self.dwide.range(from + columns.start..from + columns.end) }
    }

    fn segment(&self, part: &Part, rows: Range<usize>, scratch: &mut Scratch) {
        let (source, net) = (&self.source, &self.source.net);
        let (width, dk) = (part.width(net), net.sizes.key_dim);
        scratch.segment.compute(source, part, rows.clone());
        let chunks = rows.clone().step_by(CHUNK);
        for (from, keys) in chunks.clone().zip(&mut scratch.keys) {
            let chunk = from..(from + CHUNK).min(rows.end);
            keys.load(
                dk,
                chunk.map(|row| scratch.segment.row(row - rows.start, width)),
            );
            keys.multiply();
        }
        scratch.dqk_sums.fill(0.0);
        for at in 0..part.value_heads.len() {
            self.head(part, at, rows.clone(), scratch);
        }
        // Queries and keys, back through their normalization.
        let lines = 2 * CHUNK;
        for i in 0..rows.len() {
            let len = scratch.dqk.len();
            let dqk = &scratch.dqk_sums[i / CHUNK * len..][..len];
            for (which, scale) in [1.0 / (dk as f32).sqrt(), 1.0].into_iter().enumerate() {
                let dx = &mut scratch.row[..dk];
                let lane = which * CHUNK + i % CHUNK;
                for (dx, line) in dx.iter_mut().zip(dqk.chunks_exact(lines)) {
                    *dx = line[lane];
                }
                let columns = which * dk..(which + 1) * dk;
                let dy = &mut scratch.dy[i * width..][columns.clone()];
                normalize_backward(dy, dx, &scratch.segment.row(i, width)[columns], scale);
            }
        }
        // Then all through SiLU and the convolution.
        let own = rows.len() * width;
        silu_backward(
            &mut scratch.dsums[..own],
            &scratch.dy[..own],
            &scratch.segment.sums[..own],
        );
        let kept = net.sizes.conv_len - 1;
        let x = Ring::new(scratch.segment.x, kept + SEGMENT, width);
        let dsums = Ring::new(scratch.dsums, SEGMENT + kept, width);
        let taps = Taps::of(scratch.segment.taps, width);
        scratch.dtaps.fill(0.0);
        for (i, row) in rows.clone().enumerate() {
            let dx = &mut scratch.row[..width];
            taps.backward(&dsums, i, source.later(row, part.rows.end), dx);
            let mut from = 0;
            for columns in part.columns(net) {
                let n = columns.len();
                store(self.dwide(row, columns), &dx[from..from + n]);
                from += n;
            }
            if self.has_params {
                taps.add_gradient(&x, kept + i, source.reach(row), dsums.at(i), scratch.dtaps);
            }
        }
        add_part(scratch.dtaps_sums, scratch.dtaps);
        // The first rows follow the earlier segment's.
        scratch.dsums.copy_within(..kept * width, SEGMENT * width);
    }

    /// The part's value head `at` over a segment.
    fn head(&self, part: &Part, at: usize, rows: Range<usize>, scratch: &mut Scratch) {
        let (source, net) = (&self.source, &self.source.net);
        let (sizes, shape) = (net.sizes, net.sizes.shape());
        let head = part.value_heads.start + at;
        let chunk = |c: usize| {
            let from = rows.start + c * CHUNK;
            from..(from + CHUNK).min(rows.end)
        };
        let chunks = rows.len().div_ceil(CHUNK);
        // The states, from the kept one and the kept updates.
        let seq_len = source.positions.seq_len;
        let segment =
            rows.start / seq_len * seq_len.div_ceil(SEGMENT) + rows.start % seq_len / SEGMENT;
        let kept = &self.kept.states[(segment * sizes.n_value_head + head) * shape.state()..];
        scratch.states[..shape.state()].copy_from_slice(&kept[..shape.state()]);
        for c in 0..chunks - 1 {
            let (before, after) = scratch.states[c * shape.state()..].split_at_mut(shape.state());
            let state = &mut after[..shape.state()];
            state.copy_from_slice(before);
            self.load_updates(head, chunk(c), scratch.u);
            let (keys, gates) = (scratch.keys[c].keys(), source.gates(head, chunk(c)));
            // SAFETY: the dispatch picks only instructions that the machine has.
            unsafe { chunk::advance(false, shape, keys, &gates, state, scratch.u, scratch.w) }
        }
        for c in (0..chunks).rev() {
            self.chunk(part, at, c, (rows.start, chunk(c)), scratch);
        }
    }

    /// Chunk `c` of a segment, of the part's value head `at`.
    fn chunk(
        &self,
        part: &Part,
        at: usize,
        c: usize,
        (from, rows): (usize, Range<usize>),
        scratch: &mut Scratch,
    ) {
        let (source, net) = (&self.source, &self.source.net);
        let (sizes, shape, dv) = (net.sizes, net.sizes.shape(), net.sizes.value_dim);
        let head = part.value_heads.start + at;
        let gates = source.gates(head, rows.clone());
        let keys = scratch.keys[c].keys();
        let state = &scratch.states[c * shape.state()..][..shape.state()];
        self.load_updates(head, rows.clone(), scratch.u);
        // SAFETY: the dispatch picks only instructions that the machine has.
        unsafe { chunk::outputs(false, shape, keys, &gates, state, scratch.u, scratch.o) }
        scratch.doutputs[rows.len() * shape.values..].fill(0.0);
        let z = sizes.channels() + head * dv;
        for (t, row) in rows.clone().enumerate() {
            let columns = t * shape.values..t * shape.values + dv;
            let dz = &mut scratch.row[..dv];
            source.copy(row, z..z + dv, dz);
            let from = row * sizes.values() + head * dv;
            let dout = widened(self.dout, from..from + dv, scratch.other_row);
            let (o, to) = (&scratch.o[columns.clone()], &mut scratch.doutputs[columns]);
            gated_norm_backward(to, o, dz, net.gain, net.eps, dout, scratch.dgain);
            store(self.dwide(row, z..z + dv), dz);
        }
        let mut grads = Gradients {
            state: &mut scratch.dstates[at * shape.state()..][..shape.state()],
            v: scratch.dv,
            qk: scratch.dqk,
            b: [0.0; CHUNK],
            log_remains: [0.0; CHUNK],
        };
        let saved = Saved {
            state,
            u: scratch.u,
            doutputs: scratch.doutputs,
        };
        // SAFETY: as above.
        unsafe {
            chunk::backward(
                false,
                shape,
                keys,
                &gates,
                saved,
                &mut grads,
                scratch.of_chunk,
            )
        }
        let len = grads.qk.len();
        add_part(&mut scratch.dqk_sums[c * len..][..len], grads.qk);
        let (width, first) = (part.width(net), 2 * sizes.key_dim + at * dv);
        let to = scratch.dy[(rows.start - from) * width..].chunks_exact_mut(width);
        for (to, dvalue) in to.zip(grads.v.chunks_exact(shape.values)).take(rows.len()) {
            to[first..first + dv].copy_from_slice(&dvalue[..dv]);
        }
        let [mut da_log, mut ddt_bias] = [0.0, 0.0];
        let column = sizes.channels() + sizes.values() + head;
        for (t, row) in rows.enumerate() {
            let rate = source.rate(head, row);
            let da = grads.log_remains[t] * rate.slope;
            da_log += grads.log_remains[t] * rate.log_remains;
            ddt_bias += da;
            self.dwide(row, column..column + 1)[0] = N::narrow(grads.b[t]);
            let column = column + sizes.n_value_head;
            self.dwide(row, column..column + 1)[0] = N::narrow(da);
        }
        scratch.dheads[at] += da_log;
        scratch.dheads[part.value_heads.len() + at] += ddt_bias;
    }

    /// A chunk's kept updates, padded by zeros.
    fn load_updates(&self, head: usize, rows: Range<usize>, u: &mut [f32]) {
        let sizes = self.source.net.sizes;
        let (width, dv) = (sizes.shape().values, sizes.value_dim);
        u[rows.len() * width..].fill(0.0);
        for (row, u) in rows.zip(u.chunks_exact_mut(width)) {
            let from = row * sizes.values() + head * dv;
            u[..dv].copy_from_slice(&self.kept.updates[from..from + dv]);
        }
    }
}
