//! Attention of single new tokens over a long KV cache: decode.
//!
//! Keys and values of a head are read from memory once for all query heads that share them (Ainslie et al. 2023), in chunks
//! that are distributed over the threads; the chunks' softmaxes are merged afterwards (Dao et al. 2023, Flash-Decoding). Chunks
//! are counted from a token's first visible key, so its result depends neither on the threads nor on other tokens of the pass.
#![allow(unsafe_code)]

mod chunk;

use super::Sizes;
use crate::lanes::{Buffer, LINE};
use crate::math::exp;
use crate::numbers::Values;
use crate::simd::multiversion;
use crate::threads::{self, SharedSlice};
use chunk::{Chunk, one_chunk};
use std::cell::RefCell;

/// Keys per chunk: with head_dim 64 its keys and values are 16 KiB in f32, so that the next chunk's keys fit beside them into an L1
/// cache of 32 KiB.
const CHUNK: usize = 32;
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
    /// Keys and values of a chunk in f32, if they are stored otherwise and are not converted in registers.
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
                let sink = sizes.scores.sink(kv * group + member);
                merge(&parts[member * Part::width(d)..], width, sink, out);
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

multiversion! {
    /// The output of one query head from its parts, which are `stride` apart: Σ e^(top_c − top) · weighted_c over the sum of all
    /// weights, the sink's included.
    fn merge(parts: &[f32], stride: usize, sink: f32, out: &mut [f32]) {
        let mut top = sink;
        for part in parts.chunks(stride) {
            top = if part[0] > top { part[0] } else { top };
        }
        out.fill(0.0);
        let mut total = if sink > f32::NEG_INFINITY { exp(sink - top) } else { 0.0 };
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
