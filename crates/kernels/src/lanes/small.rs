//! Matmuls of the small matrices that the chunks of a recurrence have, in f32 and whole lines, on one thread.
#![allow(unsafe_code)]

use super::{LINE, Left, ROWS, Right, To, Vector, rows8};

/// A left input: a matrix, or its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    x: &'a [f32],
    row_stride: usize,
    col_stride: usize,
}

/// The matrix `x`, whose rows are `width` apart.
pub(crate) fn rows(x: &[f32], width: usize) -> Input<'_> {
    Input {
        x,
        row_stride: width,
        col_stride: 1,
    }
}

/// Its transpose.
pub(crate) fn transposed(x: &[f32], width: usize) -> Input<'_> {
    Input {
        x,
        row_stride: 1,
        col_stride: width,
    }
}

/// `to` (n rows, columns), `stride` apart, = (or +=) `left` (n, k) · `right` (k, columns); (n, columns, k) are whole lines or
/// multiples of eight rows, and rows of `right` are as long as its columns.
///
/// # Safety
/// This and the other functions need V's instructions.
#[inline(always)]
pub(crate) unsafe fn multiply<V: Vector>(
    to: &mut [f32],
    stride: usize,
    add: bool,
    left: Input,
    right: &[f32],
    (n, columns, k): (usize, usize, usize),
) {
    // SAFETY: guaranteed by the caller.
    unsafe { multiply_part::<V>((to, stride), add, left, (right, columns), (n, columns, k)) }
}

/// The same with rows of `right` that are longer than its columns.
#[inline(always)]
pub(crate) unsafe fn multiply_part<V: Vector>(
    (to, to_stride): (&mut [f32], usize),
    add: bool,
    left: Input,
    (right, right_stride): (&[f32], usize),
    (n, columns, k): (usize, usize, usize),
) {
    assert!(n % ROWS == 0 && columns % LINE == 0 && n * columns * k > 0);
    assert!(to.len() >= (n - 1) * to_stride + columns);
    assert!(right.len() >= (k - 1) * right_stride + columns);
    assert!(left.x.len() > (n - 1) * left.row_stride + (k - 1) * left.col_stride);
    let to = To {
        start: to.as_mut_ptr(),
        row_stride: to_stride,
        add,
    };
    let left = Left {
        start: left.x.as_ptr(),
        row_stride: left.row_stride,
        col_stride: left.col_stride,
    };
    let right = Right {
        start: right.as_ptr(),
        row_stride: right_stride,
    };
    for row in (0..n).step_by(ROWS) {
        // SAFETY: within the slices, as checked; the caller guarantees the instructions.
        unsafe { rows8::<V>(to.at(row, 0), left.below(row), right, columns / LINE, k) }
    }
}

/// Transposes `x` (rows, width), of whole lines both, into `to` (width, rows), whose rows are `stride` apart.
#[inline(always)]
pub(crate) unsafe fn turn<V: Vector>(x: &[f32], width: usize, to: &mut [f32], stride: usize) {
    let rows = x.len() / width;
    assert!(width.is_multiple_of(LINE) && rows.is_multiple_of(LINE) && x.len() == rows * width);
    assert!(to.len() + stride >= width * stride + rows && stride >= rows);
    for row in (0..rows).step_by(LINE) {
        for at in (0..width).step_by(LINE) {
            // SAFETY: squares within the slices, as checked; the caller guarantees the instructions.
            unsafe {
                let from = x.as_ptr().add(row * width + at);
                let to = to.as_mut_ptr().add(at * stride + row);
                V::transposed((from, width), (to, stride));
            }
        }
    }
}

/// `y` = `factor` · `x`, of whole lines.
#[inline(always)]
pub(crate) unsafe fn scale<V: Vector>(y: &mut [f32], x: &[f32], factor: f32) {
    assert!(y.len() == x.len() && y.len().is_multiple_of(LINE));
    // SAFETY: whole registers of both.
    unsafe {
        let factor = V::all(factor);
        for at in (0..y.len()).step_by(V::LANES) {
            let x = V::load(x.as_ptr().add(at));
            x.times(factor).store(y.as_mut_ptr().add(at));
        }
    }
}

/// `y` *= `factor`, of whole lines.
#[inline(always)]
pub(crate) unsafe fn scale_in_place<V: Vector>(y: &mut [f32], factor: f32) {
    assert!(y.len().is_multiple_of(LINE));
    // SAFETY: whole registers.
    unsafe {
        let factor = V::all(factor);
        for at in (0..y.len()).step_by(V::LANES) {
            let y = y.as_mut_ptr().add(at);
            V::load(y).times(factor).store(y);
        }
    }
}

/// `y` += `factor` · `x`, of whole lines.
#[inline(always)]
pub(crate) unsafe fn add_scaled<V: Vector>(y: &mut [f32], x: &[f32], factor: f32) {
    assert!(y.len() == x.len() && y.len().is_multiple_of(LINE));
    // SAFETY: whole registers of both.
    unsafe {
        let factor = V::all(factor);
        for at in (0..y.len()).step_by(V::LANES) {
            let y = y.as_mut_ptr().add(at);
            let x = V::load(x.as_ptr().add(at));
            x.fused(factor, V::load(y)).store(y);
        }
    }
}

/// Each row of `y` = its factor · the row of `x`.
#[inline(always)]
pub(crate) unsafe fn scale_rows<V: Vector>(
    y: &mut [f32],
    x: &[f32],
    width: usize,
    factors: &[f32],
) {
    let of_rows = y.chunks_exact_mut(width).zip(x.chunks_exact(width));
    for ((y, x), &factor) in of_rows.zip(factors) {
        // SAFETY: guaranteed by the caller.
        unsafe { scale::<V>(y, x, factor) }
    }
}
