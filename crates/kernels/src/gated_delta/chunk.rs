//! The recurrence over sixteen tokens at once, for one value head. With D(t, s) the product of the decays of tokens s+1..=t, and
//! S the state before the chunk, the recurrence is, exactly:
//!
//! ```text
//! u_t = β_t (v_t − D(t, start) Sᵀ k_t − Σ_{s<t} D(t, s) (k_t · k_s) u_s)
//! o_t = D(t, start) Sᵀ q_t + Σ_{s≤t} D(t, s) (q_t · k_s) u_s
//! S ← D(end, start) S + Σ_s D(end, s) k_s u_sᵀ
//! ```
//!
//! so S is read and written once in sixteen tokens, by matmuls. Decays are at most 1 and are only multiplied, never divided: a
//! strong one gives 0, not ∞ or NaN. A document begins with a decay of 0. Missing tokens of a last chunk are zeros that decay by 1.
#![allow(unsafe_code)]

use crate::lanes::small::{
    add_scaled, multiply, rows, scale, scale_in_place, scale_rows, transposed, turn,
};
use crate::lanes::{LINE, Vector, widest};
use crate::math::{flush_subnormal, sum2};

/// Tokens of a chunk.
pub const CHUNK: usize = LINE;
const SQUARE: usize = CHUNK * CHUNK;

/// Key and value features, padded by zeros to whole lines.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub keys: usize,
    pub values: usize,
}

impl Shape {
    pub fn of(key_dim: usize, value_dim: usize) -> Shape {
        Shape {
            keys: key_dim.next_multiple_of(LINE),
            values: value_dim.next_multiple_of(LINE),
        }
    }

    /// Numbers of S.
    pub fn state(self) -> usize {
        self.keys * self.values
    }
}

/// Queries and keys of a chunk.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// (CHUNK, keys).
    pub q: &'a [f32],
    pub k: &'a [f32],
    /// Their transposes, (keys, CHUNK).
    pub turned_q: &'a [f32],
    pub turned_k: &'a [f32],
    /// q_t · k_s at (t, s), and k_t · k_s.
    pub qk: &'a [f32],
    pub kk: &'a [f32],
}

/// Gates of a chunk.
pub struct Gates {
    /// Share of the state that remains at each token.
    pub remains: [f32; CHUNK],
    pub beta: [f32; CHUNK],
    /// D(t, s); 0 for s > t.
    decays: [f32; SQUARE],
    /// D(t, start).
    from_start: [f32; CHUNK],
}

impl Gates {
    pub fn new(remains: [f32; CHUNK], beta: [f32; CHUNK]) -> Gates {
        let (mut decays, mut from_start) = ([0.0; SQUARE], [0.0; CHUNK]);
        let mut row = [0.0; CHUNK];
        let mut from = 1.0;
        for t in 0..CHUNK {
            for decay in &mut row {
                *decay = flush_subnormal(*decay * remains[t]);
            }
            row[t] = 1.0;
            from = flush_subnormal(from * remains[t]);
            from_start[t] = from;
            decays[t * CHUNK..][..CHUNK].copy_from_slice(&row);
        }
        Gates {
            remains,
            beta,
            decays,
            from_start,
        }
    }

    /// D(end, s).
    fn to_end(&self) -> &[f32] {
        &self.decays[SQUARE - CHUNK..]
    }

    /// D(end, start).
    fn through(&self) -> f32 {
        self.from_start[CHUNK - 1]
    }

    /// D(t, s) · `products` at (t, s).
    fn weighted(&self, products: &[f32]) -> [f32; SQUARE] {
        std::array::from_fn(|at| self.decays[at] * products[at])
    }
}

widest! {
    /// The transposes and products of queries and keys.
    pub fn products(
        pairs,
        of: [&[f32]; 2],
        turned: [&mut [f32]; 2],
        to: [&mut [f32]; 2],
    ) = products_with
}

#[inline(always)]
unsafe fn products_with<V: Vector>(
    of: [&[f32]; 2],
    turned: [&mut [f32]; 2],
    products: [&mut [f32]; 2],
) {
    let keys = of[0].len() / CHUNK;
    let [turned_q, turned_k] = turned;
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        turn::<V>(of[0], keys, turned_q, CHUNK);
        turn::<V>(of[1], keys, turned_k, CHUNK);
        for (x, to) in of.into_iter().zip(products) {
            multiply::<V>(
                to,
                CHUNK,
                false,
                rows(x, keys),
                turned_k,
                (CHUNK, CHUNK, keys),
            );
        }
    }
}

widest! {
    /// From values `v` to updates, outputs and scratch (`to`, in this order), (CHUNK, values) each; advances `state`.
    pub fn forward(
        pairs,
        shape: Shape,
        keys: Keys<'_>,
        gates: &Gates,
        state: &mut [f32],
        v: &[f32],
        to: [&mut [f32]; 3],
    ) = forward_with
}

#[inline(always)]
unsafe fn forward_with<V: Vector>(
    shape: Shape,
    keys: Keys<'_>,
    gates: &Gates,
    state: &mut [f32],
    v: &[f32],
    [u, o, w]: [&mut [f32]; 3],
) {
    let values = shape.values;
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        let size = (CHUNK, values, shape.keys);
        multiply::<V>(w, values, false, rows(keys.k, shape.keys), state, size);
        let between = gates.weighted(keys.kk);
        for t in 0..CHUNK {
            let (before, rest) = u.split_at_mut(t * values);
            let u = &mut rest[..values];
            let part = t * values..(t + 1) * values;
            u.copy_from_slice(&v[part.clone()]);
            add_scaled::<V>(u, &w[part], -gates.from_start[t]);
            for (s, earlier) in before.chunks_exact(values).enumerate() {
                add_scaled::<V>(u, earlier, -between[t * CHUNK + s]);
            }
            scale_in_place::<V>(u, gates.beta[t]);
        }
        outputs_with::<V>(shape, keys, gates, state, u, o);
        advance_with::<V>(shape, keys, gates, state, u, w);
    }
}

widest! {
    /// Outputs `o` from the state before the chunk and the updates.
    pub fn outputs(
        pairs,
        shape: Shape,
        keys: Keys<'_>,
        gates: &Gates,
        state: &[f32],
        u: &[f32],
        o: &mut [f32],
    ) = outputs_with
}

#[inline(always)]
unsafe fn outputs_with<V: Vector>(
    shape: Shape,
    keys: Keys<'_>,
    gates: &Gates,
    state: &[f32],
    u: &[f32],
    o: &mut [f32],
) {
    let values = shape.values;
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        let size = (CHUNK, values, shape.keys);
        multiply::<V>(o, values, false, rows(keys.q, shape.keys), state, size);
        for (o, &factor) in o.chunks_exact_mut(values).zip(&gates.from_start) {
            scale_in_place::<V>(o, factor);
        }
        let weights = gates.weighted(keys.qk);
        let size = (CHUNK, values, CHUNK);
        multiply::<V>(o, values, true, rows(&weights, CHUNK), u, size);
    }
}

widest! {
    /// The state after the chunk, from its updates; `w` is scratch like them.
    pub fn advance(
        pairs,
        shape: Shape,
        keys: Keys<'_>,
        gates: &Gates,
        state: &mut [f32],
        u: &[f32],
        w: &mut [f32],
    ) = advance_with
}

#[inline(always)]
unsafe fn advance_with<V: Vector>(
    shape: Shape,
    keys: Keys<'_>,
    gates: &Gates,
    state: &mut [f32],
    u: &[f32],
    w: &mut [f32],
) {
    let values = shape.values;
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        scale_rows::<V>(w, u, values, gates.to_end());
        scale_in_place::<V>(state, gates.through());
        let size = (shape.keys, values, CHUNK);
        multiply::<V>(state, values, true, rows(keys.turned_k, CHUNK), w, size);
    }
}

/// Inputs of [`backward`]: updates of the forward and gradients with respect to the outputs, (CHUNK, values) each, and the state
/// before the chunk.
#[derive(Clone, Copy)]
pub struct Saved<'a> {
    pub state: &'a [f32],
    pub u: &'a [f32],
    pub doutputs: &'a [f32],
}

/// Gradients that [`backward`] computes.
pub struct Gradients<'a> {
    /// With respect to the state: after the chunk, then before it.
    pub state: &'a mut [f32],
    /// (CHUNK, values).
    pub v: &'a mut [f32],
    /// With respect to q and k, side by side: (keys, 2 CHUNK).
    pub qk: &'a mut [f32],
    /// With respect to the logit of β.
    pub b: [f32; CHUNK],
    /// With respect to the logarithm of the share that remains.
    pub log_remains: [f32; CHUNK],
}

/// Numbers of scratch memory for [`backward`].
pub fn scratch(shape: Shape) -> usize {
    5 * CHUNK * shape.values + CHUNK * shape.keys + 5 * SQUARE
}

widest! {
    /// The gradients of the chunk. With dS the gradient with respect to the state after the chunk, and r_t = −β_t du_t that with
    /// respect to what the state held under k_t:
    ///
    /// ```text
    /// du_t = D(end, t) dSᵀ k_t + Σ_{s≥t} D(s, t) (q_s · k_t) do_s + Σ_{s>t} D(s, t) (k_s · k_t) r_s
    /// dq_t = D(t, start) S do_t + Σ_{s≤t} D(t, s) (u_s · do_t) k_s
    /// dk_t = D(end, t) dS u_t + D(t, start) S r_t + Σ_{s≥t} D(s, t) (do_s · u_t) q_s
    ///      + Σ_{s>t} D(s, t) (r_s · u_t) k_s + Σ_{s<t} D(t, s) (u_s · r_t) k_s
    /// dS ← D(end, start) dS + Σ_s D(s, start) (q_s do_sᵀ + k_s r_sᵀ)
    /// ```
    ///
    /// and the gradient with respect to the logarithm of a decay is the sum over all terms of the forward that it is a factor of.
    pub fn backward(
        pairs,
        shape: Shape,
        keys: Keys<'_>,
        gates: &Gates,
        saved: Saved<'_>,
        grads: &mut Gradients<'_>,
        scratch: &mut [f32],
    ) = backward_with
}

#[inline(always)]
unsafe fn backward_with<V: Vector>(
    shape: Shape,
    keys: Keys<'_>,
    gates: &Gates,
    saved: Saved<'_>,
    grads: &mut Gradients<'_>,
    scratch: &mut [f32],
) {
    const TWO: usize = 2 * CHUNK;
    let Shape {
        keys: of_keys,
        values,
    } = shape;
    let (du, rest) = scratch.split_at_mut(CHUNK * values);
    let (held, rest) = rest.split_at_mut(CHUNK * values);
    let (turned, rest) = rest.split_at_mut(TWO * values);
    let (turned_u, rest) = rest.split_at_mut(CHUNK * values);
    let (by_state, rest) = rest.split_at_mut(CHUNK * of_keys);
    let (pairs, rest) = rest.split_at_mut(2 * SQUARE);
    let (from_keys, from_queries) = rest.split_at_mut(2 * SQUARE);
    let (u, dout) = (saved.u, saved.doutputs);
    let to_end: [f32; CHUNK] = std::array::from_fn(|t| gates.to_end()[t]);
    let (of_queries, between) = (gates.weighted(keys.qk), gates.weighted(keys.kk));
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        let size = (CHUNK, values, of_keys);
        let k = rows(keys.k, of_keys);
        multiply::<V>(du, values, false, k, grads.state, size);
        for (du, &factor) in du.chunks_exact_mut(values).zip(&to_end) {
            scale_in_place::<V>(du, factor);
        }
        let weights = transposed(&of_queries, CHUNK);
        multiply::<V>(du, values, true, weights, dout, (CHUNK, values, CHUNK));
        for t in (0..CHUNK).rev() {
            let row = t * values..(t + 1) * values;
            let du = &mut du[row.clone()];
            for s in t + 1..CHUNK {
                let later = &held[s * values..][..values];
                add_scaled::<V>(du, later, between[s * CHUNK + t]);
            }
            scale::<V>(&mut held[row.clone()], du, -gates.beta[t]);
            scale::<V>(&mut grads.v[row.clone()], du, gates.beta[t]);
            grads.b[t] = (1.0 - gates.beta[t]) * sum2(du, &u[row], |a, b| a * b);
        }
        // S do_t and S r_t for all t, in columns; dS u_t.
        turn::<V>(dout, values, turned, TWO);
        turn::<V>(held, values, &mut turned[CHUNK..], TWO);
        turn::<V>(u, values, turned_u, CHUNK);
        let state = rows(saved.state, values);
        multiply::<V>(grads.qk, TWO, false, state, turned, (of_keys, TWO, values));
        let state = rows(grads.state, values);
        let size = (of_keys, CHUNK, values);
        multiply::<V>(by_state, CHUNK, false, state, turned_u, size);
        // u_s · do_t at (s, t), and u_s · r_t at (s, CHUNK + t).
        let size = (CHUNK, TWO, values);
        multiply::<V>(pairs, TWO, false, rows(u, values), turned, size);
        // Sums over the features of q and k, one lane per token.
        let (mut start, mut end) = ([0.0; CHUNK], [0.0; CHUNK]);
        for i in 0..of_keys {
            let line = i * CHUNK..(i + 1) * CHUNK;
            let (q, k) = (&keys.turned_q[line.clone()], &keys.turned_k[line.clone()]);
            let (grads, by_state) = (&grads.qk[i * TWO..][..TWO], &by_state[line]);
            for t in 0..CHUNK {
                start[t] += q[t] * grads[t] + k[t] * grads[CHUNK + t];
                end[t] += k[t] * by_state[t];
            }
        }
        let mut passing = gates.through() * sum2(saved.state, grads.state, |a, b| a * b);
        for t in 0..CHUNK {
            grads.log_remains[t] = passing;
            passing += to_end[t] * end[t];
        }
        for s in 0..CHUNK {
            let mut passing = gates.from_start[s] * start[s];
            for t in 0..=s {
                grads.log_remains[t] += passing;
                let at = s * CHUNK + t;
                let pairs = &pairs[t * TWO..];
                passing += of_queries[at] * pairs[s] + between[at] * pairs[CHUNK + s];
            }
        }
        for s in 0..CHUNK {
            for t in 0..CHUNK {
                let (down, up) = (gates.decays[t * CHUNK + s], gates.decays[s * CHUNK + t]);
                from_keys[s * TWO + t] = down * pairs[s * TWO + t];
                from_queries[s * CHUNK + t] = up * pairs[t * TWO + s];
                from_keys[s * TWO + CHUNK + t] = match s.cmp(&t) {
                    std::cmp::Ordering::Less => down * pairs[s * TWO + CHUNK + t],
                    std::cmp::Ordering::Equal => 0.0,
                    std::cmp::Ordering::Greater => up * pairs[t * TWO + CHUNK + s],
                };
            }
        }
        for (row, by_state) in (grads.qk.chunks_exact_mut(TWO)).zip(by_state.chunks_exact(CHUNK)) {
            for t in 0..CHUNK {
                row[t] *= gates.from_start[t];
                row[CHUNK + t] *= gates.from_start[t];
                row[CHUNK + t] += to_end[t] * by_state[t];
            }
        }
        let k = rows(keys.turned_k, CHUNK);
        multiply::<V>(grads.qk, TWO, true, k, from_keys, (of_keys, TWO, CHUNK));
        let (q, size) = (rows(keys.turned_q, CHUNK), (of_keys, CHUNK, CHUNK));
        multiply::<V>(&mut grads.qk[CHUNK..], TWO, true, q, from_queries, size);
        // The state's gradient before the chunk.
        scale_in_place::<V>(grads.state, gates.through());
        let size = (of_keys, values, CHUNK);
        scale_rows::<V>(du, dout, values, &gates.from_start);
        multiply::<V>(grads.state, values, true, q, du, size);
        scale_rows::<V>(du, held, values, &gates.from_start);
        multiply::<V>(grads.state, values, true, k, du, size);
    }
}

/// The vectors of one token.
#[derive(Clone, Copy)]
pub struct Token<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
    pub remains: f32,
    pub beta: f32,
}

widest! {
    /// One token, its vectors padded: updates `u` and outputs `o` (values); advances `state`. S is read twice and written once.
    pub fn step(pairs, token: Token<'_>, state: &mut [f32], u: &mut [f32], o: &mut [f32]) = step_with
}

#[inline(always)]
unsafe fn step_with<V: Vector>(token: Token<'_>, state: &mut [f32], u: &mut [f32], o: &mut [f32]) {
    let (keys, values) = (token.k.len(), token.v.len());
    assert!(values.is_multiple_of(LINE) && token.q.len() == keys);
    assert!(state.len() >= keys * values && u.len() >= values && o.len() >= values);
    let along = sum2(token.q, token.k, |a, b| a * b);
    let mut at = 0;
    // SAFETY: columns within the lengths checked above; the caller guarantees the instructions.
    unsafe {
        while at + 4 * V::LANES <= values {
            columns::<V, 4>(token, along, at, state, u, o);
            at += 4 * V::LANES;
        }
        while at < values {
            columns::<V, 1>(token, along, at, state, u, o);
            at += V::LANES;
        }
    }
}

/// N registers of columns.
#[inline(always)]
unsafe fn columns<V: Vector, const N: usize>(
    token: Token<'_>,
    along: f32,
    at: usize,
    state: &mut [f32],
    u: &mut [f32],
    o: &mut [f32],
) {
    let values = token.v.len();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let state = state.as_mut_ptr().add(at);
        let (mut held, mut read) = ([V::zero(); N], [V::zero(); N]);
        for (i, (k, q)) in token.k.iter().zip(token.q).enumerate() {
            let (k, q) = (V::splat(k), V::splat(q));
            for n in 0..N {
                let s = V::load(state.add(i * values + n * V::LANES));
                held[n] = s.fused(k, held[n]);
                read[n] = s.fused(q, read[n]);
            }
        }
        let (remains, along) = (V::all(token.remains), V::all(along));
        let mut update = [V::zero(); N];
        for n in 0..N {
            let at = at + n * V::LANES;
            let v = V::load(token.v.as_ptr().add(at));
            update[n] = v.minus(held[n].times(remains)).times(V::all(token.beta));
            update[n].store(u.as_mut_ptr().add(at));
            let output = update[n].fused(along, read[n].times(remains));
            output.store(o.as_mut_ptr().add(at));
        }
        for (i, k) in token.k.iter().enumerate() {
            let k = V::splat(k);
            for (n, update) in update.iter().enumerate() {
                let s = state.add(i * values + n * V::LANES);
                V::load(s).times(remains).plus(k.times(*update)).store(s);
            }
        }
    }
}
