//! Attention of new tokens over a KV cache, without a backward: prefill in chunks, and decode.
#![allow(unsafe_code)]

use super::few::{self, Token};
use super::{Scores, Sizes};
use crate::math::{exp, max, sum1};
use crate::matmul::{Accumulation, Compute, ComputeDtype, Destination, Mat, matmul, matmul_into};
use crate::numbers::Values;
use crate::simd::multiversion;
use crate::threads::{self, Shared};
use std::cell::RefCell;

/// Queries computed together.
const BLOCK: usize = 64;
/// New tokens of a text up to which keys and values are read in place; a matmul would pack them.
const FEW: usize = 4;

thread_local! {
    /// Weights of one block, up to BLOCK × T.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// New tokens of one text and its cache: for each key/value head `capacity` rows of head_dim, of which past + new are filled.
/// Keys and values have the same dtype.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    pub new: usize,
    pub past: usize,
    pub keys: Values<'a>,
    pub values: Values<'a>,
    pub capacity: usize,
}

/// Fused forward of new tokens after cached ones, without a backward: the pieces' rows are contiguous in `q` (new,
/// q.1), rotated, and in `out` (new, q_width). A window counts cached tokens; there are no documents here, and
/// `sizes.seq_len` is not used.
pub fn forward_cached(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    pieces: &[Piece],
    q: (&[f32], usize),
    out: &mut [f32],
) {
    let q_width = sizes.heads.q_width();
    let rows: usize = pieces.iter().map(|piece| piece.new).sum();
    assert_eq!(out.len(), rows * q_width, "attention output");
    let window = sizes.mask.window.unwrap_or(usize::MAX);
    let (mut row, mut tokens, mut long) = (0, Vec::new(), Vec::new());
    for piece in pieces {
        if piece.new > FEW {
            long.push((*piece, row));
        } else {
            tokens.extend((0..piece.new).map(|i| Token {
                q: &q.0[(row + i) * q.1..][..q_width],
                keys: piece.keys,
                values: piece.values,
                capacity: piece.capacity,
                from: (piece.past + i + 1).saturating_sub(window),
                to: piece.past + i + 1,
                row: row + i,
            }));
        }
        row += piece.new;
    }
    if !tokens.is_empty() {
        few::forward(sizes, &tokens, out);
    }
    if !long.is_empty() {
        forward_long(arithmetic, sizes, &long, q, out);
    }
}

/// The same for pieces, each with its first row, of more than a few tokens. Heads of all pieces are distributed over the threads.
fn forward_long(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    pieces: &[(Piece, usize)],
    q: (&[f32], usize),
    out: &mut [f32],
) {
    let heads = sizes.heads;
    let (head_dim, q_width) = (heads.head_dim, heads.q_width());
    let scores: usize = pieces.iter().map(|(p, _)| p.new * (p.past + p.new)).sum();
    let cost = (scores * head_dim).div_ceil(pieces.len());
    let out = Shared(out.as_mut_ptr());
    threads::tasks(pieces.len() * heads.n_head, cost, |task| {
        let (at, h) = (task / heads.n_head, task % heads.n_head);
        let (piece, first_row) = pieces[at];
        let Piece {
            new,
            past,
            keys,
            values,
            capacity,
        } = piece;
        let from = h / (heads.n_head / heads.n_kv_head) * capacity * head_dim;
        let text = Text {
            arithmetic,
            head_dim,
            q: &q.0[first_row * q.1 + h * head_dim..],
            q_stride: q.1,
            k: keys.range(from..from + (past + new) * head_dim),
            v: values.range(from..from + (past + new) * head_dim),
            new,
            past,
            h,
            window: sizes.mask.window.unwrap_or(usize::MAX),
            how: sizes.scores,
        };
        // SAFETY: the task owns head h of the piece's rows of the output, whose size was checked.
        unsafe { forward_head(&text, out.at(first_row * q_width + h * head_dim), q_width) };
    });
}

/// One head of one text: `new` queries over past + new keys and values.
struct Text<'a> {
    arithmetic: ComputeDtype,
    head_dim: usize,
    q: &'a [f32],
    q_stride: usize,
    k: Values<'a>,
    v: Values<'a>,
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
            // Matmuls convert bf16 as they pack it, part by part.
            let [keys, values] = [text.k, text.v].map(|x| Mat::of(x.range(held.clone()), n, d));
            matmul(scores, q, keys.t(), scale, Accumulation::Overwrite, compute);
            let first = text.past + from - lowest;
            if !text.how.is_plain() {
                for (i, row) in scores.chunks_exact_mut(n).enumerate() {
                    text.how.finish(text.h, (first + i) as isize, row);
                }
            }
            softmax_block(scores, n, first, text.window, text.how.sink(text.h));
            let weights = Mat::new(scores, to - from, n);
            // SAFETY: rows from..to of the caller's block.
            unsafe {
                let destination = Destination {
                    start: out.add(from * out_stride),
                    row_stride: out_stride,
                    into: Accumulation::Overwrite,
                };
                matmul_into(destination, weights, values, 1.0, compute);
            }
        }
    });
}

multiversion! {
    /// Softmax of each row over the last `window` of its first `visible + i + 1` of `n` scores and the sink; the rest become 0.
    fn softmax_block(scores: &mut [f32], n: usize, visible: usize, window: usize, sink: f32) {
        for (i, row) in scores.chunks_exact_mut(n).enumerate() {
            let (row, future) = row.split_at_mut(visible + i + 1);
            future.fill(0.0);
            let (past, row) = row.split_at_mut(row.len().saturating_sub(window));
            past.fill(0.0);
            let top = max(row);
            let top = if sink > top { sink } else { top };
            for x in row.iter_mut() {
                *x = exp(*x - top);
            }
            let mut total = sum1(row, |x| x);
            if sink > f32::NEG_INFINITY {
                total += exp(sink - top);
            }
            let share = 1.0 / total;
            for x in row.iter_mut() {
                *x *= share;
            }
        }
    }
}
