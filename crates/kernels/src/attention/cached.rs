//! Attention of new tokens over a KV cache, without a backward: prefill in chunks, and decode.
#![allow(unsafe_code)]

use super::{Scores, Sizes};
use crate::math::{exp, max, sum1, sum2};
use crate::matmul::{Accumulation, Compute, ComputeDtype, Destination, Mat, matmul, matmul_into};
use crate::simd::multiversion;
use crate::threads::{self, Shared};
use std::cell::RefCell;

/// Queries computed together.
const BLOCK: usize = 64;
/// Queries per head up to which keys and values are read in place; a matmul would pack them.
const FEW: usize = 4;

thread_local! {
    /// Weights of one block, up to BLOCK × T.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// New tokens of one text and its cache: for each key/value head `capacity` rows of head_dim, of which past + new are filled.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    pub new: usize,
    pub past: usize,
    pub keys: &'a [f32],
    pub values: &'a [f32],
    pub capacity: usize,
}

/// Fused forward of new tokens after cached ones, without a backward: the pieces' rows are contiguous in `q` (new,
/// q.1), rotated, and in `out` (new, q_width). Heads of all pieces are distributed over the threads. A window counts
/// cached tokens; there are no documents here, and `sizes.seq_len` is not used.
pub fn forward_cached(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    pieces: &[Piece],
    q: (&[f32], usize),
    out: &mut [f32],
) {
    let heads = sizes.heads;
    let (head_dim, q_width) = (heads.head_dim, heads.q_width());
    let mut rows = 0;
    let first_rows = pieces.iter().map(|piece| {
        rows += piece.new;
        rows - piece.new
    });
    let first_rows: Vec<usize> = first_rows.collect();
    assert_eq!(out.len(), rows * q_width, "attention output");
    let cost: usize = pieces.iter().map(|p| p.new * (p.past + p.new)).sum();
    let cost = (cost * head_dim).div_ceil(pieces.len().max(1));
    let out = Shared(out.as_mut_ptr());
    threads::tasks(pieces.len() * heads.n_head, cost, |task| {
        let (at, h) = (task / heads.n_head, task % heads.n_head);
        let Piece {
            new,
            past,
            keys,
            values,
            capacity,
        } = pieces[at];
        let from = h / (heads.n_head / heads.n_kv_head) * capacity * head_dim;
        let text = Text {
            arithmetic,
            head_dim,
            q: &q.0[first_rows[at] * q.1 + h * head_dim..],
            q_stride: q.1,
            k: &keys[from..from + (past + new) * head_dim],
            v: &values[from..from + (past + new) * head_dim],
            new,
            past,
            h,
            window: sizes.mask.window.unwrap_or(usize::MAX),
            how: sizes.scores,
        };
        // SAFETY: the task owns head h of the piece's rows of the output, whose size was checked.
        unsafe {
            forward_head(
                &text,
                out.at(first_rows[at] * q_width + h * head_dim),
                q_width,
            )
        };
    });
}

/// One head of one text: `new` queries over past + new keys and values.
struct Text<'a> {
    arithmetic: ComputeDtype,
    head_dim: usize,
    q: &'a [f32],
    q_stride: usize,
    k: &'a [f32],
    v: &'a [f32],
    new: usize,
    past: usize,
    /// Index of the query head.
    h: usize,
    /// Sliding window in tokens, the query's own included.
    window: usize,
    how: Scores<'a>,
}

/// # Safety
/// `out` must be valid for `text.new` rows of head_dim elements, `out_stride` apart, that nothing else accesses.
unsafe fn forward_head(text: &Text, out: *mut f32, out_stride: usize) {
    let d = text.head_dim;
    let scale = text.how.scale(d);
    let compute = Compute::one(text.arithmetic);
    SCRATCH.with_borrow_mut(|scores| {
        for from in (0..text.new).step_by(BLOCK) {
            let to = (from + BLOCK).min(text.new);
            // The first key that any query of the block attends to.
            let lowest = (text.past + from + 1).saturating_sub(text.window);
            let n = text.past + to - lowest;
            scores.resize(scores.len().max((to - from) * n), 0.0);
            let scores = &mut scores[..(to - from) * n];
            let q = Mat::strided(&text.q[from * text.q_stride..], to - from, d, text.q_stride);
            let held = lowest * d..(lowest + n) * d;
            let (keys, values) = (&text.k[held.clone()], &text.v[held]);
            let few = to - from <= FEW;
            if few {
                for (i, row) in scores.chunks_exact_mut(n).enumerate() {
                    score(row, q.row(i), keys, scale);
                }
            } else {
                let keys = Mat::new(keys, n, d);
                matmul(scores, q, keys.t(), scale, Accumulation::Overwrite, compute);
            }
            let first = text.past + from - lowest;
            if !text.how.is_plain() {
                for (i, row) in scores.chunks_exact_mut(n).enumerate() {
                    text.how.finish(text.h, (first + i) as isize, row);
                }
            }
            softmax_block(scores, n, first, text.window);
            if few {
                for (i, row) in scores.chunks_exact(n).enumerate() {
                    // SAFETY: row from + i of the caller's block.
                    let out = unsafe {
                        std::slice::from_raw_parts_mut(out.add((from + i) * out_stride), d)
                    };
                    blend(out, &row[..first + i + 1], values);
                }
                continue;
            }
            let weights = Mat::new(scores, to - from, n);
            // SAFETY: rows from..to of the caller's block.
            unsafe {
                let destination = Destination {
                    start: out.add(from * out_stride),
                    row_stride: out_stride,
                    into: Accumulation::Overwrite,
                };
                matmul_into(destination, weights, Mat::new(values, n, d), 1.0, compute);
            }
        }
    });
}

multiversion! {
    /// scores_j = scale · q · k_j for the keys (n, head_dim).
    fn score(scores: &mut [f32], q: &[f32], keys: &[f32], scale: f32) {
        for (score, key) in scores.iter_mut().zip(keys.chunks_exact(q.len())) {
            *score = scale * sum2(q, key, |q, k| q * k);
        }
    }
}

multiversion! {
    /// out = Σ_j weights_j · values_j for the values (n, head_dim).
    fn blend(out: &mut [f32], weights: &[f32], values: &[f32]) {
        let mut at = 0;
        while at + 64 <= out.len() {
            blend_columns::<64>(out, at, weights, values);
            at += 64;
        }
        while at + 16 <= out.len() {
            blend_columns::<16>(out, at, weights, values);
            at += 16;
        }
        while at < out.len() {
            blend_columns::<1>(out, at, weights, values);
            at += 1;
        }
    }
}

/// N columns of [`blend`], kept in registers.
#[inline(always)]
fn blend_columns<const N: usize>(out: &mut [f32], at: usize, weights: &[f32], values: &[f32]) {
    let mut sums = [0.0_f32; N];
    for (weight, row) in weights.iter().zip(values.chunks_exact(out.len())) {
        let row = &row[at..at + N];
        for i in 0..N {
            sums[i] += weight * row[i];
        }
    }
    out[at..at + N].copy_from_slice(&sums);
}

multiversion! {
    /// Softmax of each row over the last `window` of its first `visible + i + 1` of `n` scores; the rest become 0.
    fn softmax_block(scores: &mut [f32], n: usize, visible: usize, window: usize) {
        for (i, row) in scores.chunks_exact_mut(n).enumerate() {
            let (row, future) = row.split_at_mut(visible + i + 1);
            future.fill(0.0);
            let (past, row) = row.split_at_mut(row.len().saturating_sub(window));
            past.fill(0.0);
            let top = max(row);
            for x in row.iter_mut() {
                *x = exp(*x - top);
            }
            let share = 1.0 / sum1(row, |x| x);
            for x in row.iter_mut() {
                *x *= share;
            }
        }
    }
}
