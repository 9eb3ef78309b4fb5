//! The backward: the norm's, the scan's over sequences and heads distributed over the threads, chunks from the last to the first, and the
//! convolution's.
#![allow(unsafe_code)]

use super::chunk::{self, Gates, Gradients, Keys, Saved};
use super::conv::{self, Source};
use super::forward::state_at;
use super::head::Mixed;
use super::{CHUNK, Kept, Mamba2, Part, Sizes, norm};
use crate::lanes::scratch::{Carver, with_scratch};
use crate::math::sum2;
use crate::matmul::Accumulation;
use crate::numbers::{Number, Values, ValuesMut};
use crate::positions::Positions;
use crate::reduce::{add_part, join};
use crate::threads::{self, SharedSlice};
use std::cell::Cell;
use std::ops::Range;

/// Gradients with respect to the parameters, unless they are frozen; shaped as in [`Mamba2`].
#[derive(Debug)]
pub struct ParamGradients<'a> {
    pub conv: Option<&'a mut [f32]>,
    pub conv_bias: Option<&'a mut [f32]>,
    pub a_log: Option<&'a mut [f32]>,
    pub dt_bias: Option<&'a mut [f32]>,
    pub d: Option<&'a mut [f32]>,
    pub gain: Option<&'a mut [f32]>,
    pub into: Accumulation,
}

thread_local! {
    /// Gradients with respect to the parameters of heads, of each sequence. Moved out while in use: a waiting thread may be given
    /// other work.
    static PARTIAL: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// `dwide` (rows, [`Sizes::wide`]) = the gradient with respect to the input `wide`, for `dout` (rows, inner), and in the same pass
/// the gradients with respect to the parameters. Scratch: (rows, channels), and (rows, [`Sizes::gradient`]).
pub fn backward(
    net: Mamba2,
    positions: Positions,
    (wide, kept, dout): (Values, Kept, Values),
    [xbc, gradients]: [&mut [f32]; 2],
    dwide: ValuesMut,
    params: ParamGradients,
) {
    let (rows, sizes) = (net.check(wide.len()), net.sizes);
    assert_eq!(rows % positions.seq_len, 0, "rows of whole sequences");
    let states = sizes.kept(rows, positions.seq_len);
    assert_eq!(kept.states.len(), states, "kept states");
    assert_eq!(dwide.len(), wide.len(), "gradient of Mamba 2");
    let lens = [kept.y.len(), dout.len(), xbc.len(), gradients.len()];
    let own = [
        sizes.inner(),
        sizes.inner(),
        sizes.channels(),
        sizes.gradient(),
    ];
    assert_eq!(lens, own.map(|width| rows * width), "buffers of Mamba 2");
    let source = Source {
        net,
        wide,
        positions,
        tail: None,
    };
    match dwide {
        ValuesMut::F32(dwide) => passes(source, (kept, dout), [xbc, gradients], dwide, params),
        ValuesMut::Bf16(dwide) => passes(source, (kept, dout), [xbc, gradients], dwide, params),
    }
}

fn passes<N: Number>(
    source: Source,
    (kept, dout): (Kept, Values),
    [xbc, gradients]: [&mut [f32]; 2],
    dwide: &mut [N],
    params: ParamGradients,
) {
    let (net, into) = (source.net, params.into);
    let dwide = SharedSlice::new(dwide);
    let saved = (source.wide, kept.y, dout);
    norm::backward(net, saved, gradients, &dwide, (params.gain, into));
    conv::forward(source, xbc);
    let of_heads = [params.a_log, params.dt_bias, params.d];
    scan(
        source,
        (xbc, kept.states),
        gradients,
        &dwide,
        (of_heads, into),
    );
    let of_conv = (params.conv, params.conv_bias, into);
    conv::backward(source, gradients, &dwide, of_conv);
}

/// In `gradients`, that with respect to y becomes those with respect to x, B and C; dt's own columns of `dwide`.
fn scan<N: Number>(
    source: Source,
    (xbc, states): (&[f32], &[f32]),
    gradients: &mut [f32],
    dwide: &SharedSlice<N>,
    (params, into): ([Option<&mut [f32]>; 3], Accumulation),
) {
    let (net, sizes) = (source.net, source.net.sizes);
    let (seq_len, n_part) = (source.positions.seq_len, sizes.n_part());
    let sequences = source.wide.len() / sizes.wide() / seq_len;
    let width = params.len() * sizes.n_head;
    let mut partial = PARTIAL.take();
    partial.resize(partial.len().max(sequences * width), 0.0);
    let sums = &mut partial[..sequences * width];
    let task = Task {
        source,
        mixed: Mixed { net, xbc },
        states,
        gradients: SharedSlice::new(gradients),
        dwide,
        sums: SharedSlice::new(sums),
    };
    threads::tasks(sequences * n_part, 3 * seq_len * sizes.cost(), |at| {
        let (b, part) = (at / n_part, sizes.part(at % n_part));
        task.run(&part, b * seq_len..(b + 1) * seq_len);
    });
    if let Some((total, rest)) = sums.split_at_mut_checked(width) {
        rest.chunks_exact(width)
            .for_each(|part| add_part(total, part));
        for (to, from) in params.into_iter().zip(total.chunks_exact(sizes.n_head)) {
            if let Some(to) = to {
                join(to, from, into);
            }
        }
    }
    PARTIAL.set(partial);
}

struct Task<'a, N> {
    source: Source<'a>,
    mixed: Mixed<'a>,
    states: &'a [f32],
    gradients: SharedSlice<f32>,
    dwide: &'a SharedSlice<N>,
    /// Of each sequence those with respect to A_log, dt_bias and D, (3, n_head).
    sums: SharedSlice<f32>,
}

/// Scratch memory of a task.
struct Scratch<'a> {
    keys: Keys<'a>,
    gates: Gates<'a>,
    /// Gradients with respect to each head's state.
    dstates: &'a mut [f32],
    /// (CHUNK, values) each.
    u: &'a mut [f32],
    dy: &'a mut [f32],
    du: &'a mut [f32],
    /// With respect to B and C, (keys, CHUNK), and to their products, (CHUNK, CHUNK).
    db: &'a mut [f32],
    dc: &'a mut [f32],
    dcb: &'a mut [f32],
    of_chunk: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    fn lens(sizes: Sizes, part: &Part) -> [usize; 8] {
        let shape = sizes.shape();
        let rows = CHUNK * shape.values;
        let keys = CHUNK * shape.keys;
        [
            part.heads.len() * shape.state(),
            rows,
            rows,
            rows,
            keys,
            keys,
            CHUNK * CHUNK,
            chunk::scratch(shape),
        ]
    }

    fn room(sizes: Sizes, part: &Part) -> usize {
        Keys::scratch(sizes.shape()) + Gates::scratch() + Carver::room(&Self::lens(sizes, part))
    }

    fn of(mut carver: Carver<'a>, sizes: Sizes, part: &Part) -> Scratch<'a> {
        let keys = Keys::of(&mut carver, sizes.shape());
        let gates = Gates::of(&mut carver);
        let [dstates, u, dy, du, db, dc, dcb, of_chunk] =
            Self::lens(sizes, part).map(|len| carver.take(len));
        dstates.fill(0.0);
        Scratch {
            keys,
            gates,
            dstates,
            u,
            dy,
            du,
            db,
            dc,
            dcb,
            of_chunk,
        }
    }
}

impl<N: Number> Task<'_, N> {
    fn run(&self, part: &Part, rows: Range<usize>) {
        let sizes = self.source.net.sizes;
        let mut sums = [[0.0; super::HEADS]; 3];
        with_scratch(Scratch::room(sizes, part), |carver| {
            let mut scratch = Scratch::of(carver, sizes, part);
            for from in rows.clone().step_by(CHUNK).rev() {
                let chunk = from..(from + CHUNK).min(rows.end);
                self.chunk(part, chunk, &mut scratch, &mut sums);
            }
        });
        let first = rows.start / self.source.positions.seq_len * sums.len() * sizes.n_head;
        for (which, sums) in sums.iter().enumerate() {
            let at = first + which * sizes.n_head;
            // SAFETY: each task has its own sequence and heads.
            let to = unsafe { self.sums.range(at + part.heads.start..at + part.heads.end) };
            to.copy_from_slice(&sums[..to.len()]);
        }
    }

    fn chunk(
        &self,
        part: &Part,
        rows: Range<usize>,
        scratch: &mut Scratch,
        sums: &mut [[f32; super::HEADS]; 3],
    ) {
        let sizes = self.source.net.sizes;
        let (shape, n) = (sizes.shape(), sizes.state_dim);
        self.mixed.load(&mut scratch.keys, part, rows.clone());
        scratch.keys.multiply(shape, true);
        for sum in [&mut *scratch.db, &mut *scratch.dc, &mut *scratch.dcb] {
            sum.fill(0.0);
        }
        for (at, head) in part.heads.clone().enumerate() {
            let of_head = self.head((at, head), rows.clone(), scratch);
            for (sums, of_head) in sums.iter_mut().zip(of_head) {
                sums[at] += of_head;
            }
        }
        let tokens = scratch.keys.tokens();
        let len = shape.keys * tokens;
        let (db, dc) = (&mut scratch.db[..len], &mut scratch.dc[..len]);
        let dcb = &scratch.dcb[..tokens * tokens];
        let turned = &mut scratch.of_chunk[..tokens * tokens];
        // SAFETY: the dispatch picks only instructions that the machine has.
        unsafe { chunk::share(false, shape, &scratch.keys, dcb, db, dc, turned) }
        for (t, row) in rows.enumerate() {
            let from = row * sizes.gradient() + sizes.inner() + part.at * 2 * n;
            // SAFETY: each task has its own sequence and part, here and below.
            let to = unsafe { self.gradients.range(from..from + 2 * n) };
            let (to_b, to_c) = to.split_at_mut(n);
            for (to, from) in [(to_b, &*db), (to_c, &*dc)] {
                for (to, from) in to.iter_mut().zip(from.chunks_exact(tokens)) {
                    *to = from[t];
                }
            }
        }
    }

    /// One head over one chunk; returns the gradients with respect to A_log, dt_bias and D.
    fn head(
        &self,
        (at, head): (usize, usize),
        rows: Range<usize>,
        scratch: &mut Scratch,
    ) -> [f32; 3] {
        let (source, net) = (&self.source, &self.source.net);
        let (sizes, shape) = (net.sizes, net.sizes.shape());
        let (dim, values, tokens) = (sizes.head_dim, shape.values, scratch.keys.tokens());
        let steps = source.steps(head, rows.clone());
        self.mixed.updates(head, rows.clone(), &steps, scratch.u);
        scratch.dy.fill(0.0);
        for (row, to) in rows.clone().zip(scratch.dy.chunks_exact_mut(values)) {
            to[..dim].copy_from_slice(self.gradient(head, row));
        }
        scratch.gates.load(&steps.remains, &scratch.keys);
        let state = &self.states[state_at(source, head, rows.start)..][..shape.state()];
        let len = shape.keys * tokens;
        let mut grads = Gradients {
            state: &mut scratch.dstates[at * shape.state()..][..shape.state()],
            u: scratch.du,
            b: &mut scratch.db[..len],
            c: &mut scratch.dc[..len],
            cb: &mut scratch.dcb[..tokens * tokens],
            log_remains: [0.0; CHUNK],
        };
        let saved = Saved {
            state,
            u: scratch.u,
            dy: scratch.dy,
        };
        // SAFETY: the dispatch picks only instructions that the machine has.
        unsafe {
            chunk::backward(
                false,
                shape,
                &scratch.keys,
                &scratch.gates,
                saved,
                &mut grads,
                scratch.of_chunk,
            )
        }
        let [mut da_log, mut ddt_bias, mut dd] = [0.0; 3];
        for (t, row) in rows.enumerate() {
            let x = self.mixed.x(head, row);
            let du = &grads.u[t * values..][..dim];
            let dx = self.gradient(head, row);
            dd += sum2(x, dx, |x, dy| x * dy);
            let dstep = sum2(x, du, |x, du| x * du) + grads.log_remains[t] * steps.rate;
            for (dx, &du) in dx.iter_mut().zip(du) {
                *dx = *dx * net.d[head] + du * steps.dt[t];
            }
            let ddt = dstep * steps.slope[t];
            da_log += grads.log_remains[t] * steps.dt[t] * steps.rate;
            ddt_bias += ddt;
            let column = source.step_at(head, row);
            // SAFETY: each task has its own sequence and heads.
            let to = unsafe { self.dwide.range(column..column + 1) };
            to[0] = N::narrow(ddt);
        }
        [da_log, ddt_bias, dd]
    }

    /// The gradient with respect to y of a head in a row, then to x.
    #[allow(clippy::mut_from_ref, reason = "tasks have disjoint ranges")]
    fn gradient(&self, head: usize, row: usize) -> &mut [f32] {
        let sizes = self.source.net.sizes;
        let from = row * sizes.gradient() + head * sizes.head_dim;
        // SAFETY: each task has its own sequence and heads, and uses one range at a time.
        unsafe { self.gradients.range(from..from + sizes.head_dim) }
    }
}
