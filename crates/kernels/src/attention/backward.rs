//! The backward pass: each tile's attention weights are recomputed from the stored log-sum-exp.
//!
//! With p the weights, dp = dout · vᵀ and Δ = Σ dout · out of a row (Dao 2023, arXiv 2307.08691, algorithm 2), the gradient
//! with respect to the scores is p (dp − Δ). Sums over queries and keys run in the same order however the work is split.
#![allow(unsafe_code)]

use super::tile::{
    Block, KEYS, Outputs, PANEL, QUERIES, Rows, column_words, left_words, pack, padded,
};
use super::{Scores, Sizes};
use crate::fetch::{self, ROWS_AHEAD};
use crate::lanes::{Buffer, LINE, Left, Right, To, Vector, begin, end, widest};
use crate::math::sum2;
use crate::matmul::ComputeDtype;
use crate::numbers::{Number, Values, ValuesMut};
use crate::softcap;
use crate::threads;
use std::cell::RefCell;
use std::ops::Range;

/// Saved by the forward pass.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a> {
    /// Rotated, (B · T, qkv_width).
    pub qkv: Values<'a>,
    /// (B · T, q_width).
    pub out: Values<'a>,
    /// (B, n_head, T).
    pub lse: &'a [f32],
}

#[derive(Default)]
struct Scratch {
    /// Keys, then values, then keys again as stored (T, padded), and in the layout of the matmuls.
    rows: Buffer,
    keys: Buffer,
    values: Buffer,
    key_columns: Buffer,
    dkeys: Buffer,
    dvalues: Buffer,
    block: BlockScratch,
}

/// For one block of queries: queries, upstream gradient, gradient; attention weights of a tile and their gradients.
/// `_words` are packed along rows, `_columns` down columns, see `tile`.
#[derive(Default)]
struct BlockScratch {
    queries: Buffer,
    query_words: Buffer,
    query_columns: Buffer,
    dout: Buffer,
    dout_words: Buffer,
    dout_columns: Buffer,
    dqueries: Buffer,
    weights: Buffer,
    weight_columns: Buffer,
    dscores: Buffer,
    dscore_words: Buffer,
    dscore_columns: Buffer,
    /// Capped scores, before the distance bias.
    capped: Buffer,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// `dqkv` (B · T, qkv_width) = the gradient with respect to the rotated queries, keys and values, for `dout` (B · T, q_width).
pub fn backward(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    saved: Saved,
    dout: Values,
    dqkv: ValuesMut,
) {
    let (heads, seq_len) = (sizes.heads, sizes.seq_len);
    let batch_size = saved.qkv.len() / (seq_len * heads.qkv_width());
    let rows = batch_size * seq_len;
    assert_eq!(dqkv.len(), saved.qkv.len(), "attention gradient");
    assert_eq!(saved.out.len(), rows * heads.q_width(), "attention output");
    assert_eq!(saved.lse.len(), rows * heads.n_head, "attention lse");
    assert_eq!(dout.len(), saved.out.len(), "attention upstream gradient");
    sizes.mask.check(rows);
    let dqkv = &Outputs::of(dqkv);
    let pairs = batch_size * heads.n_kv_head;
    let group = heads.n_head / heads.n_kv_head;
    let work = group * seq_len * seq_len * heads.head_dim;
    let run_all = |wants: &[Wants], parts: usize, cost: usize| {
        threads::tasks(pairs * wants.len() * parts, cost, |task| {
            let (pair, rest) = (task / (wants.len() * parts), task % (wants.len() * parts));
            let task = Task {
                sizes,
                saved,
                dout,
                dqkv,
                b: pair / heads.n_kv_head,
                kv: pair % heads.n_kv_head,
                wants: wants[rest / parts],
                part: rest % parts,
                parts,
            };
            SCRATCH.with_borrow_mut(|scratch| {
                // SAFETY: the task owns the parts of dqkv that it writes, whose size was checked: queries in its blocks of queries,
                // keys and values in its tiles of keys.
                unsafe { run(arithmetic == ComputeDtype::Bf16, &task, scratch) }
            });
        });
    };
    // One pass over the tiles gives all three gradients; if there are too few heads for the threads, queries and keys
    // are split into two tasks, which computes the weights twice.
    let parts = threads::parts(pairs, seq_len.div_ceil(KEYS));
    if parts == 1 || threads::enough(pairs) {
        run_all(&[Wants::All], 1, 3 * work);
    } else {
        run_all(&[Wants::Keys, Wants::Queries], parts, 2 * work / parts);
    }
}

/// The gradients that a task computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    All,
    Queries,
    Keys,
}

/// The query heads of one key/value head of one sequence, and every `parts`-th of its blocks of queries or tiles
/// of keys.
struct Task<'a> {
    sizes: Sizes<'a>,
    saved: Saved<'a>,
    dout: Values<'a>,
    dqkv: &'a Outputs,
    b: usize,
    kv: usize,
    wants: Wants,
    part: usize,
    parts: usize,
}

impl Task<'_> {
    fn start(&self) -> usize {
        self.b * self.sizes.seq_len
    }

    fn rows_at(&self, column: usize) -> Rows<'_> {
        let heads = self.sizes.heads;
        Rows {
            values: (self.saved.qkv).from(self.start() * heads.qkv_width() + column),
            stride: heads.qkv_width(),
            d: heads.head_dim,
            padded: padded(heads.head_dim),
        }
    }

    fn dout_rows(&self, h: usize) -> Rows<'_> {
        let heads = self.sizes.heads;
        Rows {
            values: (self.dout).from(self.start() * heads.q_width() + h * heads.head_dim),
            stride: heads.q_width(),
            d: heads.head_dim,
            padded: padded(heads.head_dim),
        }
    }

    /// Outputs of head `h` from the sequence's first row on.
    fn out_rows(&self, h: usize) -> Values<'_> {
        let heads = self.sizes.heads;
        (self.saved.out).from(self.start() * heads.q_width() + h * heads.head_dim)
    }

    fn takes_block(&self, block: usize) -> bool {
        self.wants != Wants::Queries || block % self.parts == self.part
    }

    fn takes_tile(&self, tile: usize) -> bool {
        self.wants != Wants::Keys || tile % self.parts == self.part
    }

    /// Writes rows of gradients (n, padded), times `scale`, to column `column` of rows t..t + n.
    #[inline(always)]
    unsafe fn write<V: Vector>(
        &self,
        column: usize,
        rows: Range<usize>,
        values: &[f32],
        scale: f32,
    ) {
        let heads = self.sizes.heads;
        let values = values.chunks_exact(padded(heads.head_dim));
        for (t, values) in rows.zip(values) {
            let at = (self.start() + t) * heads.qkv_width() + column;
            let ahead = at + ROWS_AHEAD * heads.qkv_width();
            self.dqkv.fetch(ahead, heads.head_dim);
            // SAFETY: guaranteed by the caller.
            unsafe { (self.dqkv).write::<V>(at, &values[..heads.head_dim], scale) }
        }
    }
}

widest! {
    fn run(pairs, task: &Task<'_>, scratch: &mut Scratch) = run_with
}

#[inline(always)]
unsafe fn run_with<V: Vector>(task: &Task<'_>, scratch: &mut Scratch) {
    let (heads, seq_len) = (task.sizes.heads, task.sizes.seq_len);
    let group = heads.n_head / heads.n_kv_head;
    let width = padded(heads.head_dim);
    let n = seq_len.next_multiple_of(PANEL) * width;
    let (_, k, v) = heads.columns(task.kv * group);
    let rows = &mut scratch.rows.get(n)[..n];
    // SAFETY: guaranteed by the caller. Keys come last: their plain rows are read later.
    unsafe {
        let values = &mut scratch.values.get(n)[..n];
        pack::<V>(task.rows_at(v), seq_len, rows, (Some(values), None));
        let keys = &mut scratch.keys.get(n)[..n];
        let columns = &mut scratch.key_columns.get(n)[..n];
        pack::<V>(task.rows_at(k), seq_len, rows, (Some(keys), Some(columns)));
    }
    scratch.dkeys.get(n)[..n].fill(0.0);
    scratch.dvalues.get(n)[..n].fill(0.0);
    // SAFETY: guaranteed by the caller.
    unsafe { begin::<V>() };
    for member in 0..group {
        for block in (0..seq_len.div_ceil(QUERIES)).filter(|&block| task.takes_block(block)) {
            let block = Block::new::<V>(&task.sizes, task.b, block);
            // SAFETY: guaranteed by the caller.
            unsafe { one_block::<V>(task, task.kv * group + member, &block, scratch) }
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { end::<V>() };
    if task.wants != Wants::Queries {
        for tile in (0..seq_len.div_ceil(KEYS)).filter(|&tile| task.takes_tile(tile)) {
            let rows = tile * KEYS..((tile + 1) * KEYS).min(seq_len);
            let from = rows.start * width;
            // SAFETY: guaranteed by the caller.
            unsafe {
                task.write::<V>(k, rows.clone(), &scratch.dkeys.get(n)[from..], 1.0);
                task.write::<V>(v, rows, &scratch.dvalues.get(n)[from..], 1.0);
            }
        }
    }
}

#[inline(always)]
unsafe fn one_block<V: Vector>(task: &Task<'_>, h: usize, block: &Block, scratch: &mut Scratch) {
    let heads = task.sizes.heads;
    let (d, width) = (heads.head_dim, padded(heads.head_dim));
    let scale = task.sizes.scores.scale(d);
    let n = block.rows() * width;
    let own = &mut scratch.block;
    let queries = &mut own.queries.get(n)[..n];
    let dout = &mut own.dout.get(n)[..n];
    let (query_rows, dout_rows) = (task.rows_at(h * d), task.dout_rows(h));
    // SAFETY: guaranteed by the caller.
    unsafe {
        query_rows.copy::<V>(block.from, block.to, scale, queries);
        left_words::<V>(queries, own.query_words.get(n));
        column_words::<V>(queries, width, own.query_columns.get(n));
        dout_rows.copy::<V>(block.from, block.to, 1.0, dout);
        left_words::<V>(dout, own.dout_words.get(n));
        column_words::<V>(dout, width, own.dout_columns.get(n));
    }
    let (delta, lse) = row_constants(task, h, block, dout);
    own.dqueries.get(n);
    let tiles = QUERIES * KEYS;
    for buffer in [
        &mut own.weights,
        &mut own.weight_columns,
        &mut own.dscores,
        &mut own.dscore_words,
        &mut own.dscore_columns,
    ] {
        buffer.get(tiles);
    }
    for tile in block.tiles().filter(|&tile| task.takes_tile(tile)) {
        // SAFETY: the buffers hold whole blocks of queries and whole tiles; the caller guarantees the rest.
        unsafe { one_tile::<V>(task, h, (block, tile), scratch, (&delta, &lse), width) }
    }
    if task.wants != Wants::Keys {
        let dqueries = scratch.block.dqueries.get(n);
        // SAFETY: guaranteed by the caller.
        unsafe { task.write::<V>(h * d, block.from..block.to, dqueries, scale) }
    }
}

/// Δ and the log-sum-exp of each row.
#[inline(always)]
fn row_constants(
    task: &Task<'_>,
    h: usize,
    block: &Block,
    dout: &[f32],
) -> ([f32; QUERIES], [f32; QUERIES]) {
    let heads = task.sizes.heads;
    let (d, width) = (heads.head_dim, padded(heads.head_dim));
    let (mut delta, mut lse) = ([0.0; QUERIES], [0.0; QUERIES]);
    let kept = &task.saved.lse[(task.b * heads.n_head + h) * task.sizes.seq_len..];
    let kept = &kept[block.from..block.to];
    lse[..kept.len()].copy_from_slice(kept);
    let out = task.out_rows(h).from(block.from * heads.q_width());
    let delta_of = &mut delta[..kept.len()];
    let sizes = (heads.q_width(), d, width);
    match out {
        Values::F32(out) => row_products(out, dout, sizes, delta_of),
        Values::Bf16(out) => row_products(out, dout, sizes, delta_of),
    }
    (delta, lse)
}

/// Σ over the features of each row of `out`, which are `stride` apart, and of `dout` (n, width).
#[inline(always)]
fn row_products<N: Number>(
    out: &[N],
    dout: &[f32],
    (stride, d, width): (usize, usize, usize),
    sums: &mut [f32],
) {
    /// Features widened at once.
    const AT_ONCE: usize = 256;
    let rows = sums.len();
    for (r, sum) in sums.iter_mut().enumerate() {
        let out = &out[r * stride..];
        if r + ROWS_AHEAD < rows {
            fetch::at(out[ROWS_AHEAD * stride..].as_ptr(), d);
        }
        let mut wide = [0.0; AT_ONCE];
        let parts = out[..d].chunks(AT_ONCE);
        *sum = 0.0;
        for (out, dout) in parts.zip(dout[r * width..][..d].chunks(AT_ONCE)) {
            let wide = &mut wide[..out.len()];
            for (wide, x) in wide.iter_mut().zip(out) {
                *wide = x.wide();
            }
            *sum += sum2(dout, wide, |a, b| a * b);
        }
    }
}

#[inline(always)]
unsafe fn one_tile<V: Vector>(
    task: &Task<'_>,
    h: usize,
    (block, tile): (&Block, usize),
    scratch: &mut Scratch,
    constants: (&[f32; QUERIES], &[f32; QUERIES]),
    width: usize,
) {
    let pairs = V::NUMBERS == 2;
    let own = &mut scratch.block;
    let pick = |words: &mut Buffer, plain: &mut Buffer| -> *const f32 {
        if pairs {
            words.get(0).as_ptr()
        } else {
            plain.get(0).as_ptr()
        }
    };
    let n_words = width / V::NUMBERS;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let queries = pick(&mut own.query_words, &mut own.queries);
        let weights = own.weights.get(0).as_mut_ptr();
        block.scores::<V>(
            tile,
            queries,
            scratch.keys.get(0).as_ptr(),
            n_words,
            weights,
        );
        let dout = pick(&mut own.dout_words, &mut own.dout);
        let dscores = own.dscores.get(0).as_mut_ptr();
        block.scores::<V>(tile, dout, scratch.values.get(0).as_ptr(), n_words, dscores);
    }
    let (weights, dscores) = (own.weights.get(0), own.dscores.get(0));
    let used = block.rows() * KEYS;
    let how = &task.sizes.scores;
    if !how.is_plain() {
        let capped = own.capped.get(QUERIES * KEYS);
        recompute_scores(how, h, (block, tile), weights, capped);
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        softmax_backward::<V>(block, tile, weights, dscores, constants);
        if let Some(cap) = how.cap() {
            uncap(block, tile, own.capped.get(0), dscores, 1.0 / cap);
        }
        let (weights, dscores) = (&weights[..used], &dscores[..used]);
        left_words::<V>(dscores, own.dscore_words.get(0));
        column_words::<V>(weights, KEYS, own.weight_columns.get(0));
        column_words::<V>(dscores, KEYS, own.dscore_columns.get(0));
    }
    let dscores = pick(&mut own.dscore_words, &mut own.dscores);
    let weight_columns = pick(&mut own.weight_columns, &mut own.weights);
    let dscore_columns = pick(&mut own.dscore_columns, &mut own.dscores);
    let dout_columns = pick(&mut own.dout_columns, &mut own.dout);
    let query_columns = pick(&mut own.query_columns, &mut own.queries);
    let keys = pick(&mut scratch.key_columns, &mut scratch.rows);
    // SAFETY: guaranteed by the caller.
    unsafe {
        if task.wants != Wants::Keys {
            let add = tile > block.tiles().start;
            let dqueries = own.dqueries.get(0).as_mut_ptr();
            block.weigh::<V>(tile, dscores, keys, (dqueries, width), add);
        }
        if task.wants != Wants::Queries {
            let dvalues = scratch.dvalues.get(0).as_mut_ptr();
            spread::<V>(block, tile, weight_columns, dout_columns, (dvalues, width));
            let dkeys = scratch.dkeys.get(0).as_mut_ptr();
            spread::<V>(block, tile, dscore_columns, query_columns, (dkeys, width));
        }
    }
}

/// Replaces scores by weights p, and `dweights` by the gradient with respect to the scores, p (dp − Δ); both 0 where masked.
///
/// # Safety
/// The machine must have V's instructions.
#[inline(always)]
unsafe fn softmax_backward<V: Vector>(
    block: &Block,
    tile: usize,
    weights: &mut [f32],
    dweights: &mut [f32],
    (delta, lse): (&[f32; QUERIES], &[f32; QUERIES]),
) {
    for r in 0..block.rows() {
        let (first, last) = block.visible(tile, r);
        let (from, to) = block.lines(tile, r);
        let p = &mut weights[r * KEYS..][from..to];
        let dp = &mut dweights[r * KEYS..][from..to];
        let (first, last) = (first.saturating_sub(from), last.saturating_sub(from));
        for start in (0..p.len()).step_by(V::LANES) {
            // SAFETY: both rows are whole lines of the same length.
            unsafe {
                let (p, dp) = (p.as_mut_ptr().add(start), dp.as_mut_ptr().add(start));
                let mut weight = V::load(p).minus(V::all(lse[r])).exp_to_one();
                let mut dscore = weight
                    .times(V::load(dp).minus(V::all(delta[r])))
                    .flush_subnormal();
                if start < first || start + V::LANES > last {
                    let (first, last) = (first.saturating_sub(start), last.saturating_sub(start));
                    weight = weight.keep(first, last, V::zero());
                    dscore = dscore.keep(first, last, V::zero());
                }
                weight.store(p);
                dscore.store(dp);
            }
        }
    }
}

/// Soft cap and distance bias of scaled scores, as in the forward; `capped` keeps the scores in between.
#[inline(always)]
fn recompute_scores(
    how: &Scores,
    h: usize,
    (block, tile): (&Block, usize),
    scores: &mut [f32],
    capped: &mut [f32],
) {
    let plain = Scores {
        slopes: None,
        ..*how
    };
    block.finish(&plain, h, tile, scores);
    let used = block.rows() * KEYS;
    capped[..used].copy_from_slice(&scores[..used]);
    let tilted = Scores {
        softcap: None,
        ..*how
    };
    block.finish(&tilted, h, tile, scores);
}

/// Converts gradients with respect to capped scores to gradients with respect to the scores before the cap.
#[inline(always)]
fn uncap(block: &Block, tile: usize, capped: &[f32], dscores: &mut [f32], share: f32) {
    for r in 0..block.rows() {
        // Masked entries stay 0, whatever their score.
        let (first, last) = block.visible(tile, r);
        let row = &mut dscores[r * KEYS..][first..last.max(first)];
        softcap::uncap(row, &capped[r * KEYS..][first..last.max(first)], share);
    }
}

/// `sums` (all keys, width) += weightsᵀ (keys of the tile, rows) · `values` (rows, width): each query's contribution to the
/// keys. Both inputs are packed down the columns.
#[inline(always)]
unsafe fn spread<V: Vector>(
    block: &Block,
    tile: usize,
    weights: *const f32,
    values: *const f32,
    (sums, width): (*mut f32, usize),
) {
    let base = tile * KEYS;
    let group = block.group;
    let (first, last) = block.columns(tile, block.rows() / group.rows - 1);
    for key in (first..last).step_by(group.rows) {
        // The first rows that attend to these keys.
        let row = (base + key).saturating_sub(block.from) / group.multiple * group.multiple;
        // SAFETY: guaranteed by the caller; rows and keys are whole groups.
        unsafe {
            let to = To {
                start: sums.add((base + key) * width),
                row_stride: width,
                add: true,
            };
            let left = Left {
                start: weights.add(row / V::NUMBERS * KEYS + key),
                row_stride: 1,
                col_stride: KEYS,
            };
            let right = Right {
                start: values.add(row / V::NUMBERS * width),
                row_stride: width,
            };
            let k = (block.rows() - row) / V::NUMBERS;
            group.product::<V>(to, left, right, width / LINE, k);
        }
    }
}
