//! Few rows times a large matrix whose rows lie along k, as in decoding: the matrix is read once, straight from memory.

use super::blocked::{Job, share};
use super::instructions::Instructions;
use crate::kernels::threads;

/// Rows up to which this beats packing the matrix.
pub(super) const MAX_ROWS: usize = 8;
/// Elements of the matrix below which a product is not worth a hand-over to another thread.
const WORTHWHILE: usize = 1 << 17;

/// Whether the job is of this kind.
pub(super) fn fits(job: &Job) -> bool {
    job.m <= MAX_ROWS && job.a.k_stride == 1 && job.b.k_stride == 1
}

/// Computes the job on up to `n_threads` threads of the pool. Every element is summed in the same order whatever the number
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
            // SAFETY: parts do not overlap; the rest is the caller's word.
            unsafe { I::few_rows(&job.part((0, job.m), cols)) };
        }
    });
}

/// Columns that are computed together.
const GROUP: usize = 4;

/// All elements of the job, on this thread.
///
/// # Safety
/// As for [`product`].
#[inline(always)]
pub(super) unsafe fn all<I: Instructions>(job: &Job) {
    // SAFETY: rows and columns of the job, whose factors the caller vouches for.
    unsafe {
        let mut col = 0;
        while col + GROUP <= job.n {
            match job.m {
                1 => group::<I, 1, GROUP>(job, 0, col),
                2 => group::<I, 2, GROUP>(job, 0, col),
                3 => group::<I, 3, GROUP>(job, 0, col),
                rows => {
                    for row in (0..rows / 4 * 4).step_by(4) {
                        group::<I, 4, GROUP>(job, row, col);
                    }
                    match rows % 4 {
                        1 => group::<I, 1, GROUP>(job, rows - 1, col),
                        2 => group::<I, 2, GROUP>(job, rows - 2, col),
                        3 => group::<I, 3, GROUP>(job, rows - 3, col),
                        _ => {}
                    }
                }
            }
            col += GROUP;
        }
        for col in col..job.n {
            for row in 0..job.m {
                group::<I, 1, 1>(job, row, col);
            }
        }
    }
}

/// Asks for a cache line that will be read soon.
#[inline(always)]
fn prefetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint may name any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
}

/// The elements of R rows from `row` and C columns from `col`.
#[inline(always)]
unsafe fn group<I: Instructions, const R: usize, const C: usize>(
    job: &Job,
    row: usize,
    col: usize,
) {
    let square = I::LANES * I::PER_WORD;
    // SAFETY: passed on to the caller.
    unsafe {
        let mut sums = [[I::zero(); C]; R];
        for k in (0..job.k).step_by(square) {
            let n = square.min(job.k - k);
            let at = |j: usize| job.b.start.add((col + j) * job.b.stride + k);
            // Rows are too short for the machine to see where memory is read next: the group after this one is asked for.
            for j in 0..C {
                prefetch(at(j).wrapping_add(C * job.b.stride));
            }
            let mut columns = [I::along(at(0), n); C];
            for (j, column) in columns.iter_mut().enumerate().skip(1) {
                *column = I::along(at(j), n);
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = I::along(job.a.start.add((row + i) * job.a.stride + k), n);
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = I::dot(*sum, x, column);
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                job.write.one(row + i, col + j, I::total(sum));
            }
        }
    }
}
