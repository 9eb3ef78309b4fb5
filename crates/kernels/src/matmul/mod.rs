//! Matrix multiplication: f32 in memory, f32 or bf16 compute. Inputs and outputs are in `view`, compute settings
//! in `compute`; `packed` holds our own kernels, `portable` the fallback for other machines.
//!
//! Subnormal inputs (below 1.2e-38) count as 0: a processor takes a hundred times as long for them, and a diverged run is full
//! of them. They are not flushed only in a right input that few rows are multiplied by, which is read in place; and sums
//! may become subnormal. The processor's own switch (FTZ and DAZ in MXCSR) would be free, but Rust code may not run while it is set.
#![allow(unsafe_code)]

mod compute;
mod in_blocks;
mod low_rank;
#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
mod packed;
mod peak;
mod portable;
mod symmetric;
#[cfg(test)]
mod tests;
mod view;

use crate::numbers::ValuesMut;
use crate::simd::Level;
pub use crate::simd::bf16_available;
pub use compute::{Compute, ComputeDtype, Threads};
pub use in_blocks::{Lines, Produced, matmul_in_blocks};
pub use low_rank::{GROUP, LowRank};
pub use peak::{matmul_gflops, peak_gflops};
pub use symmetric::matmul_symmetric;
pub use view::{Accumulation, Destination, Mat, Plus};

/// The instructions that this machine's matmuls of a dtype are computed with. They decide how sums are grouped, and so the last bits:
/// where the name is another one, so are those.
pub fn kernel_name(arithmetic: ComputeDtype) -> &'static str {
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    if let Some(kernel) = packed::Kernel::best(arithmetic) {
        return kernel.name();
    }
    // Bf16 does not change the products there, which are of f32.
    let _ = arithmetic;
    match crate::simd::level() {
        Level::Amx | Level::Avx512 => "gemm with AVX-512",
        Level::Avx2 => "gemm with AVX2",
        Level::Baseline => "gemm",
    }
}

/// Whether a row of a product has the same bits whatever other rows there are. The portable fallback does not promise that.
pub fn rows_are_independent() -> bool {
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    return packed::Kernel::best(ComputeDtype::F32).is_some();
    #[cfg(not(all(target_arch = "x86_64", not(llmtui_portable))))]
    false
}

/// `out` (a.rows, b.cols) = (or +=) `scale` · a b.
pub fn matmul(out: &mut [f32], a: Mat, b: Mat, scale: f32, into: Accumulation, compute: Compute) {
    check_length(out.len(), a, b);
    let destination = Destination {
        start: out.as_mut_ptr(),
        row_stride: b.cols,
        into,
    };
    // SAFETY: the destination is exclusively borrowed and holds a.rows × b.cols elements.
    unsafe { matmul_into(destination, a, b, scale, compute) }
}

/// `out` (a.rows, b.cols) = a b + addends, in one pass over the destination. In bf16 the sum is rounded once.
pub fn matmul_plus(mut out: ValuesMut, a: Mat, b: Mat, plus: Plus, compute: Compute) {
    check(&out, a, b.cols, plus);
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    if let Some(kernel) = packed::Kernel::best(compute.arithmetic) {
        let to = packed::WritePtr::of(&mut out);
        let own = to.as_base().filter(|_| plus.into == Accumulation::Add);
        let base = plus.residual.map(<[f32]>::as_ptr).or(own);
        let base = base.map(|base| (base, b.cols));
        let mut job = job((to, b.cols), a, b, 1.0, (base, plus.bias));
        job.write.low_rank = plus.low_rank.as_ref().map(packed::Added::new);
        // SAFETY: as in `matmul`; the machine has the kernel, and the residual is as large as the destination.
        return unsafe { packed::product(kernel, &job, compute.threads.count()) };
    }
    out.write_f32(|out| {
        portable::prepare(out, b.cols, plus);
        matmul(out, a, b, 1.0, Accumulation::Add, compute);
        if let Some(low_rank) = plus.low_rank {
            low_rank.add_to(out, b.cols);
        }
    });
}

/// Panics on the conditions of [`matmul_plus`]: mismatched sizes, and accumulation that bf16 cannot continue.
fn check(out: &ValuesMut, a: Mat, cols: usize, plus: Plus) {
    assert_eq!(out.len(), a.rows * cols, "destination of a matmul");
    if plus.into == Accumulation::Add {
        let is_alone = plus.residual.is_none() && matches!(out, ValuesMut::F32(_));
        assert!(is_alone, "a matmul onto its destination");
    }
    if let Some(residual) = plus.residual {
        assert_eq!(residual.len(), out.len(), "residual of a matmul");
    }
    if let Some(bias) = plus.bias {
        assert_eq!(bias.len(), cols, "bias of a matmul");
    }
    if let Some(low_rank) = plus.low_rank {
        low_rank.check(a.rows, cols);
    }
}

fn check_length(len: usize, a: Mat, b: Mat) {
    assert_eq!(len, a.rows * b.cols, "destination of a matmul");
}

/// [`matmul`] into a block of a larger matrix.
///
/// # Safety
/// Rows 0..a.rows of the destination, b.cols wide, must be valid for writing (and initialised, for `Accumulate`), and
/// nothing else may access them meanwhile.
pub unsafe fn matmul_into(to: Destination, a: Mat, b: Mat, scale: f32, compute: Compute) {
    if a.rows == 0 || b.cols == 0 {
        return;
    }
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    if let Some(kernel) = packed::Kernel::best(compute.arithmetic) {
        let job = job_into(to, a, b, scale);
        // SAFETY: the machine has the kernel; views were checked on construction; the caller guarantees the rest.
        return unsafe { packed::product(kernel, &job, compute.threads.count()) };
    }
    // SAFETY: as above.
    unsafe { portable::product(to, a, b, scale, compute) }
}

#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
fn job_into(to: Destination, a: Mat, b: Mat, scale: f32) -> packed::Job {
    let base = match to.into {
        Accumulation::Add => Some((to.start.cast_const(), to.row_stride)),
        Accumulation::Overwrite => None,
    };
    let start = packed::WritePtr::F32(to.start);
    job((start, to.row_stride), a, b, scale, (base, None))
}

#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
fn job(
    (to, stride): (packed::WritePtr, usize),
    a: Mat,
    b: Mat,
    scale: f32,
    (base, bias): (Option<(*const f32, usize)>, Option<&[f32]>),
) -> packed::Job {
    assert_eq!(a.cols, b.rows, "inner dimensions of a matmul");
    packed::Job {
        m: a.rows,
        n: b.cols,
        k: a.cols,
        a: packed::Factor {
            start: packed::ReadPtr::of(a.data),
            stride: a.row_stride,
            k_stride: a.col_stride,
        },
        b: packed::Factor {
            start: packed::ReadPtr::of(b.data),
            stride: b.col_stride,
            k_stride: b.row_stride,
        },
        write: packed::Write {
            to,
            stride,
            cols: b.cols,
            scale,
            base,
            bias: bias.map(<[f32]>::as_ptr),
            low_rank: None,
        },
    }
}
