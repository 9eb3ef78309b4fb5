//! The loops around the tiles: cache blocking, and the split over threads.

use super::ahead::Ahead;
use super::instructions::Instructions;
use super::pack::{Source, distance};
use super::tile::{WORDS_PER_TURN, Write};
use crate::lanes::Buffer;
use crate::threads;
use std::cell::RefCell;

/// Rows of the left input packed at once: together with a panel of the right input they should stay in the L2
/// cache.
const BLOCK_ROWS: usize = 156;
/// Columns of the right input packed at once: they should stay in the L3 cache.
const BLOCK_COLS: usize = 2016;
/// Multiplications below which a matmul is not worth handing to another thread.
const WORTHWHILE: usize = 1 << 19;

/// A matmul ready to be computed: a (m, k) · b (k, n).
#[derive(Clone, Copy)]
pub struct Job {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Element (i, k) lies at i · stride + k · k_stride.
    pub a: Factor,
    /// Element (k, j) lies at j · stride + k · k_stride.
    pub b: Factor,
    pub write: Write,
}

#[derive(Clone, Copy)]
pub struct Factor {
    pub start: *const f32,
    pub stride: usize,
    pub k_stride: usize,
}

// SAFETY: threads read the inputs, and each writes its own rows and columns.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Factor {
    /// The block that starts at (from, k).
    fn block(self, (from, k): (usize, usize), width: usize, depth: usize) -> Source {
        Source {
            start: self
                .start
                .wrapping_add(from * self.stride + k * self.k_stride),
            stride: self.stride,
            k_stride: self.k_stride,
            width,
            k: depth,
        }
    }
}

impl Job {
    /// A range (from, count) of rows and of columns of the output.
    ///
    /// # Safety
    /// It must lie within the output.
    pub unsafe fn part(&self, (row, m): (usize, usize), (col, n): (usize, usize)) -> Job {
        // SAFETY: the caller names a part of the product.
        unsafe {
            let mut write = self.write.at(row, col);
            write.cols = n;
            Job {
                m,
                n,
                a: Factor {
                    start: self.a.start.wrapping_add(row * self.a.stride),
                    ..self.a
                },
                b: Factor {
                    start: self.b.start.wrapping_add(col * self.b.stride),
                    ..self.b
                },
                write,
                ..*self
            }
        }
    }
}

thread_local! {
    /// Packed blocks of both inputs; buffers grow as needed and are kept.
    static PACKED: RefCell<[Buffer; 2]> = RefCell::default();
}

/// Ensures space for `words` words.
fn room(buffer: &mut Buffer, words: usize) -> *mut u32 {
    buffer.get(words).as_mut_ptr().cast()
}

/// Computes the job on up to `n_threads` pool threads.
///
/// # Safety
/// The machine must have the instructions; the inputs must be readable and the destination exclusively writable.
pub(super) unsafe fn product<I: Instructions>(job: &Job, n_threads: usize) {
    let n_threads = if job.m * job.n * job.k < WORTHWHILE {
        1
    } else {
        n_threads
    };
    let (down, right) = grid::<I>(job, n_threads);
    threads::fan_out(down * right, &|task| {
        let rows = share(job.m, I::ROWS, task / right, down);
        let cols = share(job.n, I::COLS, task % right, right);
        if rows.1 > 0 && cols.1 > 0 {
            // SAFETY: parts do not overlap; the rest is the caller's guarantee.
            unsafe { single::<I>(&job.part(rows, cols)) };
        }
    });
}

/// The grid of parts (rows, columns): the split that packs least, since each part packs its own inputs.
fn grid<I: Instructions>(job: &Job, threads: usize) -> (usize, usize) {
    let packed = |down: usize| {
        let right = threads / down;
        let rows = share(job.m, I::ROWS, 0, down).1;
        let cols = share(job.n, I::COLS, 0, right).1;
        // An uneven split of work costs most.
        (rows * cols * threads).saturating_sub(job.m * job.n) + 4 * (rows + cols)
    };
    let down = (1..=threads)
        .filter(|down| threads.is_multiple_of(*down))
        .min_by_key(|&down| packed(down));
    let down = down.unwrap_or(1);
    (down, threads / down)
}

/// Part `index` of `parts` of `total`, cut between panels: (first, count).
pub(super) fn share(total: usize, panel: usize, index: usize, parts: usize) -> (usize, usize) {
    let panels = total.div_ceil(panel);
    let from = (panels * index / parts * panel).min(total);
    let to = (panels * (index + 1) / parts * panel).min(total);
    (from, to - from)
}

/// Computes the job on this thread. The split along k into even blocks depends only on k, so that the bits do not
/// depend on anything else. A matmul with k = 0 is one block without words.
unsafe fn single<I: Instructions>(job: &Job) {
    let words = even(job.k.div_ceil(I::PER_WORD), I::DEPTH, 1);
    let cuts = Cuts {
        rows: even(job.m, BLOCK_ROWS, I::ROWS),
        cols: BLOCK_COLS,
        terms: (words * I::PER_WORD).max(1),
    };
    PACKED.with_borrow_mut(|[left, right]| {
        let panels = cuts.rows.div_ceil(I::ROWS);
        let left = room(left, panels * distance::<I>(words, I::ROWS));
        let panels = BLOCK_COLS.min(job.n).div_ceil(I::COLS);
        let right = room(right, panels * distance::<I>(words, I::COLS));
        let mut next = cuts.block(job, 0);
        for index in 1.. {
            let Some(block) = next else { break };
            next = cuts.block(job, index);
            // SAFETY: blocks lie within the inputs and the buffers are large enough.
            unsafe { self::block::<I>(job, block, next, left, right) };
        }
    });
}

/// The largest part of `total` when split into the fewest even parts of at most `most`; a multiple of
/// `unit`, as `most` is.
fn even(total: usize, most: usize, unit: usize) -> usize {
    let parts = total.div_ceil(most).max(1);
    total.div_ceil(parts).next_multiple_of(unit)
}

/// Rows, columns and terms of a block whose inputs are packed at once.
struct Cuts {
    rows: usize,
    cols: usize,
    terms: usize,
}

/// A part of a matmul: (first, count) of its rows, columns and terms.
#[derive(Clone, Copy)]
struct Block {
    rows: (usize, usize),
    cols: (usize, usize),
    terms: (usize, usize),
}

impl Cuts {
    /// Block `index` of a job, if it exists: rows vary fastest, then terms, then columns.
    fn block(&self, job: &Job, index: usize) -> Option<Block> {
        let downwards = job.m.div_ceil(self.rows);
        let inwards = job.k.div_ceil(self.terms).max(1);
        let row = index % downwards * self.rows;
        let term = index / downwards % inwards * self.terms;
        let col = index / downwards / inwards * self.cols;
        (col < job.n).then(|| Block {
            rows: (row, self.rows.min(job.m - row)),
            cols: (col, self.cols.min(job.n - col)),
            terms: (term, self.terms.min(job.k - term)),
        })
    }
}

impl Block {
    fn left(&self, job: &Job) -> Source {
        job.a
            .block((self.rows.0, self.terms.0), self.rows.1, self.terms.1)
    }

    /// The right input's panel that starts at column `col` of the block.
    fn right<I: Instructions>(&self, job: &Job, col: usize) -> Source {
        let width = I::COLS.min(self.cols.1 - col);
        job.b
            .block((self.cols.0 + col, self.terms.0), width, self.terms.1)
    }
}

/// All tiles of one block. Panels of the right input are packed right before their first use, by the
/// top block, and reused by those below.
unsafe fn block<I: Instructions>(
    job: &Job,
    block: Block,
    next: Option<Block>,
    left: *mut u32,
    right: *mut u32,
) {
    let words = block.terms.1.div_ceil(I::PER_WORD);
    let [left_distance, right_distance] =
        [I::ROWS, I::COLS].map(|panel| distance::<I>(words, panel));
    let (m, n) = (block.rows.1, block.cols.1);
    let is_first = block.rows.0 == 0;
    let turns = m.div_ceil(I::ROWS) * words / WORDS_PER_TURN;
    // SAFETY: panels are `words` words deep and lie one behind the other, within what the caller vouches for.
    unsafe {
        I::pack_left(left, block.left(job));
        let next_left = next.map(|next| next.left(job));
        let mut ahead = Ahead::of_left(next_left, left);
        let mut write = job.write.at(block.rows.0, block.cols.0);
        if block.terms.0 > 0 {
            write.base = Some((write.to, write.stride));
            write.bias = None;
        }
        for col in (0..n).step_by(I::COLS) {
            let right = right.add(col / I::COLS * right_distance);
            if is_first {
                I::pack_right(right, block.right::<I>(job, col));
            }
            let next_right = if col + I::COLS < n {
                is_first.then(|| block.right::<I>(job, col + I::COLS))
            } else {
                next.filter(|next| next.rows.0 == 0)
                    .map(|next| next.right::<I>(job, 0))
            };
            ahead.panel(next_right, turns, turns * (n - col).div_ceil(I::COLS));
            let cols = I::COLS.min(n - col);
            for row in (0..m).step_by(I::ROWS) {
                let mut write = write.at(row, col);
                write.cols = cols;
                let size = (I::ROWS.min(m - row), cols.div_ceil(I::LANES));
                let left = left.add(row / I::ROWS * left_distance);
                I::tile(size, words, left, right, write, &mut ahead);
            }
        }
    }
}
