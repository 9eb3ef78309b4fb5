//! Few rows times a large matrix stored along k, as in decode: each thread packs the few rows and reads its part of the
//! matrix once, directly from memory. Packing the matrix would cost about as much as the matmul.

use super::blocked::share;
use super::factor::Source;
use super::instructions::Instructions;
use super::job::{Job, Part};
use crate::lanes::Buffer;
use crate::pointers::ReadPtr;
use crate::threads;
use std::cell::RefCell;

/// Elements of the matrix below which a matmul is not worth handing to another thread.
const WORTHWHILE: usize = 1 << 17;
/// Rows up to which memory is the limit: columns are then read one by one, as a single stream.
const ONE_STREAM: usize = 2;
/// Prefetch distance of that stream, in elements (8 KiB of f32). Hardware prefetchers stop at page boundaries: on Zen 5 the
/// stream alone reads 59 GB/s, with this 66.
const STREAM_AHEAD: usize = 2048;
/// Columns per share are a multiple of this: whole groups for every kernel.
const SHARE: usize = 12;

/// Rows up to which this beats packing the matrix; break-even is at 40 (AVX2) or 64 (AVX-512).
const MAX_ROWS: usize = 32;

/// Whether the job is of this shape.
pub(super) fn fits(job: &Job) -> bool {
    job.m <= MAX_ROWS && job.a.k_stride == 1 && job.b.k_stride == 1
}

thread_local! {
    /// The packed rows.
    static ROWS: RefCell<Buffer> = RefCell::default();
}

/// Computes the job on up to `n_threads` pool threads. Every element is summed in the same order whatever the number
/// of rows and threads is.
///
/// # Safety
/// As for [`super::blocked::product`]; the job must fit.
pub(super) unsafe fn product<I: Instructions>(job: &Job, n_threads: usize) {
    let n_threads = if job.n * job.k < WORTHWHILE {
        1
    } else {
        n_threads
    };
    threads::fan_out(n_threads, &|task| {
        let cols = share(job.n, SHARE, task, n_threads);
        if cols.1 > 0 {
            ROWS.with_borrow_mut(|rows| {
                let words = job.m * steps::<I>(job.k) * I::LANES;
                let rows = rows.get(words).as_mut_ptr().cast();
                // SAFETY: parts do not overlap; the caller guarantees the rest.
                unsafe { I::few_rows(&job.part((0, job.m), cols), rows) };
            });
        }
    });
}

/// Vectors along k.
const fn steps<I: Instructions>(k: usize) -> usize {
    k.div_ceil(I::LANES * I::PER_WORD)
}

/// Rows of block `index` when `m` rows are split as evenly as possible into blocks of at most `most`: (first, count).
fn block(m: usize, most: usize, index: usize) -> (usize, usize) {
    share(m, 1, index, m.div_ceil(most))
}

/// All elements of the job, on this thread; `packed` must hold m rows of [`steps`] vectors.
///
/// # Safety
/// As for [`product`].
#[inline(always)]
pub(super) unsafe fn all<I: Instructions>(job: &Job, packed: *mut u32) {
    let (most, width) = if job.m <= ONE_STREAM {
        (ONE_STREAM, 1)
    } else {
        I::FEW
    };
    let blocks = job.m.div_ceil(most);
    let steps = steps::<I>(job.k);
    // SAFETY: rows and columns of the job, whose inputs the caller guarantees, and of the memory for packed rows.
    unsafe {
        for index in 0..blocks {
            let (row, rows) = block(job.m, most, index);
            pack::<I>(
                packed.add(row * steps * I::LANES),
                Source {
                    start: job.a.start.add(row * job.a.stride),
                    stride: job.a.stride,
                    k_stride: 1,
                    width: rows,
                    k: job.k,
                },
            );
        }
        for col in (0..job.n).step_by(width) {
            // What is read next is prefetched meanwhile: the next columns, or the stream further on.
            let ahead = match width {
                1 => STREAM_AHEAD,
                _ if col + width < job.n => width * job.b.stride,
                _ => 0,
            };
            for index in 0..blocks {
                let (row, rows) = block(job.m, most, index);
                let part = Part {
                    x: packed.add(row * steps * I::LANES),
                    weights: job.b.start.add(col * job.b.stride),
                    row,
                    col,
                    ahead,
                };
                if job.n - col >= width {
                    I::few_rows_part((rows, width), job, part);
                } else {
                    for i in 0..job.n - col {
                        I::few_rows_part((rows, 1), job, part.column(job, i));
                    }
                }
            }
        }
    }
}

/// Packs rows so that vectors used together are adjacent: all rows' vectors of one step, then the next.
#[inline(always)]
unsafe fn pack<I: Instructions>(to: *mut u32, rows: Source) {
    let step = I::LANES * I::PER_WORD;
    for (at, k) in (0..rows.k).step_by(step).enumerate() {
        for i in 0..rows.width {
            // SAFETY: within the source, and one vector for each of its rows and steps.
            unsafe {
                let words = I::along(rows.start.add(i * rows.stride + k), step.min(rows.k - k));
                I::store_words(to.add((at * rows.width + i) * I::LANES), words);
            }
        }
    }
}

/// The elements of `R` rows in `C` columns. Each is summed vector by vector along k, and then over the lanes, whatever R and C are.
///
/// # Safety
/// As for [`product`].
#[inline(always)]
pub(super) unsafe fn part<I: Instructions, const R: usize, const C: usize>(job: &Job, part: Part) {
    let step = I::LANES * I::PER_WORD;
    let whole = job.k / step;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[I::zero(); C]; R];
        let mut x = part.x;
        let mut weights = part.weights;
        for _ in 0..whole {
            for j in 0..C {
                for line in 0..I::PER_WORD {
                    let next = part.ahead + j * job.b.stride + line * I::LANES;
                    weights.add(next).fetch(1);
                }
            }
            add::<I, R, C>(&mut sums, x, (weights, job.b.stride), step);
            x = x.add(R * I::LANES);
            weights = weights.add(step);
        }
        let rest = job.k - whole * step;
        if rest > 0 {
            add::<I, R, C>(&mut sums, x, (weights, job.b.stride), rest);
        }
        for (i, sums) in sums.iter().enumerate() {
            let mut totals = [0.0; C];
            I::totals(sums, &mut totals);
            for (j, total) in totals.into_iter().enumerate() {
                job.write.one(part.row + i, part.col + j, total);
            }
        }
    }
}

/// Adds `n` elements along k.
#[inline(always)]
unsafe fn add<I: Instructions, const R: usize, const C: usize>(
    sums: &mut [[I::Sum; C]; R],
    x: *const u32,
    (weights, stride): (ReadPtr, usize),
    n: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut columns = [I::in_place(weights, n); C];
        for (j, column) in columns.iter_mut().enumerate().skip(1) {
            *column = I::in_place(weights.add(j * stride), n);
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            let row = I::words(x.add(i * I::LANES));
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = I::dot(*sum, row, column);
            }
        }
    }
}
