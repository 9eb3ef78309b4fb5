//! Matmuls whose right input is produced block by block, such as dequantized weights: it is never in memory as a whole.

use super::{Compute, Mat, Plus, check};
use crate::lanes::Buffer;
use crate::numbers::{ValuesMut, bf16, halves_mut};
use std::cell::Cell;
use std::ops::Range;

/// The storage order of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// Column by column of the right input: (count, k).
    Columns,
    /// Row by row, for some columns: (k, count).
    Rows,
}

/// A right input (k, `n`) of bf16 that is produced block by block.
#[derive(Clone, Copy)]
pub struct Produced<'a> {
    pub n: usize,
    /// Blocks are cut at multiples of this many columns.
    pub step: usize,
    pub lines: Lines,
    /// Writes the requested columns.
    pub make: &'a dyn Fn(Range<usize>, &mut [bf16]),
}

/// Elements of a block: 8 MiB. The left input is packed again for each block.
const BLOCK: usize = 4 << 20;

thread_local! {
    /// The block, owned by the thread that called the matmul; grows as needed and is kept. Moved out while in use.
    static PRODUCED: Cell<Buffer> = Cell::default();
}

/// [`super::matmul_plus`] with a right input that is never in memory as a whole. The result is bit-identical. A machine
/// without our own kernels takes it as a single block.
///
/// # Panics
/// As [`super::matmul_plus`].
pub fn matmul_in_blocks(out: ValuesMut, a: Mat, b: Produced, plus: Plus, compute: Compute) {
    let most = (BLOCK / a.cols.max(1) / b.step * b.step).max(b.step);
    blocks_of(most, out, a, b, plus, compute);
}

/// In blocks of at most `most` columns.
fn blocks_of(most: usize, mut out: ValuesMut, a: Mat, b: Produced, plus: Plus, compute: Compute) {
    let n = b.n;
    check(&out, a, n, plus);
    let k = a.cols;
    let most = if by_kernel::is_available(compute) {
        most
    } else {
        n
    };
    let mut buffer = PRODUCED.take();
    let words = buffer.get((most.min(n) * k).div_ceil(2));
    for from in (0..n).step_by(most.max(1)) {
        let count = most.min(n - from);
        let block = &mut halves_mut(words)[..count * k];
        (b.make)(from..from + count, block);
        let b = match b.lines {
            Lines::Columns => Mat::of((&*block).into(), count, k).t(),
            Lines::Rows => Mat::of((&*block).into(), k, count),
        };
        by_kernel::columns((&mut out, n, from), a, b, plus, compute);
    }
    PRODUCED.set(buffer);
}

#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
mod by_kernel {
    use super::super::packed::{self, Kernel, Write};
    use super::super::{Accumulation, job};
    use super::{Compute, Mat, Plus, ValuesMut};

    pub fn is_available(compute: Compute) -> bool {
        Kernel::best(compute.arithmetic).is_some()
    }

    /// Columns `from`.. of an `out` that has `n` of them, with checked sizes.
    pub fn columns(
        (out, n, from): (&mut ValuesMut, usize, usize),
        a: Mat,
        b: Mat,
        plus: Plus,
        compute: Compute,
    ) {
        let Some(kernel) = Kernel::best(compute.arithmetic) else {
            return super::whole(out, a, b, plus, compute);
        };
        let to = packed::WritePtr::of(out);
        let own = to.as_base().filter(|_| plus.into == Accumulation::Add);
        let base = plus.residual.map(<[f32]>::as_ptr).or(own);
        let mut job = job((to, n), a, b, 1.0, (base.map(|base| (base, n)), plus.bias));
        job.write.low_rank = plus.low_rank.as_ref().map(packed::Added::new);
        // SAFETY: the machine has the kernel; the destination and the addends have n columns, b those of this block.
        unsafe {
            job.write = Write {
                cols: b.cols,
                ..job.write.at(0, from)
            };
            packed::product(kernel, &job, compute.threads.count());
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(llmtui_portable))))]
mod by_kernel {
    use super::{Compute, Mat, Plus, ValuesMut};

    pub fn is_available(_: Compute) -> bool {
        false
    }

    pub fn columns(
        (out, _, _): (&mut ValuesMut, usize, usize),
        a: Mat,
        b: Mat,
        plus: Plus,
        compute: Compute,
    ) {
        super::whole(out, a, b, plus, compute);
    }
}

/// All columns as one block.
fn whole(out: &mut ValuesMut, a: Mat, b: Mat, plus: Plus, compute: Compute) {
    let out = match out {
        ValuesMut::F32(x) => ValuesMut::F32(x),
        ValuesMut::Bf16(x) => ValuesMut::Bf16(x),
    };
    super::matmul_plus(out, a, b, plus, compute);
}

#[cfg(test)]
mod tests {
    use super::super::{Accumulation, ComputeDtype, LowRank, matmul_plus};
    use super::*;
    use crate::check::normal;

    #[test]
    fn blocks_are_bit_identical_to_the_whole() {
        let (m, n, k) = (70, 150, 96);
        let a = normal(m * k, 0);
        let b: Vec<bf16> = normal(n * k, 1).into_iter().map(bf16::from_f32).collect();
        let (residual, bias) = (normal(m * n, 2), normal(n, 3));
        let (z, factor) = (normal(m * 4, 4), normal(4 * n, 5));
        let low_rank = LowRank {
            z: &z,
            ranks: 4,
            factor: &factor,
            used: &[],
            kept: None,
            scale: 0.5,
        };
        let plain = Plus {
            low_rank: Some(low_rank),
            bias: Some(&bias),
            ..Plus::default()
        };
        let beside = Plus {
            residual: Some(&residual),
            ..plain
        };
        let onto = Plus::from(Accumulation::Add);
        let a = Mat::new(&a, m, k);
        for arithmetic in [ComputeDtype::F32, ComputeDtype::Bf16] {
            let compute = Compute::pool(arithmetic);
            for (lines, plus) in [
                (Lines::Columns, plain),
                (Lines::Columns, beside),
                (Lines::Rows, plain),
                (Lines::Rows, onto),
            ] {
                let right = match lines {
                    Lines::Columns => Mat::of((&*b).into(), n, k).t(),
                    Lines::Rows => Mat::of((&*b).into(), k, n),
                };
                let make = |columns: Range<usize>, to: &mut [bf16]| match lines {
                    Lines::Columns => to.copy_from_slice(&b[columns.start * k..columns.end * k]),
                    Lines::Rows => {
                        for (to, row) in to.chunks_mut(columns.len()).zip(b.chunks(n)) {
                            to.copy_from_slice(&row[columns.clone()]);
                        }
                    }
                };
                let mut whole = normal(m * n, 6);
                let mut blocks = whole.clone();
                matmul_plus((&mut *whole).into(), a, right, plus, compute);
                let made = Produced {
                    n,
                    step: 64,
                    lines,
                    make: &make,
                };
                blocks_of(64, (&mut *blocks).into(), a, made, plus, compute);
                assert_eq!(whole, blocks, "{lines:?} {arithmetic:?}");
            }
        }
    }
}
