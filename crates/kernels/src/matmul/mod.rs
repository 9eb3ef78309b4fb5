//! Matrix multiplication: f32 in memory, f32 or bf16 compute. Inputs and outputs are in `view`, compute settings
//! in `compute`; `packed` holds our own kernels, `portable` the fallback for other machines.
//!
//! Subnormal inputs (below 1.2e-38) count as 0: a processor takes a hundred times as long for them, and a diverged run is full
//! of them. They are taken as they are only in a right input that few rows are multiplied with, which is read in place; and sums
//! may become subnormal. The processor's own switch (FTZ and DAZ in MXCSR) would be free, but Rust code may not run while it is set.
#![allow(unsafe_code)]

mod compute;
#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
mod packed;
mod peak;
mod portable;
#[cfg(test)]
mod tests;
mod view;

pub use compute::{Compute, ComputeDtype, Threads, bf16_available};
pub use peak::{matmul_gflops, peak_gflops};
pub use view::{Accumulation, Destination, Mat, Plus};

/// `out` (a.rows, b.cols) = (or +=) `scale` · a b.
pub fn matmul(out: &mut [f32], a: Mat, b: Mat, scale: f32, into: Accumulation, compute: Compute) {
    check_length(out, a, b);
    let destination = Destination {
        start: out.as_mut_ptr(),
        row_stride: b.cols,
        into,
    };
    // SAFETY: the destination is exclusively borrowed and holds a.rows × b.cols elements.
    unsafe { matmul_into(destination, a, b, scale, compute) }
}

/// `out` (a.rows, b.cols) = a b + addends, in one pass over the destination.
pub fn matmul_plus(out: &mut [f32], a: Mat, b: Mat, plus: Plus, compute: Compute) {
    check_length(out, a, b);
    if let Some(residual) = plus.residual {
        assert_eq!(residual.len(), out.len(), "residual of a matmul");
    }
    if let Some(bias) = plus.bias {
        assert_eq!(bias.len(), b.cols, "bias of a matmul");
    }
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    if let Some(kernel) = packed::Kernel::best(compute.arithmetic) {
        let to = Destination {
            start: out.as_mut_ptr(),
            row_stride: b.cols,
            into: Accumulation::Overwrite,
        };
        let job = job(to, a, b, 1.0, plus);
        // SAFETY: as in `matmul`; the machine has the kernel, and the residual is as large as the destination.
        return unsafe { packed::product(kernel, &job, compute.threads.count()) };
    }
    portable::prepare(out, b.cols, plus);
    matmul(out, a, b, 1.0, Accumulation::Add, compute);
}

fn check_length(out: &[f32], a: Mat, b: Mat) {
    assert_eq!(out.len(), a.rows * b.cols, "destination of a matmul");
}

/// [`matmul`] into a block of a larger matrix.
///
/// # Safety
/// Rows 0..a.rows of the destination, b.cols wide, must be valid for writing (and initialised, for `Accumulate`), and
/// nobody else may access them meanwhile.
pub unsafe fn matmul_into(to: Destination, a: Mat, b: Mat, scale: f32, compute: Compute) {
    if a.rows == 0 || b.cols == 0 {
        return;
    }
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    if let Some(kernel) = packed::Kernel::best(compute.arithmetic) {
        let job = job(to, a, b, scale, Plus::default());
        // SAFETY: the machine has the kernel; views were checked on construction; the rest is the caller's guarantee.
        return unsafe { packed::product(kernel, &job, compute.threads.count()) };
    }
    // SAFETY: as above.
    unsafe { portable::product(to, a, b, scale, compute) }
}

#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
fn job(to: Destination, a: Mat, b: Mat, scale: f32, plus: Plus) -> packed::Job {
    assert_eq!(a.cols, b.rows, "inner dimensions of a matmul");
    let base = match to.into {
        Accumulation::Add => Some((to.start.cast_const(), to.row_stride)),
        Accumulation::Overwrite => plus.residual.map(|x| (x.as_ptr(), b.cols)),
    };
    packed::Job {
        m: a.rows,
        n: b.cols,
        k: a.cols,
        a: packed::Factor {
            start: a.data.as_ptr(),
            stride: a.row_stride,
            k_stride: a.col_stride,
        },
        b: packed::Factor {
            start: b.data.as_ptr(),
            stride: b.col_stride,
            k_stride: b.row_stride,
        },
        write: packed::Write {
            to: to.start,
            stride: to.row_stride,
            cols: b.cols,
            scale,
            base,
            bias: plus.bias.map(<[f32]>::as_ptr),
        },
    }
}
