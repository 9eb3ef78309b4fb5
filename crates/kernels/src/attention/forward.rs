//! The forward pass: tiles of keys one after another with a running maximum (Milakov and Gimelshein 2018, arXiv 1805.02867).
#![allow(unsafe_code)]

use super::Sizes;
use super::tile::{Block, KEYS, Outputs, PANEL, QUERIES, Rows, left_words, pack, padded};
use crate::lanes::{Buffer, Lanes, Vector, begin, end, widest};
use crate::math::exp;
use crate::matmul::ComputeDtype;
use crate::numbers::{Values, ValuesMut};
use crate::threads::{self, Shared};
use std::cell::RefCell;

#[derive(Default)]
struct Scratch {
    /// Keys and then values as stored (T, padded), and in the layout of the matmuls.
    rows: Buffer,
    keys: Buffer,
    values: Buffer,
    queries: Buffer,
    query_words: Buffer,
    scores: Buffer,
    weights: Buffer,
    out: Buffer,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// Fused forward over rotated `qkv` (B · T, qkv_width): `out` (B · T, q_width), `lse` (B, n_head, T). With bf16 compute
/// all matmul inputs are rounded to bf16, if the machine has instructions for it; accumulation and softmax are f32.
pub fn forward(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    qkv: Values,
    out: ValuesMut,
    lse: &mut [f32],
) {
    let (heads, seq_len) = (sizes.heads, sizes.seq_len);
    let batch_size = qkv.len() / (seq_len * heads.qkv_width());
    let rows = batch_size * seq_len;
    assert_eq!(out.len(), rows * heads.q_width(), "attention output");
    assert_eq!(lse.len(), rows * heads.n_head, "attention lse");
    sizes.mask.check(rows);
    let (out, lse) = (Outputs::of(out), Shared(lse.as_mut_ptr()));
    let pairs = batch_size * heads.n_kv_head;
    let parts = threads::parts(pairs, seq_len.div_ceil(QUERIES));
    let group = heads.n_head / heads.n_kv_head;
    let cost = group * seq_len * seq_len * heads.head_dim / parts;
    threads::tasks(pairs * parts, cost, |task| {
        let (pair, part) = (task / parts, task % parts);
        let task = Task {
            sizes,
            qkv: qkv.from(pair / heads.n_kv_head * seq_len * heads.qkv_width()),
            b: pair / heads.n_kv_head,
            kv: pair % heads.n_kv_head,
            part,
            parts,
            out: &out,
            lse,
        };
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: the task owns its heads and blocks of queries in both outputs, whose sizes were checked.
            unsafe { run(arithmetic == ComputeDtype::Bf16, &task, scratch) }
        });
    });
}

/// The query heads of one key/value head of one sequence, and every `parts`-th of its blocks of queries.
struct Task<'a> {
    sizes: Sizes<'a>,
    /// `qkv` from the first row of this sequence on.
    qkv: Values<'a>,
    b: usize,
    kv: usize,
    part: usize,
    parts: usize,
    out: &'a Outputs,
    lse: Shared,
}

widest! {
    fn run(pairs, task: &Task<'_>, scratch: &mut Scratch) = run_with
}

#[inline(always)]
unsafe fn run_with<V: Vector>(task: &Task<'_>, scratch: &mut Scratch) {
    let heads = task.sizes.heads;
    let blocks = task.sizes.seq_len.div_ceil(QUERIES);
    let group = heads.n_head / heads.n_kv_head;
    let width = padded(heads.head_dim);
    let n = task.sizes.seq_len.next_multiple_of(PANEL) * width;
    let [_, k, v] = task.columns(task.kv * group);
    let rows = &mut scratch.rows.get(n)[..n];
    // SAFETY: guaranteed by the caller.
    unsafe {
        let keys = &mut scratch.keys.get(n)[..n];
        pack::<V>(k, task.sizes.seq_len, rows, (Some(keys), None));
        let values = &mut scratch.values.get(n)[..n];
        pack::<V>(v, task.sizes.seq_len, rows, (None, Some(values)));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { begin::<V>() };
    for member in 0..group {
        for block in (task.part..blocks).step_by(task.parts) {
            let block = Block::new::<V>(&task.sizes, task.b, block);
            // SAFETY: guaranteed by the caller.
            unsafe { one_block::<V>(task, task.kv * group + member, &block, scratch) }
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { end::<V>() };
}

impl Task<'_> {
    /// Queries, keys and values of head `h`.
    #[inline(always)]
    fn columns(&self, h: usize) -> [Rows<'_>; 3] {
        let heads = self.sizes.heads;
        let (q, k, v) = heads.columns(h);
        [q, k, v].map(|column| Rows {
            values: self.qkv.from(column),
            stride: heads.qkv_width(),
            d: heads.head_dim,
            padded: padded(heads.head_dim),
        })
    }
}

/// The running maximum and sum of exponentials of each row.
struct Running {
    top: [f32; QUERIES],
    sum: [f32; QUERIES],
}

#[inline(always)]
unsafe fn one_block<V: Vector>(task: &Task<'_>, h: usize, block: &Block, scratch: &mut Scratch) {
    let heads = task.sizes.heads;
    let (d, width) = (heads.head_dim, padded(heads.head_dim));
    let scale = task.sizes.scores.scale(d);
    let queries = &mut scratch.queries.get(QUERIES * width)[..block.rows() * width];
    let words = scratch.query_words.get(QUERIES * width);
    // SAFETY: guaranteed by the caller.
    unsafe {
        task.columns(h)[0].copy::<V>(block.from, block.to, scale, queries);
        left_words::<V>(queries, words);
    }
    let scores = scratch.scores.get(QUERIES * KEYS);
    let weights = scratch.weights.get(QUERIES * KEYS);
    let out = scratch.out.get(QUERIES * width);
    // A sink is as a key before all others, without a value.
    let sink = task.sizes.scores.sink(h);
    let mut running = Running {
        top: [sink; QUERIES],
        sum: [if sink == f32::NEG_INFINITY { 0.0 } else { 1.0 }; QUERIES],
    };
    let rows = &mut *scratch.rows.get(0);
    let values = if V::NUMBERS == 2 {
        scratch.values.get(0)
    } else {
        rows
    };
    let keys = scratch.keys.get(0);
    for tile in block.tiles() {
        let add = tile > block.tiles().start;
        // SAFETY: the buffers hold whole tiles of queries and all keys and values.
        unsafe {
            let left = if V::NUMBERS == 2 {
                words.as_ptr()
            } else {
                queries.as_ptr()
            };
            let n_words = width / V::NUMBERS;
            block.scores::<V>(tile, left, keys.as_ptr(), n_words, scores.as_mut_ptr());
            if !task.sizes.scores.is_plain() {
                block.finish(&task.sizes.scores, h, tile, scores);
            }
            softmax::<V>(block, tile, &mut running, scores, out, width);
            left_words::<V>(&scores[..block.rows() * KEYS], weights);
            let p = if V::NUMBERS == 2 {
                weights.as_ptr()
            } else {
                scores.as_ptr()
            };
            block.weigh::<V>(tile, p, values.as_ptr(), (out.as_mut_ptr(), width), add);
        }
    }
    let seq_len = task.sizes.seq_len;
    for t in block.from..block.to {
        let r = t - block.from;
        let share = 1.0 / running.sum[r];
        // SAFETY: row t of head h is the task's.
        unsafe {
            let at = (task.b * seq_len + t) * heads.q_width() + h * d;
            task.out.write::<V>(at, &out[r * width..][..d], share);
            let lse = running.top[r] + running.sum[r].ln();
            *task.lse.at((task.b * heads.n_head + h) * seq_len + t) = lse;
        }
    }
}

/// Replaces scores by exponentials relative to the row's running maximum, and by 0 where masked; sums from
/// earlier tiles, `out` included, are rescaled to a new maximum.
///
/// # Safety
/// The machine must have V's instructions.
#[inline(always)]
unsafe fn softmax<V: Vector>(
    block: &Block,
    tile: usize,
    running: &mut Running,
    scores: &mut [f32],
    out: &mut [f32],
    width: usize,
) {
    for r in 0..block.rows() {
        let (first, last) = block.visible(tile, r);
        let (from, to) = block.lines(tile, r);
        let row = &mut scores[r * KEYS..][from..to];
        if first >= last {
            row.fill(0.0);
            continue;
        }
        let before = running.top[r];
        // SAFETY: guaranteed by the caller.
        let (top, sum) = unsafe { exponentials::<V>(row, first - from, last - from, before) };
        running.top[r] = top;
        if before == f32::NEG_INFINITY {
            running.sum[r] = sum;
            continue;
        }
        let shrink = exp(before - top);
        running.sum[r] = running.sum[r] * shrink + sum;
        if shrink != 1.0 {
            for x in &mut out[r * width..][..width] {
                *x *= shrink;
            }
        }
    }
}

/// Replaces whole lines of scores by exponentials relative to the maximum, `before` included; columns outside first..last
/// become 0. Returns the maximum and the sum. NaN is ignored by the maximum but stays in the sum.
#[inline(always)]
unsafe fn exponentials<V: Vector>(
    row: &mut [f32],
    first: usize,
    last: usize,
    before: f32,
) -> (f32, f32) {
    let edge = |start: usize| start < first || start + V::LANES > last;
    let within = |start: usize| (first.saturating_sub(start), last.saturating_sub(start));
    // SAFETY: the row is whole lines; a line is a whole number of registers.
    unsafe {
        let at = row.as_mut_ptr();
        let mut tops = Lanes::<V>::all(before);
        for start in (0..row.len()).step_by(V::LANES) {
            let mut x = V::load(at.add(start));
            if edge(start) {
                let (first, last) = within(start);
                x = x.keep(first, last, V::all(f32::NEG_INFINITY));
            }
            *tops.at(start) = x.max(*tops.at(start));
        }
        let top = tops.max_lane();
        let mut sums = Lanes::<V>::all(0.0);
        for start in (0..row.len()).step_by(V::LANES) {
            let mut x = V::load(at.add(start)).minus(V::all(top)).exp_to_one();
            if edge(start) {
                let (first, last) = within(start);
                x = x.keep(first, last, V::zero());
            }
            x.store(at.add(start));
            *sums.at(start) = sums.at(start).plus(x);
        }
        (top, sums.total())
    }
}
