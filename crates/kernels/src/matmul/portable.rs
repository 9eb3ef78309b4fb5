//! Matmuls on architectures without our own kernel: the `gemm` crate, which dispatches at run time. bf16 is emulated there:
//! correct, not fast.

use super::{Accumulation, Compute, ComputeDtype, Destination, Mat, Plus, Threads};
use crate::math::flush_subnormal;
use crate::numbers::Values;
use crate::threads;
use gemm::Parallelism;

/// Rows, or columns, that the other input must have for this one to be searched for subnormal numbers: reading it then costs less
/// than the product.
const MANY: usize = 33;

/// # Safety
/// As for [`super::matmul_into`].
pub(super) unsafe fn product(to: Destination, a: Mat, b: Mat, scale: f32, compute: Compute) {
    assert_eq!(a.cols, b.rows, "inner dimensions of a matmul");
    match compute.arithmetic {
        ComputeDtype::F32 => {
            let own = |x, others| is_slow(x, others).then(|| each(x, flush_subnormal));
            let (own_a, own_b) = (own(a, b.cols), own(b, a.rows));
            let a = own_a.as_ref().map_or(a, |x| Mat::new(x, a.rows, a.cols));
            let b = own_b.as_ref().map_or(b, |x| Mat::new(x, b.rows, b.cols));
            // SAFETY: guaranteed by the caller.
            unsafe { f32_product(to, a, b, scale, compute.threads) }
        }
        ComputeDtype::Bf16 => {
            // Subnormal numbers as in `vdpbf16ps`.
            let rounded = |x| each(x, |x| to_bf16(flush_subnormal(x)));
            let (a_rounded, b_rounded) = (rounded(a), rounded(b));
            let a = Mat::new(&a_rounded, a.rows, a.cols);
            let b = Mat::new(&b_rounded, b.rows, b.cols);
            // SAFETY: guaranteed by the caller.
            unsafe { f32_product(to, a, b, scale, compute.threads) }
        }
    }
}

/// Initializes the destination with the addends.
pub(super) fn prepare(out: &mut [f32], cols: usize, plus: Plus) {
    threads::rows1(out, cols, cols, |first, out| {
        match plus.residual {
            Some(residual) => out.copy_from_slice(&residual[first * cols..][..out.len()]),
            None if plus.into == Accumulation::Add => {}
            None => out.fill(0.0),
        }
        for row in out.chunks_exact_mut(cols) {
            for (x, bias) in row.iter_mut().zip(plus.bias.unwrap_or_default()) {
                *x += bias;
            }
        }
    });
}

/// # Safety
/// As for [`super::matmul_into`].
unsafe fn f32_product(to: Destination, a: Mat, b: Mat, scale: f32, threads: Threads) {
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::Pool => Parallelism::Rayon(0),
    };
    // SAFETY: views contain all elements that their sizes and strides reach (checked on construction); the caller
    // guarantees the destination.
    unsafe {
        gemm::gemm(
            a.rows,
            b.cols,
            a.cols,
            to.start,
            1,
            to.row_stride as isize,
            to.into == Accumulation::Add,
            a.data.f32().as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.f32().as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// `f` of each element of the view, row-major.
fn each(x: Mat, f: impl Fn(f32) -> f32) -> Vec<f32> {
    let row = |i: usize| (0..x.cols).map(move |j| x.get(i, j));
    (0..x.rows).flat_map(row).map(f).collect()
}

/// Whether the view should be copied: it has subnormal numbers, and each is multiplied by so many `others` that it matters.
fn is_slow(x: Mat, others: usize) -> bool {
    // Contiguous lines in memory: one of the two strides is 1.
    let (lines, stride, len) = match x.col_stride {
        1 => (x.rows, x.row_stride, x.cols),
        stride => (x.cols, stride, x.rows),
    };
    // bf16 is copied in any case.
    let Values::F32(data) = x.data else {
        return true;
    };
    let mut lines = (0..lines).map(|i| &data[i * stride..][..len]);
    others >= MANY && lines.any(has_subnormal)
}

fn has_subnormal(x: &[f32]) -> bool {
    // Without an early exit, so that it vectorizes. On bits: comparing subnormal floats may be slow as well.
    let is_subnormal =
        |x: f32| (x.to_bits() << 1).wrapping_sub(1) < (f32::MIN_POSITIVE.to_bits() << 1) - 1;
    x.iter().fold(false, |any, &x| any | is_subnormal(x))
}

/// The nearest bf16 number, ties to even; NaN stays NaN.
pub(super) fn to_bf16(x: f32) -> f32 {
    half::bf16::from_f32_const(x).to_f32_const()
}
