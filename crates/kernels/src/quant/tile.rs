//! The innermost loop: a few rows of activations times panels of weights, for any format and ISA.

use super::activations::{BLOCK, Head};
use super::formats::Kind;
use super::lanes::{Lanes, ROWS};
use super::layout::{Codes, GROUPS, Layout, Scales};
use crate::fetch;

/// A part of a matmul that one thread computes in one go.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub kind: Kind,
    /// The first panel; more follow without gaps.
    pub panels: *const u8,
    pub n_panels: usize,
    /// Units per panel.
    pub units: usize,
    /// Rows of activations, at most as many as the ISA processes at once.
    pub rows: usize,
    /// Codes of the first row; others follow `cols` apart.
    pub codes: *const i8,
    pub cols: usize,
    /// Heads of the first row; others follow `cols` / 32 apart.
    pub heads: *const Head,
    pub write: Write,
}

/// Destination and addends of the sums.
#[derive(Clone, Copy)]
pub(super) struct Write {
    /// Element (row, 0) of the first panel's rows.
    pub to: *mut f32,
    /// Elements from one row of activations to the next.
    pub stride: usize,
    /// Columns available from there on: rows of weights.
    pub columns: usize,
    /// A matrix like the destination.
    pub residual: Option<*const f32>,
    /// One value per column.
    pub bias: Option<*const f32>,
}

/// `M` rows of activations.
///
/// # Safety
/// The machine must have the instructions of `S`, the job must have layout `L` and M rows, and its pointers must be valid for
/// its sizes.
#[inline(always)]
pub(super) unsafe fn tile<S: Lanes, L: Layout, const M: usize>(job: &Job) {
    let blocks = job.cols / BLOCK;
    let mut at = job.panels;
    for panel in 0..job.n_panels {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut sums = [S::splat(0.0); M];
            let (mut codes, mut heads) = (job.codes, job.heads);
            for _ in 0..job.units {
                let mut block_codes = at.add(L::Scales::BYTES);
                for block in 0..L::Scales::BLOCKS {
                    if M == 1 {
                        fetch::at(block_codes.wrapping_add(AHEAD), L::Codes::BYTES);
                    }
                    let x = Columns {
                        codes,
                        cols: job.cols,
                        heads,
                        blocks,
                    };
                    add_block::<S, L, M>(&mut sums, (at, block), block_codes, x);
                    block_codes = block_codes.add(L::Codes::BYTES);
                    codes = codes.add(BLOCK);
                    heads = heads.add(1);
                }
                at = at.add(L::UNIT);
            }
            finish::<S, M>(&sums, &job.write, panel * ROWS);
        }
    }
}

/// Prefetch distance in bytes: memory latency times bandwidth. Hardware prefetchers stop at page boundaries.
const AHEAD: usize = 4096;

/// One block of all rows of activations.
#[derive(Clone, Copy)]
struct Columns {
    codes: *const i8,
    cols: usize,
    heads: *const Head,
    blocks: usize,
}

#[inline(always)]
unsafe fn add_block<S: Lanes, L: Layout, const M: usize>(
    sums: &mut [S::Floats; M],
    (head, block): (*const u8, usize),
    weights: *const u8,
    x: Columns,
) {
    let parts = L::Scales::PARTS;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for part in 0..parts {
            let mut dots = [S::all(0); M];
            if L::OFFSET != 0 {
                for (m, dot) in dots.iter_mut().enumerate() {
                    let sums = (*x.heads.add(m * x.blocks)).sums;
                    let sum = if parts == 1 {
                        sums[0] + sums[1]
                    } else {
                        sums[part]
                    };
                    *dot = S::all(-L::OFFSET * sum);
                }
            }
            for i in 0..GROUPS / parts {
                let group = part * (GROUPS / parts) + i;
                let weights = L::Codes::group::<S>(weights, group);
                for (m, dot) in dots.iter_mut().enumerate() {
                    *dot = S::dot(*dot, weights, x.codes.add(m * x.cols + 4 * group));
                }
            }
            let scale = L::Scales::scale::<S>(head, block, part);
            for (m, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
                let scale = S::mul(scale, S::splat((*x.heads.add(m * x.blocks)).scale));
                *sum = S::add(*sum, S::mul(S::to_floats(dot), scale));
            }
        }
        if L::Scales::MINIMUM {
            for part in 0..parts {
                let minimum = L::Scales::minimum::<S>(head, block, part);
                for (m, sum) in sums.iter_mut().enumerate() {
                    let head = *x.heads.add(m * x.blocks);
                    let weighted = match parts {
                        1 => head.weighted,
                        _ => head.scale * head.sums[part] as f32,
                    };
                    *sum = S::add(*sum, S::mul(minimum, S::splat(weighted)));
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn finish<S: Lanes, const M: usize>(sums: &[S::Floats; M], write: &Write, first: usize) {
    let n = ROWS.min(write.columns - first);
    for (m, sum) in sums.iter().enumerate() {
        let at = m * write.stride + first;
        if n == ROWS && write.residual.is_none() && write.bias.is_none() {
            // SAFETY: ROWS columns of this row exist, guaranteed by the caller.
            unsafe { S::store(write.to.add(at), *sum) };
            continue;
        }
        let mut values = [0.0_f32; ROWS];
        // SAFETY: n columns of this row exist, guaranteed by the caller.
        unsafe {
            S::store(values.as_mut_ptr(), *sum);
            for (i, x) in values.iter_mut().enumerate().take(n) {
                if let Some(residual) = write.residual {
                    *x += *residual.add(at + i);
                }
                if let Some(bias) = write.bias {
                    *x += *bias.add(first + i);
                }
            }
            std::ptr::copy_nonoverlapping(values.as_ptr(), write.to.add(at), n);
        }
    }
}

/// Calls `$f::<layout, M>($job)` for the job's format and number of rows, out of those listed. Plain floats have no job.
macro_rules! by_layout {
    ($job:ident, $f:ident, $rows:tt) => {
        match $job.kind {
            $crate::quant::Kind::Q8_0 => by_layout!(@ $job, $f, Q8_0, $rows),
            $crate::quant::Kind::Q4_0 => by_layout!(@ $job, $f, Q4_0, $rows),
            $crate::quant::Kind::Q4_1 => by_layout!(@ $job, $f, Q4_1, $rows),
            $crate::quant::Kind::Q5_0 => by_layout!(@ $job, $f, Q5_0, $rows),
            $crate::quant::Kind::Q5_1 => by_layout!(@ $job, $f, Q5_1, $rows),
            $crate::quant::Kind::Q2K => by_layout!(@ $job, $f, Q2K, $rows),
            $crate::quant::Kind::Q3K => by_layout!(@ $job, $f, Q3K, $rows),
            $crate::quant::Kind::Q4K => by_layout!(@ $job, $f, Q4K, $rows),
            $crate::quant::Kind::Q5K => by_layout!(@ $job, $f, Q5K, $rows),
            $crate::quant::Kind::Q6K => by_layout!(@ $job, $f, Q6K, $rows),
            $crate::quant::Kind::Iq4Nl => by_layout!(@ $job, $f, Iq4Nl, $rows),
            $crate::quant::Kind::Iq4Xs => by_layout!(@ $job, $f, Iq4Xs, $rows),
            $crate::quant::Kind::Mxfp4 => by_layout!(@ $job, $f, Mxfp4, $rows),
            _ => {}
        }
    };
    (@ $job:ident, $f:ident, $layout:ident, [$($m:literal)*]) => {
        match $job.rows {
            $($m => $f::<$crate::quant::layout::$layout, $m>($job),)*
            _ => {}
        }
    };
}
pub(super) use by_layout;
