//! Matrix products: f32 in memory, f32 or bf16 in the arithmetic. What a product reads and writes is in `view`, how it is
//! computed in `compute`; the rest is how it is done.
#![allow(unsafe_code)]

mod compute;
mod peak;
mod portable;
#[cfg(test)]
mod tests;
mod view;

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
    // SAFETY: the caller vouches for the destination; the views were checked when they were made.
    unsafe { portable::product(to, a, b, scale, compute) }
}
