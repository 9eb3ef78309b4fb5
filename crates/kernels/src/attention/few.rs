//! Attention of single new tokens over a long KV cache: decode.
//!
//! Keys and values of a head are read from memory once for all query heads that share them (Ainslie et al. 2023), in chunks
//! that are distributed over the threads; the chunks' softmaxes are merged afterwards (Dao et al. 2023, Flash-Decoding). Chunks
//! are counted from a token's first visible key, so its result depends neither on the threads nor on other tokens of the pass.
#![allow(unsafe_code)]

use super::Sizes;
use crate::fetch;
use crate::lanes::{Buffer, LINE, Lanes, Vector, widest};
use crate::math::exp;
use crate::numbers::{Number, Values, bf16};
use crate::simd::multiversion;
use crate::threads::{self, SharedSlice};
use std::cell::RefCell;

/// Keys per chunk: with head_dim 64 its keys and values are 16 KiB in f32, so that the next chunk's keys fit beside them into an L1
/// cache of 32 KiB.
const CHUNK: usize = 32;
/// Keys whose scores are computed together.
const QUAD: usize = 4;
/// Query heads that are scored against the same keys at once.
const MEMBERS: usize = 4;
/// Columns of values whose sums stay in registers.
const COLUMNS: usize = 4 * LINE;
/// Tasks for each thread. Each is a run of chunks, so that a thread can prefetch its next one.
const TASKS_PER_THREAD: usize = 4;

/// A new token and what it attends to.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    /// All query heads, rotated: (q_width).
    pub q: &'a [f32],
    /// For each key/value head `capacity` rows of head_dim.
    pub keys: Values<'a>,
    pub values: Values<'a>,
    pub capacity: usize,
    /// The visible rows of the cache are from..to.
    pub from: usize,
    pub to: usize,
    /// Its row of the output.
    pub row: usize,
}

impl Token<'_> {
    fn chunks(&self) -> usize {
        (self.to - self.from).div_ceil(CHUNK)
    }
}

thread_local! {
    /// The parts of all chunks, see [`Part`].
    static PARTS: RefCell<Buffer> = RefCell::new(Buffer::default());
    /// Keys and values of a chunk in f32, if they are stored otherwise.
    static WIDE: RefCell<Buffer> = RefCell::new(Buffer::default());
}

/// The layout of one chunk's result for one query head: the largest score, the sum of the weights relative to it, and from LINE
/// on the values weighted so.
struct Part;

impl Part {
    fn width(head_dim: usize) -> usize {
        LINE + head_dim.next_multiple_of(LINE)
    }
}

/// Fills the tokens' rows of `out` (rows, q_width).
pub(super) fn forward(sizes: Sizes, tokens: &[Token], out: &mut [f32]) {
    let heads = sizes.heads;
    let (d, n_kv_head) = (heads.head_dim, heads.n_kv_head);
    let group = heads.n_head / n_kv_head;
    let width = group * Part::width(d);
    let firsts = first_chunks(tokens, n_kv_head);
    let n = firsts[tokens.len()];
    // Taken, not borrowed: a thread that waits for others may meanwhile run another pass.
    let mut buffer = PARTS.take();
    let parts = SharedSlice::new(&mut buffer.get(n * width)[..n * width]);
    let place = |at: usize| {
        let token = firsts.partition_point(|first| *first <= at) - 1;
        let (within, token) = (at - firsts[token], &tokens[token]);
        let (kv, chunk) = (within / token.chunks(), within % token.chunks());
        Chunk::new(token, d, kv, chunk)
    };
    let run = n.div_ceil(TASKS_PER_THREAD * rayon::current_num_threads());
    let keys = tokens.iter().map(|token| token.to - token.from).max();
    let cost = 4 * group * d * CHUNK.min(keys.unwrap_or(0));
    threads::tasks(n.div_ceil(run.max(1)), run * cost, |task| {
        let end = n.min((task + 1) * run);
        let mut next = Some(place(task * run));
        for at in task * run..end {
            let Some(chunk) = next else { break };
            next = (at + 1 < end).then(|| place(at + 1));
            let next_keys = next.as_ref().map(|next| next.keys);
            // SAFETY: each chunk has its own part; the level guarantees the instructions.
            WIDE.with_borrow_mut(|wide| unsafe {
                let part = parts.range(at * width..(at + 1) * width);
                one_chunk(false, &sizes, &chunk, next_keys, wide, part);
            });
        }
    });
    let out = SharedSlice::new(out);
    let cost = 2 * group * d * n.div_ceil(tokens.len().max(1));
    threads::tasks(tokens.len() * n_kv_head, cost, |unit| {
        let (at, kv) = (unit / n_kv_head, unit % n_kv_head);
        let (token, first) = (&tokens[at], firsts[at]);
        let first = first + kv * token.chunks();
        let to = (token.row * heads.n_head + kv * group) * d;
        // SAFETY: all parts are written, and each task owns the heads of its unit.
        unsafe {
            let parts = parts.range(first * width..(first + token.chunks()) * width);
            let out = out.range(to..to + group * d);
            for (member, out) in out.chunks_exact_mut(d).enumerate() {
                merge(&parts[member * Part::width(d)..], width, out);
            }
        }
    });
    PARTS.set(buffer);
}

/// The number of each token's first chunk, and behind the last the number of all. A token's chunks are those of its first
/// key/value head, then of its second, …: texts of any lengths have as many as they need.
fn first_chunks(tokens: &[Token], n_kv_head: usize) -> Vec<usize> {
    let mut end = 0;
    let ends = tokens.iter().map(|token| {
        end += n_kv_head * token.chunks();
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Some keys and values of one key/value head, and the token that attends to them.
struct Chunk<'a> {
    token: &'a Token<'a>,
    kv: usize,
    /// The first key's row in the cache.
    first: usize,
    /// (n, head_dim) each.
    keys: Values<'a>,
    values: Values<'a>,
}

impl<'a> Chunk<'a> {
    fn new(token: &'a Token<'a>, head_dim: usize, kv: usize, chunk: usize) -> Self {
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
}

widest! {
    fn one_chunk(
        pairs,
        sizes: &Sizes<'_>,
        chunk: &Chunk<'_>,
        next_keys: Option<Values<'_>>,
        wide: &mut Buffer,
        part: &mut [f32],
    ) = one_chunk_with
}

/// Fills `part` with the results of a chunk for the query heads of its key/value head. Values are prefetched while scores are
/// computed, and the next chunk's keys while values are added. Keys and values in bf16 are converted once for all query heads, in
/// `wide`.
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
    let d = sizes.heads.head_dim;
    let group = sizes.heads.n_head / sizes.heads.n_kv_head;
    let queries = &chunk.token.q[chunk.kv * group * d..][..group * d];
    let n = chunk.keys.len() / d;
    let scale = sizes.scores.scale(d);
    let distance = (chunk.token.to - 1 - chunk.first) as isize;
    let width = Part::width(d);
    let mut next = next_keys.map_or_else(Ahead::default, |next| Ahead::new(next, group * n));
    let (wide_keys, wide_values) = room(wide, chunk);
    // SAFETY: guaranteed by the caller.
    let keys = unsafe { as_f32::<V>(chunk.keys, wide_keys) };
    let (mut values, mut wide_values) = (&[][..], Some(wide_values));
    let parts = part.chunks_mut(MEMBERS * width);
    for (at, (queries, parts)) in queries.chunks(MEMBERS * d).zip(parts).enumerate() {
        let mut scores = [[0.0; CHUNK]; MEMBERS];
        let scores = &mut scores[..queries.len() / d];
        let mut next_values = match at {
            0 => Ahead::new(chunk.values, n.div_ceil(QUAD)),
            _ => Ahead::default(),
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            score::<V>(scores, queries, keys, scale, &mut next_values);
            if let Some(wide) = wide_values.take() {
                values = as_f32::<V>(chunk.values, wide);
            }
        }
        let parts = parts.chunks_exact_mut(width);
        for (member, (scores, part)) in scores.iter_mut().zip(parts).enumerate() {
            let scores = &mut scores[..n];
            if !sizes.scores.is_plain() {
                let h = chunk.kv * group + at * MEMBERS + member;
                sizes.scores.finish(h, distance, scores);
            }
            let (constants, weighted) = part.split_at_mut(LINE);
            // SAFETY: guaranteed by the caller.
            unsafe {
                (constants[0], constants[1]) = to_weights::<V>(scores);
                blend::<V>(&mut weighted[..d], scores, values, &mut next);
            }
        }
    }
}

/// Memory for the keys and values of a chunk in f32; empty if they are f32 already.
#[inline(always)]
fn room<'a>(wide: &'a mut Buffer, chunk: &Chunk<'_>) -> (&'a mut [f32], &'a mut [f32]) {
    let n = match chunk.keys {
        Values::F32(_) => 0,
        Values::Bf16(keys) => keys.len(),
    };
    wide.get(2 * n)[..2 * n].split_at_mut(n)
}

/// The values as f32: in place, or converted into `wide`, which is as long then.
#[inline(always)]
unsafe fn as_f32<'a, V: Vector>(values: Values<'a>, wide: &'a mut [f32]) -> &'a [f32] {
    match values {
        Values::F32(values) => values,
        Values::Bf16(values) => {
            // SAFETY: guaranteed by the caller.
            unsafe { widen::<V>(values, wide) };
            wide
        }
    }
}

/// `to` = `from`, of equal length.
#[inline(always)]
unsafe fn widen<V: Vector>(from: &[bf16], to: &mut [f32]) {
    let (lines, rest) = from.as_chunks::<LINE>();
    let (to_lines, to_rest) = to.as_chunks_mut::<LINE>();
    for (from, to) in lines.iter().zip(to_lines) {
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

/// For each of the queries (members, d): scores_j = scale · q · k_j for the keys (n, d), with a step of `next` for each quad.
#[inline(always)]
unsafe fn score<V: Vector>(
    scores: &mut [[f32; CHUNK]],
    queries: &[f32],
    keys: &[f32],
    scale: f32,
    next: &mut Ahead,
) {
    let d = queries.len() / scores.len();
    let n = keys.len() / d;
    for first in (0..n).step_by(QUAD) {
        next.step();
        // A last incomplete quad repeats the last key.
        let rows = std::array::from_fn(|j| &keys[(first + j).min(n - 1) * d..][..d]);
        for (scores, q) in scores.iter_mut().zip(queries.chunks_exact(d)) {
            // SAFETY: guaranteed by the caller; the rows have d numbers.
            let products = unsafe { products::<V>(q, rows) };
            scores[first..first + QUAD].copy_from_slice(&products.map(|x| scale * x));
        }
    }
}

/// The dot products of `q` with rows of the same length.
#[inline(always)]
unsafe fn products<V: Vector>(q: &[f32], rows: [&[f32]; QUAD]) -> [f32; QUAD] {
    let d = q.len();
    let whole = d / LINE * LINE;
    // SAFETY: guaranteed by the caller; whole lines, then the numbers that are left.
    unsafe {
        let mut sums = [Lanes::<V>::all(0.0); QUAD];
        for line in (0..whole).step_by(LINE) {
            for at in (line..line + LINE).step_by(V::LANES) {
                let q = V::load(q.as_ptr().add(at));
                for (sum, row) in sums.iter_mut().zip(rows) {
                    let sum = sum.at(at - line);
                    *sum = q.fused(V::load(row.as_ptr().add(at)), *sum);
                }
            }
        }
        for at in (whole..d).step_by(V::LANES) {
            let q = V::load_first(q.as_ptr().add(at), d - at);
            for (sum, row) in sums.iter_mut().zip(rows) {
                let sum = sum.at(at - whole);
                *sum = q.fused(V::load_first(row.as_ptr().add(at), d - at), *sum);
            }
        }
        Lanes::totals(sums)
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

/// out = Σ_j weights_j · values_j for the values (n, d), with a step of `next` for each.
#[inline(always)]
unsafe fn blend<V: Vector>(out: &mut [f32], weights: &[f32], values: &[f32], next: &mut Ahead) {
    let d = out.len();
    let mut at = 0;
    // SAFETY: guaranteed by the caller; the columns at.. of rows of d numbers.
    unsafe {
        while at + COLUMNS <= d {
            columns::<V, 4>(out, at, weights, values, next);
            at += COLUMNS;
        }
        while at + LINE <= d {
            columns::<V, 1>(out, at, weights, values, next);
            at += LINE;
        }
        for at in (at..d).step_by(V::LANES) {
            let mut sum = V::zero();
            for (&weight, row) in weights.iter().zip(values.chunks_exact(d)) {
                sum = V::all(weight).fused(V::load_first(row.as_ptr().add(at), d - at), sum);
            }
            sum.store_first(out.as_mut_ptr().add(at), d - at);
        }
    }
}

/// LINES lines of columns of [`blend`], from column `at` on, kept in registers.
#[inline(always)]
unsafe fn columns<V: Vector, const LINES: usize>(
    out: &mut [f32],
    at: usize,
    weights: &[f32],
    values: &[f32],
    next: &mut Ahead,
) {
    let rows = values.chunks_exact(out.len());
    // SAFETY: guaranteed by the caller: LINES lines from column `at` on.
    unsafe {
        let mut sums = [Lanes::<V>::all(0.0); LINES];
        for (&weight, row) in weights.iter().zip(rows) {
            next.step();
            let (weight, row) = (V::all(weight), row.as_ptr().add(at));
            for (line, sums) in sums.iter_mut().enumerate() {
                for part in (0..LINE).step_by(V::LANES) {
                    let value = V::load(row.add(line * LINE + part));
                    *sums.at(part) = weight.fused(value, *sums.at(part));
                }
            }
        }
        for (line, sums) in sums.iter_mut().enumerate() {
            for part in (0..LINE).step_by(V::LANES) {
                let to = out.as_mut_ptr().add(at + line * LINE + part);
                sums.at(part).store(to);
            }
        }
    }
}

multiversion! {
    /// The output of one query head from its parts, which are `stride` apart: Σ e^(top_c − top) · weighted_c over the sum of all
    /// weights.
    fn merge(parts: &[f32], stride: usize, out: &mut [f32]) {
        let mut top = f32::NEG_INFINITY;
        for part in parts.chunks(stride) {
            top = if part[0] > top { part[0] } else { top };
        }
        out.fill(0.0);
        let mut total = 0.0;
        for part in parts.chunks(stride) {
            let share = exp(part[0] - top);
            total += share * part[1];
            for (out, weighted) in out.iter_mut().zip(&part[LINE..]) {
                *out += share * weighted;
            }
        }
        let share = 1.0 / total;
        for x in out {
            *x *= share;
        }
    }
}
