//! One chunk of keys and values, and the query heads that share them. In AVX-512's registers up to four heads use a key or a value
//! while it is there, so that one in bf16 is converted once.
#![allow(unsafe_code)]

use super::{CHUNK, Part, Token};
use crate::attention::Sizes;
use crate::fetch;
use crate::lanes::{Buffer, InLanes, LINE, Lanes, Vector, widest};
use crate::numbers::{Number, Values, bf16};

/// Keys whose scores are computed together.
const QUAD: usize = 4;
/// Query heads that use the same keys and values at once, at most.
const MEMBERS: usize = 4;
/// Columns of values whose sums stay in registers.
const COLUMNS: usize = 4 * LINE;

/// Some keys and values of one key/value head, and the token that attends to them.
pub(super) struct Chunk<'a> {
    token: &'a Token<'a>,
    kv: usize,
    /// The first key's row in the cache.
    first: usize,
    /// (n, head_dim) each.
    pub keys: Values<'a>,
    values: Values<'a>,
}

impl<'a> Chunk<'a> {
    pub fn new(token: &'a Token<'a>, head_dim: usize, kv: usize, chunk: usize) -> Self {
        let first = token.from + chunk * CHUNK;
        let n = CHUNK.min(token.to - first);
        let rows = kv * token.capacity + first;
        let rows = rows * head_dim..(rows + n) * head_dim;
        Chunk {
            token,
            kv,
            first,
            keys: token.keys.range(rows.clone()),
            values: token.values.range(rows),
        }
    }

    /// The number of keys.
    fn rows(&self, head_dim: usize) -> usize {
        self.keys.len() / head_dim
    }
}

widest! {
    pub(super) fn one_chunk(
        pairs,
        sizes: &Sizes<'_>,
        chunk: &Chunk<'_>,
        next_keys: Option<Values<'_>>,
        wide: &mut Buffer,
        part: &mut [f32],
    ) = one_chunk_with
}

/// Fills `part` with the results of a chunk for the query heads of its key/value head. Values are prefetched while scores are
/// computed, and the next chunk's keys while values are added.
///
/// # Safety
/// The machine must have V's instructions.
#[inline(always)]
unsafe fn one_chunk_with<V: Vector>(
    sizes: &Sizes<'_>,
    chunk: &Chunk<'_>,
    next_keys: Option<Values<'_>>,
    wide: &mut Buffer,
    part: &mut [f32],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (chunk.keys, chunk.values) {
            (Values::F32(keys), Values::F32(values)) => {
                all_heads::<V, _>(sizes, chunk, (keys, values), next_keys, part);
            }
            (Values::Bf16(keys), Values::Bf16(values)) if shares::<V>() => {
                all_heads::<V, _>(sizes, chunk, (keys, values), next_keys, part);
            }
            (Values::Bf16(keys), Values::Bf16(values)) => {
                // Heads that do not share registers would convert them again.
                let n = keys.len();
                let (wide_keys, wide_values) = wide.get(2 * n)[..2 * n].split_at_mut(n);
                widen::<V>(keys, wide_keys, &mut Ahead::new(chunk.values, n / LINE));
                widen::<V>(values, wide_values, &mut Ahead::default());
                let chunk_in_f32 = (&*wide_keys, &*wide_values);
                all_heads::<V, f32>(sizes, chunk, chunk_in_f32, next_keys, part);
            }
            _ => unreachable!("keys and values have one dtype"),
        }
    }
}

/// Whether registers are large and many enough for several query heads to use keys and values while they are there: 32 of
/// AVX-512, not the 16 of AVX2.
const fn shares<V: Vector>() -> bool {
    V::LANES == LINE
}

/// [`one_chunk_with`] for keys and values (n, d) of one dtype. The heads' results do not depend on how many are computed together.
#[inline(always)]
unsafe fn all_heads<V: Vector, N: InLanes>(
    sizes: &Sizes<'_>,
    chunk: &Chunk<'_>,
    keys_and_values: (&[N], &[N]),
    next_keys: Option<Values<'_>>,
    part: &mut [f32],
) {
    let d = sizes.heads.head_dim;
    let group = sizes.heads.n_head / sizes.heads.n_kv_head;
    let together = if shares::<V>() { MEMBERS } else { 1 };
    let times = chunk.rows(d) * group.div_ceil(together);
    let mut next = next_keys.map_or_else(Ahead::default, |next| Ahead::new(next, times));
    let mut next_values = Ahead::new(chunk.values, chunk.rows(d).div_ceil(QUAD));
    for first in (0..group).step_by(together) {
        let mut work = Work {
            sizes,
            chunk,
            keys: keys_and_values.0,
            values: keys_and_values.1,
            first,
            next_values,
            next,
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (group - first).min(together) {
                1 => work.heads::<V, 1>(part),
                2 => work.heads::<V, 2>(part),
                3 => work.heads::<V, 3>(part),
                _ => work.heads::<V, MEMBERS>(part),
            }
        }
        (next_values, next) = (Ahead::default(), work.next);
    }
}

/// Some query heads of a chunk.
struct Work<'a, N> {
    sizes: &'a Sizes<'a>,
    chunk: &'a Chunk<'a>,
    /// (n, head_dim) each.
    keys: &'a [N],
    values: &'a [N],
    /// The first head within its group.
    first: usize,
    /// What is prefetched meanwhile.
    next_values: Ahead,
    next: Ahead,
}

impl<N: InLanes> Work<'_, N> {
    /// Fills the parts of M heads in `part`, which has those of the whole group.
    #[inline(always)]
    unsafe fn heads<V: Vector, const M: usize>(&mut self, part: &mut [f32]) {
        let (sizes, chunk, d) = (self.sizes, self.chunk, self.sizes.heads.head_dim);
        let group = sizes.heads.n_head / sizes.heads.n_kv_head;
        let first_head = chunk.kv * group + self.first;
        let queries = &chunk.token.q[first_head * d..][..M * d];
        let n = chunk.rows(d);
        let width = Part::width(d);
        let parts = &mut part[self.first * width..][..M * width];
        let mut scores = [[0.0; CHUNK]; M];
        // SAFETY: guaranteed by the caller.
        unsafe { self.score::<V, M>(&mut scores, queries) };
        let distance = (chunk.token.to - 1 - chunk.first) as isize;
        let each = scores.iter_mut().zip(parts.chunks_exact_mut(width));
        for (member, (scores, part)) in each.enumerate() {
            let scores = &mut scores[..n];
            if !sizes.scores.is_plain() {
                sizes.scores.finish(first_head + member, distance, scores);
            }
            // SAFETY: guaranteed by the caller.
            (part[0], part[1]) = unsafe { to_weights::<V>(scores) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.blend::<V, M>(&mut parts[LINE..], width, &scores) };
    }

    /// For each of the queries (M, d): scores_j = scale · q · k_j for the keys (n, d), with a prefetch for each quad.
    #[inline(always)]
    unsafe fn score<V: Vector, const M: usize>(
        &mut self,
        scores: &mut [[f32; CHUNK]; M],
        queries: &[f32],
    ) {
        let d = queries.len() / M;
        let n = self.chunk.rows(d);
        let scale = self.sizes.scores.scale(d);
        for first in (0..n).step_by(QUAD) {
            self.next_values.step();
            // A last incomplete quad repeats the last key.
            let rows = std::array::from_fn(|j| &self.keys[(first + j).min(n - 1) * d..][..d]);
            // SAFETY: guaranteed by the caller; the rows have d numbers.
            let products = unsafe { products::<V, N, M>(queries, rows) };
            for (scores, products) in scores.iter_mut().zip(products) {
                scores[first..first + QUAD].copy_from_slice(&products.map(|x| scale * x));
            }
        }
    }

    /// out = Σ_j weights_j · values_j for the values (n, d) and each of M heads, whose `out` are `stride` apart; with a prefetch
    /// for each value.
    #[inline(always)]
    unsafe fn blend<V: Vector, const M: usize>(
        &mut self,
        out: &mut [f32],
        stride: usize,
        weights: &[[f32; CHUNK]; M],
    ) {
        let d = self.sizes.heads.head_dim;
        let mut at = 0;
        // SAFETY: guaranteed by the caller; the columns at.. of rows of d numbers.
        unsafe {
            while at + COLUMNS <= d {
                self.columns::<V, M, 4>((out, stride), at, weights);
                at += COLUMNS;
            }
            while at + LINE <= d {
                self.columns::<V, M, 1>((out, stride), at, weights);
                at += LINE;
            }
            for at in (at..d).step_by(V::LANES) {
                for (member, weights) in weights.iter().enumerate() {
                    let mut sum = V::zero();
                    for (&weight, row) in weights.iter().zip(self.values.chunks_exact(d)) {
                        let value = N::load_first(row.as_ptr().add(at), d - at);
                        sum = V::all(weight).fused(value, sum);
                    }
                    sum.store_first(out.as_mut_ptr().add(member * stride + at), d - at);
                }
            }
        }
    }

    /// LINES lines of columns of [`Work::blend`], from column `at` on, kept in registers.
    #[inline(always)]
    unsafe fn columns<V: Vector, const M: usize, const LINES: usize>(
        &mut self,
        (out, stride): (&mut [f32], usize),
        at: usize,
        weights: &[[f32; CHUNK]; M],
    ) {
        let rows = self.values.chunks_exact(self.sizes.heads.head_dim);
        // SAFETY: guaranteed by the caller: LINES lines from column `at` on.
        unsafe {
            let mut sums = [[Lanes::<V>::all(0.0); LINES]; M];
            for (j, row) in rows.enumerate().take(CHUNK) {
                self.next.step();
                let row = row.as_ptr().add(at);
                for line in 0..LINES {
                    for part in (0..LINE).step_by(V::LANES) {
                        let value: V = N::load(row.add(line * LINE + part));
                        for (sums, weights) in sums.iter_mut().zip(weights) {
                            let sum = sums[line].at(part);
                            *sum = V::all(weights[j]).fused(value, *sum);
                        }
                    }
                }
            }
            for (member, sums) in sums.iter_mut().enumerate() {
                for (line, sums) in sums.iter_mut().enumerate() {
                    for part in (0..LINE).step_by(V::LANES) {
                        let to = member * stride + at + line * LINE + part;
                        sums.at(part).store(out.as_mut_ptr().add(to));
                    }
                }
            }
        }
    }
}

/// The dot products of each of the queries (M, d) with rows of d numbers.
#[inline(always)]
unsafe fn products<V: Vector, N: InLanes, const M: usize>(
    queries: &[f32],
    rows: [&[N]; QUAD],
) -> [[f32; QUAD]; M] {
    let d = queries.len() / M;
    let whole = d / LINE * LINE;
    // SAFETY: guaranteed by the caller; whole lines, then the numbers that are left.
    unsafe {
        let mut sums = [[Lanes::<V>::all(0.0); QUAD]; M];
        for at in (0..whole).step_by(V::LANES) {
            let mut keys = [V::zero(); QUAD];
            for (key, row) in keys.iter_mut().zip(rows) {
                *key = N::load(row.as_ptr().add(at));
            }
            for (member, sums) in sums.iter_mut().enumerate() {
                let q = V::load(queries.as_ptr().add(member * d + at));
                for (sum, key) in sums.iter_mut().zip(keys) {
                    let sum = sum.at(at);
                    *sum = q.fused(key, *sum);
                }
            }
        }
        for at in (whole..d).step_by(V::LANES) {
            for (member, sums) in sums.iter_mut().enumerate() {
                let q = V::load_first(queries.as_ptr().add(member * d + at), d - at);
                for (sum, row) in sums.iter_mut().zip(rows) {
                    let sum = sum.at(at);
                    *sum = q.fused(N::load_first(row.as_ptr().add(at), d - at), *sum);
                }
            }
        }
        let mut products = [[0.0; QUAD]; M];
        for (products, sums) in products.iter_mut().zip(sums) {
            *products = Lanes::totals(sums);
        }
        products
    }
}

/// Replaces scores by e^(score − top). Returns the largest score, `top`, and the sum of the weights.
#[inline(always)]
unsafe fn to_weights<V: Vector>(scores: &mut [f32]) -> (f32, f32) {
    let n = scores.len();
    let start = scores.as_mut_ptr();
    // SAFETY: guaranteed by the caller; n − at numbers are left.
    unsafe {
        let lowest = f32::NEG_INFINITY;
        let mut tops = Lanes::<V>::all(lowest);
        for at in (0..n).step_by(V::LANES) {
            let x = V::load_first(start.add(at), n - at).keep_first(n - at, lowest);
            // NaN is skipped: the second operand is kept.
            *tops.at(at) = x.max(*tops.at(at));
        }
        let top = tops.max_lane();
        // Scores of a chunk may all be −∞; their weights are 0 beside those of other chunks.
        let base = V::all(if top == lowest { 0.0 } else { top });
        let mut sums = Lanes::<V>::all(0.0);
        for at in (0..n).step_by(V::LANES) {
            let x = V::load_first(start.add(at), n - at);
            let weight = x.minus(base).exp_to_one().keep_first(n - at, 0.0);
            *sums.at(at) = sums.at(at).plus(weight);
            weight.store_first(start.add(at), n - at);
        }
        (top, sums.total())
    }
}

/// `to` = `from`, of equal length, with a step of `next` for each line.
#[inline(always)]
unsafe fn widen<V: Vector>(from: &[bf16], to: &mut [f32], next: &mut Ahead) {
    let (lines, rest) = from.as_chunks::<LINE>();
    let (to_lines, to_rest) = to.as_chunks_mut::<LINE>();
    for (from, to) in lines.iter().zip(to_lines) {
        next.step();
        for at in (0..LINE).step_by(V::LANES) {
            // SAFETY: guaranteed by the caller; a line is a whole number of registers.
            unsafe { V::load_bf16(from.as_ptr().add(at)).store(to.as_mut_ptr().add(at)) };
        }
    }
    for (to, from) in to_rest.iter_mut().zip(rest) {
        *to = from.wide();
    }
}

/// Prefetches an array in equal parts.
#[derive(Clone, Copy)]
struct Ahead {
    at: *const u8,
    /// Bytes.
    left: usize,
    step: usize,
}

impl Default for Ahead {
    /// Nothing.
    fn default() -> Self {
        Ahead {
            at: std::ptr::null(),
            left: 0,
            step: 0,
        }
    }
}

impl Ahead {
    /// `values` in `times` steps.
    #[inline(always)]
    fn new(values: Values<'_>, times: usize) -> Self {
        const LINE_BYTES: usize = LINE * size_of::<f32>();
        let (at, left) = match values {
            Values::F32(x) => (x.as_ptr().cast(), size_of_val(x)),
            Values::Bf16(x) => (x.as_ptr().cast(), size_of_val(x)),
        };
        Ahead {
            at,
            left,
            step: left.div_ceil(times.max(1)).next_multiple_of(LINE_BYTES),
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        if self.left > 0 {
            let now = self.step.min(self.left);
            fetch::at(self.at, now);
            // Only for its address; never read through.
            self.at = self.at.wrapping_add(now);
            self.left -= now;
        }
    }
}
