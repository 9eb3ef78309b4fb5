//! Few rows times a large matrix stored along k, as in decode: the matrix is read once, directly from memory.

use super::blocked::{Job, share};
use super::instructions::Instructions;
use crate::threads;

/// Rows up to which this beats packing the matrix.
pub(super) const MAX_ROWS: usize = 8;
/// Elements of the matrix below which a matmul is not worth handing to another thread.
const WORTHWHILE: usize = 1 << 17;

/// Whether the job is of this shape.
pub(super) fn fits(job: &Job) -> bool {
    job.m <= MAX_ROWS && job.a.k_stride == 1 && job.b.k_stride == 1
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
        let cols = share(job.n, GROUP, task, n_threads);
        if cols.1 > 0 {
            // SAFETY: parts do not overlap; the rest is the caller's guarantee.
            unsafe { I::few_rows(&job.part((0, job.m), cols)) };
        }
    });
}

/// Columns per share are a multiple of this.
const GROUP: usize = 4;
/// Rows computed together.
const ROWS: usize = 4;

/// All elements of the job, on this thread. Column after column, so that memory is read as one stream: four columns at a
/// time reach only two thirds of the speed.
///
/// # Safety
/// As for [`product`].
#[inline(always)]
pub(super) unsafe fn all<I: Instructions>(job: &Job) {
    // SAFETY: rows and columns of the job, whose inputs the caller guarantees.
    unsafe {
        for col in 0..job.n {
            for row in (0..job.m).step_by(ROWS) {
                match job.m - row {
                    1 => column::<I, 1>(job, row, col),
                    2 => column::<I, 2>(job, row, col),
                    3 => column::<I, 3>(job, row, col),
                    _ => column::<I, ROWS>(job, row, col),
                }
            }
        }
    }
}

/// The elements of R rows from `row` in one column.
#[inline(always)]
unsafe fn column<I: Instructions, const R: usize>(job: &Job, row: usize, col: usize) {
    let step = I::LANES * I::PER_WORD;
    // SAFETY: passed on to the caller.
    unsafe {
        let weights = job.b.start.add(col * job.b.stride);
        let x = |i: usize, k: usize| job.a.start.add((row + i) * job.a.stride + k);
        let mut sums = [I::zero(); R];
        for k in (0..job.k).step_by(step) {
            let n = step.min(job.k - k);
            let column = I::along(weights.add(k), n);
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = I::dot(*sum, I::along(x(i, k), n), column);
            }
        }
        for (i, &sum) in sums.iter().enumerate() {
            job.write.one(row + i, col, I::total(sum));
        }
    }
}
