//! Vector registers for the few loops that must keep sums in registers: attention's small matmuls. Everything else is
//! written plainly and vectorized by the compiler, see `simd`.
#![allow(unsafe_code)]

mod portable;
#[cfg(target_arch = "x86_64")]
mod rows16;
mod rows8;
pub(super) mod scratch;
pub(super) mod small;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::aligned::Aligned;
use super::math::EXP_END;
use super::numbers::{Number, bf16};
pub(super) use portable::Portable;
pub(super) use rows8::{Left, ROWS, Right, To, rows8};

/// One register. A *word* is 32 bits of each lane: one f32, or two bf16 numbers side by side.
///
/// # Safety
/// All methods need the instructions of the implementing type; pointers must be valid for [`Vector::LANES`] words (one word
/// for `splat`), aligned to four bytes.
pub(super) trait Vector: Copy {
    /// Words per register.
    const LANES: usize;
    /// Numbers per word.
    const NUMBERS: usize;
    /// Whether the machine can also multiply these words in tile registers.
    fn has_amx() -> bool {
        false
    }
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// The word at `from` in every lane.
    unsafe fn splat(from: *const f32) -> Self;
    /// `sum` + Σ over the numbers of a word of self · b.
    unsafe fn multiply_add(self, b: Self, sum: Self) -> Self;

    // The following applies to lanes of one f32, even if a word can be two numbers.

    unsafe fn all(x: f32) -> Self;
    unsafe fn plus(self, b: Self) -> Self;
    unsafe fn minus(self, b: Self) -> Self;
    unsafe fn times(self, b: Self) -> Self;
    unsafe fn divide(self, b: Self) -> Self;
    unsafe fn sqrt(self) -> Self;
    /// self · b + c, fused if the machine supports it.
    unsafe fn fused(self, b: Self, c: Self) -> Self;
    /// The maximum; `b` if one is NaN.
    unsafe fn max(self, b: Self) -> Self;
    /// The minimum; `b` if one is NaN.
    unsafe fn min(self, b: Self) -> Self;
    /// self · 2^n for integers |n| ≤ 150.
    unsafe fn times_power_of_two(self, n: Self) -> Self;
    /// Lanes first..last of self, `other` elsewhere.
    unsafe fn keep(self, first: usize, last: usize, other: Self) -> Self;
    /// Self where the lane's bit of `bits` is 1, else 0; the lowest bit is the first lane's.
    unsafe fn keep_bits(self, bits: u32) -> Self;
    /// The same for each number of the words.
    #[inline(always)]
    unsafe fn keep_numbers(self, bits: u32) -> Self {
        const { assert!(Self::NUMBERS == 1) };
        // SAFETY: guaranteed by the caller.
        unsafe { self.keep_bits(bits) }
    }
    /// Self, with subnormal lanes replaced by 0 of the same sign, see `math::flush_subnormal`.
    unsafe fn flush_subnormal(self) -> Self;
    /// Self, but 0 where `of` is below `end`; NaN in `of` keeps the lane.
    unsafe fn zero_below(self, of: Self, end: f32) -> Self;
    /// Loads bf16 numbers, one per lane.
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        let mut wide = [0.0; LINE];
        for (i, wide) in wide[..Self::LANES].iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller, for as many numbers as lanes.
            *wide = unsafe { (*from.add(i)).wide() };
        }
        // SAFETY: a line has room for a register.
        unsafe { Self::load(wide.as_ptr()) }
    }
    /// Stores as bf16, rounded to nearest, ties to even.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        let mut wide = [0.0; LINE];
        // SAFETY: a line has room for a register.
        unsafe { self.store(wide.as_mut_ptr()) }
        for (i, &wide) in wide[..Self::LANES].iter().enumerate() {
            // SAFETY: guaranteed by the caller, for as many numbers as lanes.
            unsafe { *to.add(i) = Number::narrow(wide) }
        }
    }
    /// [`Vector::times_power_of_two`], then [`Vector::zero_below`].
    #[inline(always)]
    unsafe fn times_power_of_two_or_zero(self, n: Self, of: Self, end: f32) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { self.times_power_of_two(n).zero_below(of, end) }
    }
    /// The largest lane; none may be NaN.
    #[inline(always)]
    unsafe fn max_lane(self) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; LINE];
        // SAFETY: a line has room for a register.
        unsafe { self.store(lanes.as_mut_ptr()) }
        crate::math::max(&lanes)
    }
    /// Packs adjacent numbers into words: all words of self followed by `next`. Numbers are rounded to nearest, ties to even.
    unsafe fn words_along(self, next: Self) -> Self;
    /// Packs numbers of two rows, self and `below`, into words.
    unsafe fn words_down(self, below: Self) -> Self;

    /// Transposes a square of [`LINE`] × [`LINE`] words, whose rows are `stride` words apart, into one with rows `to_stride` apart.
    ///
    /// # Safety
    /// Both squares are valid and do not overlap.
    #[inline(always)]
    unsafe fn transposed((from, stride): (*const f32, usize), (to, to_stride): (*mut f32, usize)) {
        for row in 0..LINE {
            for column in 0..LINE {
                // SAFETY: within the squares.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * stride + column) }
            }
        }
    }

    /// The first `n` words at `from`, then 0; n may exceed the number of lanes.
    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> Self {
        // SAFETY: guaranteed by the caller, for n words.
        unsafe {
            if n >= Self::LANES {
                return Self::load(from);
            }
            let mut words = [0.0; LINE];
            std::ptr::copy_nonoverlapping(from, words.as_mut_ptr(), n);
            Self::load(words.as_ptr())
        }
    }

    /// The sum of all lanes, by halving.
    #[inline(always)]
    unsafe fn total(self) -> f32 {
        let mut lanes = [0.0; LINE];
        // SAFETY: a line has room for a register.
        unsafe { self.store(lanes.as_mut_ptr()) }
        crate::math::sum1(&lanes, |x| x)
    }

    /// [`Vector::total`] of each, to the same bits.
    #[inline(always)]
    unsafe fn totals(four: [Self; 4]) -> [f32; 4] {
        // SAFETY: guaranteed by the caller.
        four.map(|x| unsafe { x.total() })
    }

    /// Writes the first `n` lanes.
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize) {
        // SAFETY: guaranteed by the caller, for n words.
        unsafe {
            if n >= Self::LANES {
                return self.store(to);
            }
            let mut words = [0.0; LINE];
            self.store(words.as_mut_ptr());
            std::ptr::copy_nonoverlapping(words.as_ptr(), to, n);
        }
    }

    /// The first `n` lanes of self, `other` beyond; n may exceed the number of lanes.
    #[inline(always)]
    unsafe fn keep_first(self, n: usize, other: f32) -> Self {
        if n >= Self::LANES {
            return self;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.keep(0, n, Self::all(other)) }
    }

    /// e^x to 2 ulp for −87.3 ≤ x ≤ 88.7; 0 below, clamped above; NaN is preserved.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let x = Self::all(88.7).min(Self::all(EXP_END).max(self));
            x.exp_within(self)
        }
    }

    /// The same for x ≤ 0 only.
    #[inline(always)]
    unsafe fn exp_to_one(self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::all(EXP_END).max(self).exp_within(self) }
    }

    /// e^x for −87.3 ≤ x ≤ 88.7, or 0 where `before`, from which x was clamped, is below. For the constants see `math::exp`.
    #[inline(always)]
    unsafe fn exp_within(self, before: Self) -> Self {
        const ROUND: f32 = 12_582_912.0;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let shifted = self.fused(Self::all(std::f32::consts::LOG2_E), Self::all(ROUND));
            let n = shifted.minus(Self::all(ROUND));
            let r = n.fused(Self::all(-0.693_359_4), self);
            let r = n.fused(Self::all(2.121_944_4e-4), r);
            let tail = r.fused(Self::all(0.001_394_644_7), Self::all(0.008_369_152));
            let tail = r.fused(tail, Self::all(0.041_666_264));
            let tail = r.fused(tail, Self::all(0.166_665_16));
            let tail = r.fused(tail, Self::all(0.5));
            let power = r.times(r).fused(tail, r).plus(Self::all(1.0));
            power.times_power_of_two_or_zero(n, before, EXP_END)
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{
    Ymm, Zmm, ZmmPairs, alternating, flush_subnormal_ymm, flush_subnormal_zmm, transpose,
};

/// Numbers in memory that registers are loaded from.
///
/// # Safety
/// As for the methods of [`Vector`].
pub(super) trait InLanes: Number {
    unsafe fn load<V: Vector>(from: *const Self) -> V;
    unsafe fn store<V: Vector>(x: V, to: *mut Self);

    /// The first `n` numbers at `from`, then 0; n may exceed the number of lanes.
    #[inline(always)]
    unsafe fn load_first<V: Vector>(from: *const Self, n: usize) -> V {
        // SAFETY: guaranteed by the caller, for n numbers; a line has room for a register.
        unsafe {
            if n >= V::LANES {
                return Self::load(from);
            }
            let mut wide = [0.0; LINE];
            for (i, wide) in wide[..n].iter_mut().enumerate() {
                *wide = (*from.add(i)).wide();
            }
            V::load(wide.as_ptr())
        }
    }
}

impl InLanes for f32 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const f32) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn store<V: Vector>(x: V, to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { x.store(to) }
    }
}

impl InLanes for bf16 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const bf16) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe { V::load_bf16(from) }
    }
    #[inline(always)]
    unsafe fn store<V: Vector>(x: V, to: *mut bf16) {
        // SAFETY: guaranteed by the caller.
        unsafe { x.store_bf16(to) }
    }
}

/// Columns per line of a destination, whatever the register width.
pub(super) const LINE: usize = 16;

/// Sixteen running values (sums, maxima), whatever the register width, so that every machine accumulates
/// in the same order.
#[derive(Clone, Copy)]
pub(super) struct Lanes<V>([V; 2]);

impl<V: Vector> Lanes<V> {
    /// Number of registers that hold the sixteen values.
    pub const PARTS: usize = LINE / V::LANES;

    /// # Safety
    /// This and the other methods need V's instructions.
    #[inline(always)]
    pub unsafe fn all(x: f32) -> Self {
        // SAFETY: guaranteed by the caller.
        Lanes(unsafe { [V::all(x); 2] })
    }

    /// The running values for elements `at`..; `at` is a whole number of registers.
    #[inline(always)]
    pub fn at(&mut self, at: usize) -> &mut V {
        &mut self.0[at / V::LANES % Self::PARTS]
    }

    #[inline(always)]
    pub unsafe fn values(self) -> [f32; LINE] {
        let mut values = [0.0; LINE];
        for (part, register) in self.0.iter().enumerate().take(Self::PARTS) {
            // SAFETY: a line is a whole number of registers.
            unsafe { register.store(values.as_mut_ptr().add(part * V::LANES)) }
        }
        values
    }

    #[inline(always)]
    pub unsafe fn total(self) -> f32 {
        // SAFETY: guaranteed by the caller. Both sum by halving.
        unsafe {
            match Self::PARTS {
                1 => self.0[0].total(),
                _ => crate::math::sum1(&self.values(), |x| x),
            }
        }
    }

    /// [`Lanes::total`] of each, to the same bits.
    #[inline(always)]
    pub unsafe fn totals(four: [Self; 4]) -> [f32; 4] {
        // SAFETY: guaranteed by the caller. The halves of a line are added first, as in `total`.
        unsafe {
            V::totals(four.map(|Lanes([low, high])| match Self::PARTS {
                1 => low,
                _ => low.plus(high),
            }))
        }
    }

    /// The maximum; none may be NaN.
    #[inline(always)]
    pub unsafe fn max_lane(self) -> f32 {
        let [mut top, other] = self.0;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if Self::PARTS == 2 {
                top = top.max(other);
            }
            top.max_lane()
        }
    }
}

/// Reusable scratch memory, aligned to cache lines.
#[derive(Default)]
pub(super) struct Buffer(Aligned);

impl Buffer {
    /// The first `len` elements or more, with arbitrary contents; allocates only to grow.
    pub fn get(&mut self, len: usize) -> &mut [f32] {
        if self.0.len() < len {
            self.0 = Aligned::zeros(len.next_multiple_of(LINE));
        }
        &mut self.0
    }
}

/// How many rows of a matmul of words are computed together, and the multiples that its row and column counts are padded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub rows: usize,
    pub multiple: usize,
}

impl Group {
    /// Sixteen rows in tile registers, if a word of 16 pairs fills one; otherwise eight in vector registers.
    #[inline(always)]
    pub fn of<V: Vector>() -> Self {
        if V::has_amx() {
            Group {
                rows: 16,
                multiple: 32,
            }
        } else {
            Group {
                rows: ROWS,
                multiple: ROWS,
            }
        }
    }

    /// [`rows8()`] of this group's rows. Between [`begin`] and [`end`].
    ///
    /// # Safety
    /// As for [`rows8()`].
    #[inline(always)]
    pub unsafe fn product<V: Vector>(
        self,
        to: To,
        left: Left,
        right: Right,
        lines: usize,
        k: usize,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if self.rows > ROWS {
                return rows16::rows16::<V>(to, left, right, lines, k);
            }
            rows8::<V>(to, left, right, lines, k);
        }
    }
}

/// Prepares a thread for the matmuls of a group.
///
/// # Safety
/// The machine must have V's instructions.
#[inline(always)]
pub(super) unsafe fn begin<V: Vector>() {
    #[cfg(target_arch = "x86_64")]
    if V::has_amx() {
        // SAFETY: the machine has them.
        unsafe { crate::amx::configure() }
    }
}

/// Undoes [`begin`] after the matmuls.
///
/// # Safety
/// As for [`begin`].
#[inline(always)]
pub(super) unsafe fn end<V: Vector>() {
    #[cfg(target_arch = "x86_64")]
    if V::has_amx() {
        // SAFETY: the machine has them.
        unsafe { crate::amx::release() }
    }
}

/// Declares a function that runs `$body::<V>` with the machine's widest registers. With `pairs`, bf16 compute uses
/// registers of pairs if the machine has them, f32 otherwise.
macro_rules! widest {
    ($(#[$meta:meta])* $vis:vis fn $name:ident(pairs, $($arg:ident : $ty:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        $vis unsafe fn $name(pairs: bool, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,avx512bf16")]
                unsafe fn avx512_pairs($($arg: $ty),*) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { $body::<$crate::lanes::ZmmPairs>($($arg),*) }
                }
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                unsafe fn avx512($($arg: $ty),*) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { $body::<$crate::lanes::Zmm>($($arg),*) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2($($arg: $ty),*) {
                    // SAFETY: guaranteed by the caller.
                    unsafe { $body::<$crate::lanes::Ymm>($($arg),*) }
                }
                use $crate::simd::{Level, level};
                match level() {
                    Level::Avx512 | Level::Amx if pairs && $crate::simd::has_bf16() => {
                        // SAFETY: the machine has the instructions; the caller guarantees the rest.
                        return unsafe { avx512_pairs($($arg),*) };
                    }
                    // SAFETY: as above.
                    Level::Avx512 | Level::Amx => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2($($arg),*) },
                    Level::Baseline => {}
                }
            }
            let _ = pairs;
            // SAFETY: guaranteed by the caller.
            unsafe { $body::<$crate::lanes::Portable>($($arg),*) }
        }
    };
}
pub(super) use widest;
