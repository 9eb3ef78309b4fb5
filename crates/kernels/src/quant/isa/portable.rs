//! Plain Rust, for machines without their own ISA file, and the reference for the others.
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "the trait says what callers owe; nothing here needs more than readable memory"
)]

use crate::quant::half::from_f16;
use crate::quant::lanes::{Lanes, ROWS};
use crate::quant::tile::{Job, by_layout, tile};

pub(in crate::quant) struct Portable;

impl Lanes for Portable {
    type Bytes = [u8; 4 * ROWS];
    type Ints = [i32; ROWS];
    type Floats = [f32; ROWS];

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> [u8; 4 * ROWS] {
        from.cast::<[u8; 4 * ROWS]>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn bits(x: [u8; 4 * ROWS], shift: i32, mask: u8) -> [u8; 4 * ROWS] {
        match shift {
            0.. => x.map(|b| b >> shift & mask),
            _ => x.map(|b| b << -shift & mask),
        }
    }
    #[inline(always)]
    unsafe fn look_up(x: [u8; 4 * ROWS], table: &[u8; 16]) -> [u8; 4 * ROWS] {
        x.map(|b| table[usize::from(b & 15)])
    }
    #[inline(always)]
    unsafe fn or(x: [u8; 4 * ROWS], y: [u8; 4 * ROWS]) -> [u8; 4 * ROWS] {
        std::array::from_fn(|i| x[i] | y[i])
    }
    #[inline(always)]
    unsafe fn all(x: i32) -> [i32; ROWS] {
        [x; ROWS]
    }
    #[inline(always)]
    unsafe fn dot(sum: [i32; ROWS], weights: [u8; 4 * ROWS], x: *const i8) -> [i32; ROWS] {
        let x = x.cast::<[i8; 4]>().read_unaligned();
        std::array::from_fn(|row| {
            let four = (0..4).map(|i| i32::from(weights[4 * row + i]) * i32::from(x[i]));
            sum[row] + four.sum::<i32>()
        })
    }
    #[inline(always)]
    unsafe fn to_floats(x: [i32; ROWS]) -> [f32; ROWS] {
        x.map(|x| x as f32)
    }
    #[inline(always)]
    unsafe fn halves(from: *const u8) -> [f32; ROWS] {
        let halves = from.cast::<[[u8; 2]; ROWS]>().read_unaligned();
        halves.map(|b| from_f16(u16::from_le_bytes(b)))
    }
    #[inline(always)]
    unsafe fn unsigned(from: *const u8) -> [f32; ROWS] {
        from.cast::<[u8; ROWS]>().read_unaligned().map(f32::from)
    }
    #[inline(always)]
    unsafe fn signed(from: *const u8) -> [f32; ROWS] {
        from.cast::<[i8; ROWS]>().read_unaligned().map(f32::from)
    }
    #[inline(always)]
    unsafe fn powers(from: *const u8) -> [f32; ROWS] {
        let exponents = from.cast::<[u8; ROWS]>().read_unaligned();
        exponents.map(|e| f32::from_bits(u32::from(e) << 23))
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; ROWS] {
        [x; ROWS]
    }
    #[inline(always)]
    unsafe fn mul(x: [f32; ROWS], y: [f32; ROWS]) -> [f32; ROWS] {
        std::array::from_fn(|i| x[i] * y[i])
    }
    #[inline(always)]
    unsafe fn add(x: [f32; ROWS], y: [f32; ROWS]) -> [f32; ROWS] {
        std::array::from_fn(|i| x[i] + y[i])
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: [f32; ROWS]) {
        to.cast::<[f32; ROWS]>().write_unaligned(x);
    }
}

/// # Safety
/// The job's pointers must be valid for its sizes.
pub(in crate::quant) unsafe fn run(job: &Job) {
    unsafe fn sized<L: crate::quant::layout::Layout, const M: usize>(job: &Job) {
        tile::<Portable, L, M>(job);
    }
    by_layout!(job, sized, [1]);
}
