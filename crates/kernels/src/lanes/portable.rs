//! Eight floats in plain Rust, for architectures without a register type here.

use super::Vector;
use crate::math::flush_subnormal;

/// Works everywhere; the compiler maps it to the architecture's instructions.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; 8]);

impl Vector for Portable {
    const LANES: usize = 8;
    const NUMBERS: usize = 1;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Portable([0.0; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: guaranteed by the caller.
        Portable(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn splat(from: *const f32) -> Self {
        // SAFETY: guaranteed by the caller.
        Portable([unsafe { *from }; 8])
    }

    #[inline(always)]
    unsafe fn multiply_add(self, b: Self, sum: Self) -> Self {
        let mut sum = sum;
        for i in 0..8 {
            // One instruction on 64-bit ARM; on baseline x86-64 a fused form would be a library call.
            sum.0[i] = if cfg!(target_arch = "aarch64") {
                self.0[i].mul_add(b.0[i], sum.0[i])
            } else {
                sum.0[i] + self.0[i] * b.0[i]
            };
        }
        sum
    }

    #[inline(always)]
    unsafe fn all(x: f32) -> Self {
        Portable([x; 8])
    }

    #[inline(always)]
    unsafe fn plus(self, b: Self) -> Self {
        self.with(b, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn minus(self, b: Self) -> Self {
        self.with(b, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        self.with(b, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn divide(self, b: Self) -> Self {
        self.with(b, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        self.with(self, |a, _| a.sqrt())
    }

    #[inline(always)]
    unsafe fn fused(self, b: Self, c: Self) -> Self {
        // SAFETY: needs no special instructions.
        unsafe { self.multiply_add(b, c) }
    }

    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        self.with(b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        self.with(b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    unsafe fn times_power_of_two(self, n: Self) -> Self {
        // In two factors, so that neither overflows the exponent.
        let factor = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
        self.with(n, |x, n| {
            let n = n as i32;
            x * factor(n >> 1) * factor(n - (n >> 1))
        })
    }

    #[inline(always)]
    unsafe fn keep(self, first: usize, last: usize, other: Self) -> Self {
        let mut kept = other;
        for i in first..last.min(8) {
            kept.0[i] = self.0[i];
        }
        kept
    }

    #[inline(always)]
    unsafe fn keep_bits(self, bits: u32) -> Self {
        Portable(std::array::from_fn(|i| {
            let is_kept = bits >> i & 1 == 1;
            if is_kept { self.0[i] } else { 0.0 }
        }))
    }

    #[inline(always)]
    unsafe fn flush_subnormal(self) -> Self {
        self.with(self, |x, _| flush_subnormal(x))
    }

    #[inline(always)]
    unsafe fn zero_below(self, of: Self, end: f32) -> Self {
        self.with(of, |x, of| if of < end { 0.0 } else { x })
    }

    #[inline(always)]
    unsafe fn words_along(self, _: Self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn words_down(self, _: Self) -> Self {
        self
    }
}

impl Portable {
    #[inline(always)]
    fn with(self, b: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Portable(std::array::from_fn(|i| f(self.0[i], b.0[i])))
    }
}
