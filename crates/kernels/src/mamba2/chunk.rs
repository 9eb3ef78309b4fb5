//! The recurrence over a chunk of tokens at once, for one head. With D(t, s) the product of what remains of S at tokens s+1..=t, S the
//! state before the chunk and u_t = dt_t x_t, it is, exactly:
//!
//! ```text
//! y_t = D(t, start) Sᵀ C_t + Σ_{s≤t} D(t, s) (C_t · B_s) u_s
//! S ← D(end, start) S + Σ_s D(end, s) B_s u_sᵀ
//! ```
//!
//! so S is read and written once a chunk, by matmuls. Decays are at most 1 and are only multiplied, never divided: a strong one gives
//! 0, not ∞ or NaN. A document begins with a decay of 0. Missing tokens of a last chunk are zeros that decay by 1.
#![allow(unsafe_code)]

use super::CHUNK;
use crate::lanes::scratch::Carver;
use crate::lanes::small::{
    multiply, multiply_part, rows, scale_in_place, scale_rows, transposed, turn,
};
use crate::lanes::{LINE, Vector, widest};
use crate::math::{flush_subnormal, sum2};
use crate::simd::multiversion;

/// Features of B and C and of a head, padded by zeros to whole lines.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub keys: usize,
    pub values: usize,
}

impl Shape {
    pub fn of(state_dim: usize, head_dim: usize) -> Shape {
        Shape {
            keys: state_dim.next_multiple_of(LINE),
            values: head_dim.next_multiple_of(LINE),
        }
    }

    /// Numbers of S.
    pub fn state(self) -> usize {
        self.keys * self.values
    }
}

/// B and C of a chunk, which heads of a group share.
pub struct Keys<'a> {
    /// Of the chunk, whole lines.
    tokens: usize,
    /// (tokens, keys).
    pub b: &'a mut [f32],
    pub c: &'a mut [f32],
    /// Their transposes, (keys, tokens).
    turned_b: &'a mut [f32],
    turned_c: &'a mut [f32],
    /// C_t · B_s at (t, s), up to the end of the line that t is in.
    cb: &'a mut [f32],
}

impl<'a> Keys<'a> {
    pub fn scratch(shape: Shape) -> usize {
        4 * CHUNK * shape.keys + CHUNK * CHUNK
    }

    pub fn of(carver: &mut Carver<'a>, shape: Shape) -> Keys<'a> {
        let mut take = || carver.take(CHUNK * shape.keys);
        let (b, c, turned_b, turned_c) = (take(), take(), take(), take());
        Keys {
            tokens: 0,
            b,
            c,
            turned_b,
            turned_c,
            cb: carver.take(CHUNK * CHUNK),
        }
    }

    /// Takes B and C of up to a chunk of rows, each `state_dim` of B, then as many of C.
    pub fn load<'r>(
        &mut self,
        shape: Shape,
        state_dim: usize,
        rows: impl ExactSizeIterator<Item = [&'r [f32]; 2]>,
    ) {
        self.tokens = rows.len().next_multiple_of(LINE);
        self.b.fill(0.0);
        self.c.fill(0.0);
        let to = self.b.chunks_exact_mut(shape.keys);
        let to = to.zip(self.c.chunks_exact_mut(shape.keys));
        for ((to_b, to_c), [b, c]) in to.zip(rows) {
            to_b[..state_dim].copy_from_slice(b);
            to_c[..state_dim].copy_from_slice(c);
        }
    }

    /// Computes the products, and with the transpose of C if `backward`.
    pub fn multiply(&mut self, shape: Shape, backward: bool) {
        // SAFETY: the dispatch picks only instructions that the machine has.
        unsafe { products(false, shape, self, backward) }
    }

    fn cb(&self) -> &[f32] {
        &self.cb[..self.tokens * self.tokens]
    }

    fn turned(&self, shape: Shape) -> [&[f32]; 2] {
        let len = shape.keys * self.tokens;
        [&self.turned_b[..len], &self.turned_c[..len]]
    }

    /// B and C of one token.
    pub fn token(&self, shape: Shape, t: usize) -> [&[f32]; 2] {
        let row = t * shape.keys..(t + 1) * shape.keys;
        [&self.b[row.clone()], &self.c[row]]
    }

    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

widest! {
    fn products(pairs, shape: Shape, keys: &mut Keys<'_>, backward: bool) = products_with
}

#[inline(always)]
unsafe fn products_with<V: Vector>(shape: Shape, keys: &mut Keys<'_>, backward: bool) {
    let (n, width) = (keys.tokens, shape.keys);
    let len = n * width;
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        turn::<V>(&keys.b[..len], width, &mut keys.turned_b[..len], n);
        if backward {
            turn::<V>(&keys.c[..len], width, &mut keys.turned_c[..len], n);
        }
        lower::<V>(
            &mut keys.cb[..n * n],
            n,
            (&keys.c[..len], width),
            &keys.turned_b[..len],
        );
    }
}

/// `to` (n, n) = x (n, k) · `right` (k, n), of each row up to the end of the line of its diagonal.
#[inline(always)]
unsafe fn lower<V: Vector>(to: &mut [f32], n: usize, (x, k): (&[f32], usize), right: &[f32]) {
    for from in (0..n).step_by(LINE) {
        let size = (LINE, from + LINE, k);
        let to = (&mut to[from * n..], n);
        // SAFETY: guaranteed by the caller.
        unsafe { multiply_part::<V>(to, false, rows(&x[from * k..], k), (right, n), size) }
    }
}

/// The factors of a head in a chunk.
pub struct Gates<'a> {
    tokens: usize,
    /// D(t, s), (tokens, tokens); 0 for s > t.
    decays: &'a mut [f32],
    /// D(t, start).
    from_start: [f32; CHUNK],
    /// D(t, s) (C_t · B_s), of each row up to the end of the line of its diagonal.
    weights: &'a mut [f32],
}

impl<'a> Gates<'a> {
    pub fn scratch() -> usize {
        2 * CHUNK * CHUNK
    }

    pub fn of(carver: &mut Carver<'a>) -> Gates<'a> {
        Gates {
            tokens: 0,
            decays: carver.take(CHUNK * CHUNK),
            from_start: [1.0; CHUNK],
            weights: carver.take(CHUNK * CHUNK),
        }
    }

    /// Takes the share of the state that remains at each token; 1 beyond the last.
    pub fn load(&mut self, remains: &[f32; CHUNK], keys: &Keys) {
        let n = keys.tokens;
        self.tokens = n;
        decay(
            &mut self.decays[..n * n],
            &remains[..n],
            &mut self.from_start,
        );
        weigh(
            &mut self.weights[..n * n],
            &self.decays[..n * n],
            keys.cb(),
            n,
        );
    }

    /// D(end, s).
    fn to_end(&self) -> &[f32] {
        &self.decays[(self.tokens - 1) * self.tokens..][..self.tokens]
    }

    /// D(end, start).
    fn through(&self) -> f32 {
        self.from_start[self.tokens - 1]
    }
}

multiversion! {
    /// D(t, s) of all pairs, and D(t, start), from what remains at each token.
    fn decay(decays: &mut [f32], remains: &[f32], from_start: &mut [f32; CHUNK]) {
        let n = remains.len();
        let mut row = [0.0; CHUNK];
        let mut from = 1.0;
        for (t, (to, &remains)) in decays.chunks_exact_mut(n).zip(remains).enumerate() {
            for decay in &mut row {
                *decay = flush_subnormal(*decay * remains);
            }
            row[t] = 1.0;
            from = flush_subnormal(from * remains);
            from_start[t] = from;
            to.copy_from_slice(&row[..n]);
        }
    }
}

multiversion! {
    /// `to` = `a` ∘ `b` (n, n), of each row up to the end of the line of its diagonal.
    fn weigh(to: &mut [f32], a: &[f32], b: &[f32], n: usize) {
        for t in 0..n {
            let row = t * n..t * n + (t / LINE + 1) * LINE;
            let all = to[row.clone()].iter_mut().zip(&a[row.clone()]);
            for ((to, &a), &b) in all.zip(&b[row]) {
                *to = a * b;
            }
        }
    }
}

widest! {
    /// From `u` to outputs and scratch (`to`, in this order), (tokens, values) each; advances `state`.
    pub fn forward(
        pairs,
        shape: Shape,
        keys: &Keys<'_>,
        gates: &Gates<'_>,
        state: &mut [f32],
        u: &[f32],
        to: [&mut [f32]; 2],
    ) = forward_with
}

#[inline(always)]
unsafe fn forward_with<V: Vector>(
    shape: Shape,
    keys: &Keys<'_>,
    gates: &Gates<'_>,
    state: &mut [f32],
    u: &[f32],
    [y, w]: [&mut [f32]; 2],
) {
    let (n, values) = (keys.tokens, shape.values);
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        let size = (n, values, shape.keys);
        multiply::<V>(y, values, false, rows(keys.c, shape.keys), state, size);
        for (y, &factor) in y.chunks_exact_mut(values).zip(&gates.from_start).take(n) {
            scale_in_place::<V>(y, factor);
        }
        for from in (0..n).step_by(LINE) {
            let (to, left) = (&mut y[from * values..], &gates.weights[from * n..]);
            let size = (LINE, values, from + LINE);
            multiply::<V>(to, values, true, rows(left, n), u, size);
        }
        scale_rows::<V>(w, u, values, gates.to_end());
        scale_in_place::<V>(state, gates.through());
        let (left, size) = (rows(keys.turned(shape)[0], n), (shape.keys, values, n));
        multiply::<V>(state, values, true, left, w, size);
    }
}

/// Inputs of [`backward`]: the state before the chunk, `u` and the gradient with respect to the outputs, (tokens, values) each.
#[derive(Clone, Copy)]
pub struct Saved<'a> {
    pub state: &'a [f32],
    pub u: &'a [f32],
    pub dy: &'a [f32],
}

/// Gradients that [`backward`] adds to or computes.
pub struct Gradients<'a> {
    /// With respect to the state: after the chunk, then before it.
    pub state: &'a mut [f32],
    /// = that with respect to `u`, (tokens, values).
    pub u: &'a mut [f32],
    /// += those with respect to B and C through the state, (keys, tokens).
    pub b: &'a mut [f32],
    pub c: &'a mut [f32],
    /// += those with respect to C_t · B_s, (tokens, tokens).
    pub cb: &'a mut [f32],
    /// = that with respect to the logarithm of what remains.
    pub log_remains: [f32; CHUNK],
}

/// Numbers of scratch memory for [`backward`].
pub fn scratch(shape: Shape) -> usize {
    3 * CHUNK * shape.values + CHUNK * shape.keys + CHUNK * CHUNK
}

widest! {
    /// The gradients of a chunk. With dS the gradient with respect to the state after it:
    ///
    /// ```text
    /// du_t = D(end, t) dSᵀ B_t + Σ_{s≥t} D(s, t) (C_s · B_t) dy_s
    /// d(C_t · B_s) = D(t, s) (dy_t · u_s)
    /// dC_t = D(t, start) S dy_t + Σ_{s≤t} d(C_t · B_s) B_s,  dB_s = D(end, s) dS u_s + Σ_{t≥s} d(C_t · B_s) C_t
    /// dS ← D(end, start) dS + Σ_s D(s, start) C_s dy_sᵀ
    /// ```
    ///
    /// and the gradient with respect to the logarithm of a decay is the sum over all terms of the forward that it is a factor of. The
    /// sums over s or t in dC and dB are left to [`share`], for all heads at once.
    pub fn backward(
        pairs,
        shape: Shape,
        keys: &Keys<'_>,
        gates: &Gates<'_>,
        saved: Saved<'_>,
        grads: &mut Gradients<'_>,
        scratch: &mut [f32],
    ) = backward_with
}

#[inline(always)]
unsafe fn backward_with<V: Vector>(
    shape: Shape,
    keys: &Keys<'_>,
    gates: &Gates<'_>,
    saved: Saved<'_>,
    grads: &mut Gradients<'_>,
    scratch: &mut [f32],
) {
    let (n, values, of_keys) = (keys.tokens, shape.values, shape.keys);
    let (len, turned_len) = (n * values, of_keys * n);
    let (turned_u, rest) = scratch.split_at_mut(CHUNK * values);
    let (turned_dy, rest) = rest.split_at_mut(CHUNK * values);
    let (w, rest) = rest.split_at_mut(CHUNK * values);
    let (by_state, pairs) = rest.split_at_mut(CHUNK * of_keys);
    let (turned_u, turned_dy) = (&mut turned_u[..len], &mut turned_dy[..len]);
    let (by_state, pairs) = (&mut by_state[..turned_len], &mut pairs[..n * n]);
    let (u, dy, state) = (&saved.u[..len], &saved.dy[..len], saved.state);
    let turned_c = keys.turned(shape)[1];
    let (mut start, mut end) = ([0.0; CHUNK], [0.0; CHUNK]);
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        let size = (n, values, of_keys);
        let du = &mut grads.u[..len];
        multiply::<V>(du, values, false, rows(keys.b, of_keys), grads.state, size);
        let each = du.chunks_exact_mut(values).zip(u.chunks_exact(values));
        for ((du, u), (end, &factor)) in each.zip(end.iter_mut().zip(gates.to_end())) {
            scale_in_place::<V>(du, factor);
            *end = sum2(du, u, |a, b| a * b);
        }
        for from in (0..n).step_by(LINE) {
            let left = transposed(&gates.weights[from * n + from..], n);
            let (to, right) = (&mut du[from * values..], &dy[from * values..]);
            multiply::<V>(to, values, true, left, right, (LINE, values, n - from));
        }
        turn::<V>(u, values, turned_u, n);
        turn::<V>(dy, values, turned_dy, n);
        lower::<V>(pairs, n, (dy, values), turned_u);
        let size = (of_keys, n, values);
        multiply::<V>(by_state, n, false, rows(state, values), turned_dy, size);
        add_scaled_columns(grads.c, by_state, &gates.from_start[..n]);
        along_columns(&mut start[..n], turned_c, by_state);
        multiply::<V>(
            by_state,
            n,
            false,
            rows(grads.state, values),
            turned_u,
            size,
        );
        add_scaled_columns(grads.b, by_state, gates.to_end());
        for (start, &factor) in start.iter_mut().zip(&gates.from_start).take(n) {
            *start *= factor;
        }
        let through = gates.through() * sum2(state, grads.state, |a, b| a * b);
        add_pairs(grads.cb, &gates.decays[..n * n], pairs, n);
        // What D(t, s) is a factor of.
        for t in 0..n {
            let row = t * n..t * n + t;
            let weights = &gates.weights[row.clone()];
            for (pair, &weight) in pairs[row].iter_mut().zip(weights) {
                *pair *= weight;
            }
        }
        grads.log_remains = passing(pairs, n, [&start, &end], through);
        scale_in_place::<V>(grads.state, gates.through());
        scale_rows::<V>(&mut w[..len], dy, values, &gates.from_start[..n]);
        let size = (of_keys, values, n);
        multiply::<V>(grads.state, values, true, rows(turned_c, n), w, size);
    }
}

multiversion! {
    /// `to` (rows, n) += `x` ∘ `factors` in each row.
    fn add_scaled_columns(to: &mut [f32], x: &[f32], factors: &[f32]) {
        let n = factors.len();
        for (to, x) in to.chunks_exact_mut(n).zip(x.chunks_exact(n)) {
            for ((to, &x), &factor) in to.iter_mut().zip(x).zip(factors) {
                *to += x * factor;
            }
        }
    }
}

multiversion! {
    /// `sums` (n) += Σ over rows of `a` ∘ `b` (rows, n).
    fn along_columns(sums: &mut [f32], a: &[f32], b: &[f32]) {
        let n = sums.len();
        for (a, b) in a.chunks_exact(n).zip(b.chunks_exact(n)) {
            for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
                *sum += a * b;
            }
        }
    }
}

multiversion! {
    /// `to` (n, n) += `decays` ∘ `pairs`, of each row up to the end of the line of its diagonal.
    fn add_pairs(to: &mut [f32], decays: &[f32], pairs: &[f32], n: usize) {
        for t in 0..n {
            let row = t * n..t * n + (t / LINE + 1) * LINE;
            let all = to[row.clone()].iter_mut().zip(&decays[row.clone()]);
            for ((to, &decay), &pair) in all.zip(&pairs[row]) {
                *to += decay * pair;
            }
        }
    }
}

multiversion! {
    /// The gradient with respect to the logarithm of what remains at each token r: Σ of the terms that pass it, between pairs (t, s)
    /// with s < r ≤ t, from the start to t ≥ r, from s < r to the end, and from the start to the end.
    fn passing(pairs: &[f32], n: usize, ends: [&[f32; CHUNK]; 2], through: f32) -> [f32; CHUNK] {
        let [start, end] = ends;
        let mut gradient = [0.0; CHUNK];
        let (mut columns, mut later) = ([0.0; CHUNK], 0.0);
        for r in (0..n).rev() {
            for (column, &pair) in columns.iter_mut().zip(&pairs[r * n..][..r]) {
                *column += pair;
            }
            later += start[r];
            gradient[r] = through + later + sum2(&columns[..r], &columns[..r], |a, _| a);
        }
        let mut earlier = 0.0;
        for (gradient, &end) in gradient.iter_mut().zip(end).take(n) {
            *gradient += earlier;
            earlier += end;
        }
        gradient
    }
}

widest! {
    /// Adds what the gradients with respect to C_t · B_s, `dcb` (tokens, tokens), give to those with respect to B and C, (keys,
    /// tokens); `turned` is scratch like `dcb`.
    pub fn share(
        pairs,
        shape: Shape,
        keys: &Keys<'_>,
        dcb: &[f32],
        db: &mut [f32],
        dc: &mut [f32],
        turned: &mut [f32],
    ) = share_with
}

#[inline(always)]
unsafe fn share_with<V: Vector>(
    shape: Shape,
    keys: &Keys<'_>,
    dcb: &[f32],
    db: &mut [f32],
    dc: &mut [f32],
    turned: &mut [f32],
) {
    let n = keys.tokens;
    let [turned_b, turned_c] = keys.turned(shape);
    let size = (shape.keys, n, n);
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        turn::<V>(&dcb[..n * n], n, turned, n);
        multiply::<V>(dc, n, true, rows(turned_b, n), turned, size);
        multiply::<V>(db, n, true, rows(turned_c, n), dcb, size);
    }
}

/// The vectors of one token of a head, padded.
#[derive(Clone, Copy)]
pub struct Token<'a> {
    pub b: &'a [f32],
    pub c: &'a [f32],
    pub u: &'a [f32],
    pub remains: f32,
}

widest! {
    /// One token: advances `state` and computes `y`. S is read and written once.
    pub fn step(pairs, token: Token<'_>, state: &mut [f32], y: &mut [f32]) = step_with
}

#[inline(always)]
unsafe fn step_with<V: Vector>(token: Token<'_>, state: &mut [f32], y: &mut [f32]) {
    let (keys, values) = (token.b.len(), token.u.len());
    assert!(values.is_multiple_of(LINE) && token.c.len() == keys);
    assert!(state.len() >= keys * values && y.len() >= values);
    let mut at = 0;
    // SAFETY: columns within the lengths checked above; the caller guarantees the instructions.
    unsafe {
        while at + 4 * V::LANES <= values {
            columns::<V, 4>(token, at, state, y);
            at += 4 * V::LANES;
        }
        while at < values {
            columns::<V, 1>(token, at, state, y);
            at += V::LANES;
        }
    }
}

/// N registers of columns.
#[inline(always)]
unsafe fn columns<V: Vector, const N: usize>(
    token: Token<'_>,
    at: usize,
    state: &mut [f32],
    y: &mut [f32],
) {
    let values = token.u.len();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let state = state.as_mut_ptr().add(at);
        let remains = V::all(token.remains);
        let (mut u, mut read) = ([V::zero(); N], [V::zero(); N]);
        for (n, u) in u.iter_mut().enumerate() {
            *u = V::load(token.u.as_ptr().add(at + n * V::LANES));
        }
        for (i, (b, c)) in token.b.iter().zip(token.c).enumerate() {
            let (b, c) = (V::splat(b), V::splat(c));
            for n in 0..N {
                let s = state.add(i * values + n * V::LANES);
                let new = V::load(s).times(remains).plus(b.times(u[n]));
                new.store(s);
                read[n] = new.fused(c, read[n]);
            }
        }
        for (n, read) in read.into_iter().enumerate() {
            read.store(y.as_mut_ptr().add(at + n * V::LANES));
        }
    }
}
