//! The loops around the tiles: blocks that stay in the caches, and parts for threads.

use super::instructions::Instructions;
use super::pack::{Source, distance};
use super::tile::Write;
use crate::kernels::threads;
use std::cell::RefCell;

/// Rows of the left factor that are packed at once: with a panel of the right factor they should stay in the second-level
/// cache.
const BLOCK_ROWS: usize = 240;
/// Columns of the right factor that are packed at once: they should stay in the third-level cache.
const BLOCK_COLS: usize = 2016;
/// Multiplications below which a product is not worth a hand-over to another thread.
const WORTHWHILE: usize = 1 << 19;

/// A product that is ready to be computed: a (m, k) · b (k, n).
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

// SAFETY: threads read the factors, and each writes rows and columns of its own.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Factor {
    /// The block that begins at (from, k).
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
    /// Rows and columns (from, count) of the product.
    ///
    /// # Safety
    /// They must lie within the product.
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

/// A cache line, so that buffers are aligned.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u32; LINE]);
const LINE: usize = 16;

thread_local! {
    /// Packed blocks of the left and the right factor; they grow to what is needed and stay.
    static PACKED: RefCell<[Vec<Line>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// Room for `words` words.
fn room(buffer: &mut Vec<Line>, words: usize) -> *mut u32 {
    let lines = words.div_ceil(LINE);
    if buffer.len() < lines {
        buffer.resize(lines, Line([0; LINE]));
    }
    debug_assert_eq!(size_of_val(&buffer[0].0), 64);
    buffer.as_mut_ptr().cast()
}

/// Computes the job on up to `n_threads` threads of the pool.
///
/// # Safety
/// The machine must have the instructions; the factors must be readable and the destination writable, by nobody else.
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
            // SAFETY: parts do not overlap; the rest is the caller's word.
            unsafe { single::<I>(&job.part(rows, cols)) };
        }
    });
}

/// How many parts downwards and to the right: the cut that packs least, for each part packs its own factors.
fn grid<I: Instructions>(job: &Job, threads: usize) -> (usize, usize) {
    let packed = |down: usize| {
        let right = threads / down;
        let rows = share(job.m, I::ROWS, 0, down).1;
        let cols = share(job.n, I::COLS, 0, right).1;
        // Work that is not shared evenly counts most.
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

/// Computes the job on this thread. The cut along k into even blocks depends on nothing but k, so that the bits do not
/// depend on anything else. A product without terms (k = 0) is one block without words.
unsafe fn single<I: Instructions>(job: &Job) {
    let words = job.k.div_ceil(I::PER_WORD);
    let words = words.div_ceil(words.div_ceil(I::DEPTH).max(1));
    let depth = words * I::PER_WORD;
    PACKED.with_borrow_mut(|[left, right]| {
        let left_panels = BLOCK_ROWS.min(job.m).div_ceil(I::ROWS);
        let left = room(left, left_panels * distance::<I>(words, I::ROWS));
        let right_panels = BLOCK_COLS.min(job.n).div_ceil(I::COLS);
        let right = room(right, right_panels * distance::<I>(words, I::COLS));
        for col in (0..job.n).step_by(BLOCK_COLS) {
            let n = BLOCK_COLS.min(job.n - col);
            for from in (0..job.k.max(1)).step_by(depth.max(1)) {
                let k = depth.min(job.k - from);
                // SAFETY: blocks lie within the factors and the buffers have room for them.
                unsafe {
                    I::pack_right(right, job.b.block((col, from), n, k));
                    for row in (0..job.m).step_by(BLOCK_ROWS) {
                        let m = BLOCK_ROWS.min(job.m - row);
                        I::pack_left(left, job.a.block((row, from), m, k));
                        let mut write = job.write.at(row, col);
                        if from > 0 {
                            write.base = Some((write.to, write.stride));
                            write.bias = None;
                        }
                        tiles::<I>((m, n), k.div_ceil(I::PER_WORD), left, right, write);
                    }
                }
            }
        }
    });
}

/// All tiles of one packed block.
unsafe fn tiles<I: Instructions>(
    (m, n): (usize, usize),
    words: usize,
    left: *const u32,
    right: *const u32,
    write: Write,
) {
    let left_distance = distance::<I>(words, I::ROWS);
    let right_distance = distance::<I>(words, I::COLS);
    for col in (0..n).step_by(I::COLS) {
        let cols = I::COLS.min(n - col);
        for row in (0..m).step_by(I::ROWS) {
            let rows = I::ROWS.min(m - row);
            // SAFETY: panels are `words` words deep and lie one behind the other.
            unsafe {
                let mut write = write.at(row, col);
                write.cols = cols;
                let size = (rows, cols.div_ceil(I::LANES));
                let left = left.add(row / I::ROWS * left_distance);
                let right = right.add(col / I::COLS * right_distance);
                I::tile(size, words, left, right, write);
            }
        }
    }
}
