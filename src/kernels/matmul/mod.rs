//! Matrix products: f32 in memory, f32 or bf16 in the arithmetic. What a product reads and writes is in `view`, how it is
//! computed in `compute`; the rest is how it is done.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx512;
mod blocked;
mod compute;
mod instructions;
mod pack;
mod peak;
mod portable;
#[cfg(test)]
mod tests;
mod tile;
mod view;

use crate::kernels::simd::{Level, level};
pub use compute::{Arithmetic, Compute, Threads, bf16_available};
pub use peak::peak_gflops;
pub use view::{Destination, Into, Mat};

/// `out` (a.rows, b.cols) = (or +=) `scale` · a b.
pub fn matmul(out: &mut [f32], a: Mat, b: Mat, scale: f32, into: Into, compute: Compute) {
    assert_eq!(
        out.len(),
        a.rows * b.cols,
        "destination of a matrix product"
    );
    let destination = Destination {
        start: out.as_mut_ptr(),
        row_stride: b.cols,
        into,
    };
    // SAFETY: the destination is exclusively borrowed and holds a.rows × b.cols elements.
    unsafe { matmul_into(destination, a, b, scale, compute) }
}

/// The same into a block of a larger matrix.
///
/// # Safety
/// Rows 0..a.rows of the destination, b.cols wide, must be valid for writing (and initialised, for `Accumulate`), and
/// nobody else may touch them meanwhile.
pub unsafe fn matmul_into(to: Destination, a: Mat, b: Mat, scale: f32, compute: Compute) {
    assert_eq!(a.cols, b.rows, "inner sizes of a matrix product");
    if a.rows == 0 || b.cols == 0 {
        return;
    }
    let threads = match compute.threads {
        Threads::One => 1,
        Threads::Pool => rayon::current_num_threads(),
    };
    #[cfg(target_arch = "x86_64")]
    {
        let job = job(to, a, b, scale);
        if compute.arithmetic == Arithmetic::Bf16 && bf16_available() {
            // SAFETY: the machine has the instructions; the rest is the caller's word.
            return unsafe { blocked::product::<avx512::Bf16>(&job, threads) };
        }
        if compute.arithmetic == Arithmetic::F32 && level() == Level::Avx512 {
            // SAFETY: as above.
            return unsafe { blocked::product::<avx512::F32>(&job, threads) };
        }
    }
    // SAFETY: the caller vouches for the destination; the views were checked when they were made.
    unsafe { portable::product(to, a, b, scale, compute) }
}

fn job(to: Destination, a: Mat, b: Mat, scale: f32) -> blocked::Job {
    let base = (to.into == Into::Accumulate).then_some((to.start.cast_const(), to.row_stride));
    blocked::Job {
        m: a.rows,
        n: b.cols,
        k: a.cols,
        a: blocked::Factor {
            start: a.data.as_ptr(),
            stride: a.row_stride,
            k_stride: a.col_stride,
        },
        b: blocked::Factor {
            start: b.data.as_ptr(),
            stride: b.col_stride,
            k_stride: b.row_stride,
        },
        write: tile::Write {
            to: to.start,
            stride: to.row_stride,
            cols: b.cols,
            scale,
            base,
            bias: None,
        },
    }
}
