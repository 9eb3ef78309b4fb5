//! Registers of floats for the few loops that must hold sums in registers: attention's small products. Everything else is
//! written plainly and vectorised by the compiler, see `simd`.
#![allow(unsafe_code)]

/// One register. A *word* is 32 bits of each lane: one f32, or two bf16 numbers side by side.
///
/// # Safety
/// All methods need the instructions of the implementing type; pointers must be valid for [`Vector::LANES`] words (one word
/// for `splat`), aligned to four bytes.
pub(super) trait Vector: Copy {
    /// Words in a register.
    const LANES: usize;
    /// Numbers in a word.
    const NUMBERS: usize;
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// The word at `from` in every lane.
    unsafe fn splat(from: *const f32) -> Self;
    /// `sum` + Σ over the numbers of a word of self · b.
    unsafe fn multiply_add(self, b: Self, sum: Self) -> Self;

    // What follows is for lanes of one f32, also where a word can be two numbers.

    unsafe fn all(x: f32) -> Self;
    unsafe fn plus(self, b: Self) -> Self;
    unsafe fn minus(self, b: Self) -> Self;
    unsafe fn times(self, b: Self) -> Self;
    unsafe fn over(self, b: Self) -> Self;
    unsafe fn root(self) -> Self;
    /// self · b + c, rounded once where the machine can.
    unsafe fn fused(self, b: Self, c: Self) -> Self;
    /// The greater one; `b` where one is NaN.
    unsafe fn greater(self, b: Self) -> Self;
    /// The lesser one; `b` where one is NaN.
    unsafe fn lesser(self, b: Self) -> Self;
    /// self · 2^n for whole numbers |n| ≤ 150.
    unsafe fn times_power_of_two(self, n: Self) -> Self;
    /// Lanes first..last of self, `other` elsewhere.
    unsafe fn keep(self, first: usize, last: usize, other: Self) -> Self;
    /// One word from two neighbouring numbers: of twice as many numbers (self, then `next`), all words. Numbers are rounded
    /// to nearest, ties to even.
    unsafe fn words_along(self, next: Self) -> Self;
    /// One word from two numbers below each other.
    unsafe fn words_down(self, below: Self) -> Self;

    /// The first `n` words at `from`, and 0; n may be more than there are lanes.
    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> Self {
        // SAFETY: the caller's, for n words.
        unsafe {
            if n >= Self::LANES {
                return Self::load(from);
            }
            let mut words = [0.0; LINE];
            std::ptr::copy_nonoverlapping(from, words.as_mut_ptr(), n);
            Self::load(words.as_ptr())
        }
    }

    /// Writes the first `n` lanes.
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize) {
        // SAFETY: the caller's, for n words.
        unsafe {
            if n >= Self::LANES {
                return self.store(to);
            }
            let mut words = [0.0; LINE];
            self.store(words.as_mut_ptr());
            std::ptr::copy_nonoverlapping(words.as_ptr(), to, n);
        }
    }

    /// The first `n` lanes of self, `other` beyond; n may be more than there are lanes.
    #[inline(always)]
    unsafe fn keep_first(self, n: usize, other: f32) -> Self {
        if n >= Self::LANES {
            return self;
        }
        // SAFETY: the caller's.
        unsafe { self.keep(0, n, Self::all(other)) }
    }

    /// e^x to 2 ulp for −87.3 ≤ x ≤ 88.7; the ends stand for what lies beyond, NaN stays. `math::exp` tells where the numbers
    /// come from.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        const ROUND: f32 = 12_582_912.0;
        // SAFETY: the caller's.
        unsafe {
            let x = Self::all(88.7).lesser(Self::all(-87.3).greater(self));
            let shifted = x.fused(Self::all(std::f32::consts::LOG2_E), Self::all(ROUND));
            let n = shifted.minus(Self::all(ROUND));
            let r = n.fused(Self::all(-0.693_359_4), x);
            let r = n.fused(Self::all(2.121_944_4e-4), r);
            let tail = r.fused(Self::all(0.001_394_644_7), Self::all(0.008_369_152));
            let tail = r.fused(tail, Self::all(0.041_666_264));
            let tail = r.fused(tail, Self::all(0.166_665_16));
            let tail = r.fused(tail, Self::all(0.5));
            let power = r.times(r).fused(tail, r).plus(Self::all(1.0));
            power.times_power_of_two(n)
        }
    }
}

/// Works everywhere; the compiler makes of it what the architecture has.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; 8]);

impl Vector for Portable {
    const LANES: usize = 8;
    const NUMBERS: usize = 1;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Portable([0.0; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's.
        Portable(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn splat(from: *const f32) -> Self {
        // SAFETY: the caller's.
        Portable([unsafe { *from }; 8])
    }

    #[inline(always)]
    unsafe fn multiply_add(self, b: Self, sum: Self) -> Self {
        let mut sum = sum;
        for i in 0..8 {
            // One instruction on 64-bit ARM; on the oldest x86-64 a fused form would be a call.
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
    unsafe fn over(self, b: Self) -> Self {
        self.with(b, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn root(self) -> Self {
        self.with(self, |a, _| a.sqrt())
    }

    #[inline(always)]
    unsafe fn fused(self, b: Self, c: Self) -> Self {
        // SAFETY: needs nothing.
        unsafe { self.multiply_add(b, c) }
    }

    #[inline(always)]
    unsafe fn greater(self, b: Self) -> Self {
        self.with(b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn lesser(self, b: Self) -> Self {
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

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    /// Methods that are one expression of instructions.
    macro_rules! instructions {
        ($(fn $method:ident($($params:tt)*) $(-> $ret:ty)? { $body:expr })*) => {
            $(
                #[inline(always)]
                #[allow(unused_unsafe, reason = "some expressions are no instruction")]
                unsafe fn $method($($params)*) $(-> $ret)? {
                    // SAFETY: the trait's conditions, which are the caller's.
                    unsafe { $body }
                }
            )*
        };
    }

    /// AVX2 with FMA.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Ymm(__m256);

    impl Vector for Ymm {
        const LANES: usize = 8;
        const NUMBERS: usize = 1;
        instructions! {
            fn zero() -> Self { Ymm(_mm256_setzero_ps()) }
            fn load(from: *const f32) -> Self { Ymm(_mm256_loadu_ps(from)) }
            fn store(self, to: *mut f32) { _mm256_storeu_ps(to, self.0) }
            fn splat(from: *const f32) -> Self { Ymm(_mm256_set1_ps(*from)) }
            fn multiply_add(self, b: Self, sum: Self) -> Self { Ymm(_mm256_fmadd_ps(self.0, b.0, sum.0)) }
            fn all(x: f32) -> Self { Ymm(_mm256_set1_ps(x)) }
            fn plus(self, b: Self) -> Self { Ymm(_mm256_add_ps(self.0, b.0)) }
            fn minus(self, b: Self) -> Self { Ymm(_mm256_sub_ps(self.0, b.0)) }
            fn times(self, b: Self) -> Self { Ymm(_mm256_mul_ps(self.0, b.0)) }
            fn over(self, b: Self) -> Self { Ymm(_mm256_div_ps(self.0, b.0)) }
            fn root(self) -> Self { Ymm(_mm256_sqrt_ps(self.0)) }
            fn fused(self, b: Self, c: Self) -> Self { Ymm(_mm256_fmadd_ps(self.0, b.0, c.0)) }
            fn greater(self, b: Self) -> Self { Ymm(_mm256_max_ps(self.0, b.0)) }
            fn lesser(self, b: Self) -> Self { Ymm(_mm256_min_ps(self.0, b.0)) }
            fn times_power_of_two(self, n: Self) -> Self {
                {
                    // In two factors, so that neither overflows the exponent.
                    let n = _mm256_cvtps_epi32(n.0);
                    let half = _mm256_srai_epi32::<1>(n);
                    let rest = _mm256_sub_epi32(n, half);
                    let x = _mm256_mul_ps(self.0, power_of_two(half));
                    Ymm(_mm256_mul_ps(x, power_of_two(rest)))
                }
            }
            fn keep(self, first: usize, last: usize, other: Self) -> Self {
                {
                    let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                    let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(first as i32), lane);
                    let within = _mm256_cmpgt_epi32(_mm256_set1_epi32(last as i32), lane);
                    let kept = _mm256_castsi256_ps(_mm256_andnot_si256(below, within));
                    Ymm(_mm256_blendv_ps(other.0, self.0, kept))
                }
            }
            fn words_along(self, _next: Self) -> Self { self }
            fn words_down(self, _below: Self) -> Self { self }
        }
    }

    /// 2^n for |n| ≤ 126.
    #[inline(always)]
    unsafe fn power_of_two(n: __m256i) -> __m256 {
        // SAFETY: the caller's.
        unsafe {
            let biased = _mm256_add_epi32(n, _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }

    macro_rules! zmm {
        ($(#[$meta:meta])* $name:ident, $numbers:literal: $($own:tt)*) => {
            $(#[$meta])*
            #[derive(Clone, Copy)]
            pub(in super::super) struct $name(__m512);

            impl Vector for $name {
                const LANES: usize = 16;
                const NUMBERS: usize = $numbers;
                instructions! {
                    fn zero() -> Self { $name(_mm512_setzero_ps()) }
                    fn load(from: *const f32) -> Self { $name(_mm512_loadu_ps(from)) }
                    fn store(self, to: *mut f32) { _mm512_storeu_ps(to, self.0) }
                    fn splat(from: *const f32) -> Self { $name(_mm512_set1_ps(*from)) }
                    fn all(x: f32) -> Self { $name(_mm512_set1_ps(x)) }
                    fn plus(self, b: Self) -> Self { $name(_mm512_add_ps(self.0, b.0)) }
                    fn minus(self, b: Self) -> Self { $name(_mm512_sub_ps(self.0, b.0)) }
                    fn times(self, b: Self) -> Self { $name(_mm512_mul_ps(self.0, b.0)) }
                    fn over(self, b: Self) -> Self { $name(_mm512_div_ps(self.0, b.0)) }
                    fn root(self) -> Self { $name(_mm512_sqrt_ps(self.0)) }
                    fn fused(self, b: Self, c: Self) -> Self { $name(_mm512_fmadd_ps(self.0, b.0, c.0)) }
                    fn greater(self, b: Self) -> Self { $name(_mm512_max_ps(self.0, b.0)) }
                    fn lesser(self, b: Self) -> Self { $name(_mm512_min_ps(self.0, b.0)) }
                    fn times_power_of_two(self, n: Self) -> Self { $name(_mm512_scalef_ps(self.0, n.0)) }
                    fn keep(self, first: usize, last: usize, other: Self) -> Self {
                        $name(_mm512_mask_blend_ps(lanes(first, last), other.0, self.0))
                    }
                    $($own)*
                }
            }
        };
    }

    /// Bits first..last.
    #[inline(always)]
    fn lanes(first: usize, last: usize) -> __mmask16 {
        let below = |n: usize| (1_u32 << n.min(16)) - 1;
        (below(last) & !below(first)) as __mmask16
    }

    zmm! {
        /// AVX-512.
        Zmm, 1:
        fn multiply_add(self, b: Self, sum: Self) -> Self { Zmm(_mm512_fmadd_ps(self.0, b.0, sum.0)) }
        fn words_along(self, _next: Self) -> Self { self }
        fn words_down(self, _below: Self) -> Self { self }
    }

    zmm! {
        /// AVX-512 with bf16: pairs of bf16 numbers, sums in f32.
        ZmmPairs, 2:
        fn multiply_add(self, b: Self, sum: Self) -> Self {
            ZmmPairs(_mm512_dpbf16_ps(sum.0, as_pairs(self.0), as_pairs(b.0)))
        }
        fn words_along(self, next: Self) -> Self {
            ZmmPairs(std::mem::transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(next.0, self.0)))
        }
        fn words_down(self, below: Self) -> Self {
            {
                let upper = _mm512_slli_epi32::<16>(widened(below.0));
                ZmmPairs(_mm512_castsi512_ps(_mm512_or_si512(widened(self.0), upper)))
            }
        }
    }

    #[inline(always)]
    unsafe fn as_pairs(words: __m512) -> __m512bh {
        // SAFETY: the same 512 bits.
        unsafe { std::mem::transmute::<__m512, __m512bh>(words) }
    }

    /// Each number as bf16 in the low half of its word.
    #[inline(always)]
    unsafe fn widened(x: __m512) -> __m512i {
        // SAFETY: the caller's; the transmute keeps the same 256 bits.
        unsafe {
            let short = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(x));
            _mm512_cvtepu16_epi32(short)
        }
    }
}
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Ymm, Zmm, ZmmPairs};

/// Columns that a line of a destination holds, whatever the register's width.
pub(super) const LINE: usize = 16;

/// Rows that [`rows8`] computes.
pub(super) const ROWS: usize = 8;

/// Where a factor's words lie: element (row, k) of the left one at `row · row_stride + k · col_stride`, of the right one at
/// `k · row_stride + column`.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub start: *const f32,
    pub row_stride: usize,
    pub col_stride: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Right {
    pub start: *const f32,
    pub row_stride: usize,
}

/// Row-major f32.
#[derive(Clone, Copy)]
pub(super) struct To {
    pub start: *mut f32,
    pub row_stride: usize,
    /// Whether the product adds to what is there.
    pub add: bool,
}

/// `to` (8, lines · 16) = (or +=) left (8, k words) · right (k words, lines · 16). Each element is summed over k in order,
/// so the number of lanes does not show in the result.
///
/// # Safety
/// The pointers must reach all elements named, `to` exclusively, and the machine must have V's instructions.
#[inline(always)]
pub(super) unsafe fn rows8<V: Vector>(to: To, left: Left, right: Right, lines: usize, k: usize) {
    let mut line = 0;
    // SAFETY: the caller's; offsets stay within the 8 × lines · 16 block.
    unsafe {
        if V::LANES == LINE {
            while line + 2 <= lines {
                registers::<V, 8, 2>(to.at(0, line), left, right.at(line), k);
                line += 2;
            }
            if line < lines {
                registers::<V, 8, 1>(to.at(0, line), left, right.at(line), k);
            }
        } else {
            while line < lines {
                registers::<V, 4, 2>(to.at(0, line), left, right.at(line), k);
                registers::<V, 4, 2>(to.at(4, line), left.below(4), right.at(line), k);
                line += 1;
            }
        }
    }
}

impl To {
    #[inline(always)]
    unsafe fn at(self, row: usize, line: usize) -> Self {
        // SAFETY: the caller's.
        let start = unsafe { self.start.add(row * self.row_stride + line * LINE) };
        To { start, ..self }
    }
}

impl Left {
    #[inline(always)]
    unsafe fn below(self, rows: usize) -> Self {
        // SAFETY: the caller's.
        let start = unsafe { self.start.add(rows * self.row_stride) };
        Left { start, ..self }
    }
}

impl Right {
    #[inline(always)]
    unsafe fn at(self, line: usize) -> Self {
        // SAFETY: the caller's.
        let start = unsafe { self.start.add(line * LINE) };
        Right { start, ..self }
    }
}

/// R rows and N registers' columns, all sums in registers.
#[inline(always)]
unsafe fn registers<V: Vector, const R: usize, const N: usize>(
    to: To,
    left: Left,
    right: Right,
    k: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut sums = [[V::zero(); N]; R];
        if to.add {
            for (r, row) in sums.iter_mut().enumerate() {
                for (n, sum) in row.iter_mut().enumerate() {
                    *sum = V::load(to.start.add(r * to.row_stride + n * V::LANES));
                }
            }
        }
        for k in 0..k {
            let mut b = [V::zero(); N];
            for (n, b) in b.iter_mut().enumerate() {
                *b = V::load(right.start.add(k * right.row_stride + n * V::LANES));
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let at = r * left.row_stride + k * left.col_stride;
                let a = V::splat(left.start.add(at));
                for (sum, b) in row.iter_mut().zip(b) {
                    *sum = a.multiply_add(b, *sum);
                }
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (n, sum) in row.iter().enumerate() {
                sum.store(to.start.add(r * to.row_stride + n * V::LANES));
            }
        }
    }
}

/// Sixteen running values (sums, maxima) side by side, whatever the register's width, so that every machine goes through
/// them in the same order.
#[derive(Clone, Copy)]
pub(super) struct Lanes<V>([V; 2]);

impl<V: Vector> Lanes<V> {
    /// Registers that hold the sixteen.
    pub const PARTS: usize = LINE / V::LANES;

    /// # Safety
    /// This and the other methods need V's instructions.
    #[inline(always)]
    pub unsafe fn all(x: f32) -> Self {
        // SAFETY: the caller's.
        Lanes(unsafe { [V::all(x); 2] })
    }

    /// The values that meet elements `at`.., `at` being a whole number of registers.
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
        // SAFETY: the caller's.
        super::math::sum1(&unsafe { self.values() }, |x| x)
    }
}

/// Memory aligned to cache lines, for scratch that is used again.
#[derive(Default)]
pub(super) struct Buffer(Vec<Aligned>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Aligned {
    _line: [f32; LINE],
}

impl Buffer {
    /// All of it, at least `len` elements, whose contents are arbitrary; allocates only when it grows.
    pub fn get(&mut self, len: usize) -> &mut [f32] {
        let lines = len.div_ceil(LINE);
        if self.0.len() < lines {
            self.0.resize(lines, Aligned { _line: [0.0; LINE] });
        }
        // SAFETY: an Aligned is sixteen f32 without padding.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * LINE) }
    }
}

/// Declares a function that runs `$body::<V>` with the machine's widest registers. With `pairs`, bf16 arithmetic takes
/// registers of pairs where the machine has them, and f32 elsewhere.
macro_rules! widest {
    ($(#[$meta:meta])* $vis:vis fn $name:ident(pairs, $($arg:ident : $ty:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        $vis unsafe fn $name(pairs: bool, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,avx512bf16")]
                unsafe fn avx512_pairs($($arg: $ty),*) {
                    // SAFETY: the caller's.
                    unsafe { $body::<$crate::kernels::lanes::ZmmPairs>($($arg),*) }
                }
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                unsafe fn avx512($($arg: $ty),*) {
                    // SAFETY: the caller's.
                    unsafe { $body::<$crate::kernels::lanes::Zmm>($($arg),*) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2($($arg: $ty),*) {
                    // SAFETY: the caller's.
                    unsafe { $body::<$crate::kernels::lanes::Ymm>($($arg),*) }
                }
                use $crate::kernels::simd::{Level, level};
                match level() {
                    Level::Avx512 if pairs && std::is_x86_feature_detected!("avx512bf16") => {
                        // SAFETY: the machine has the instructions; the rest is the caller's.
                        return unsafe { avx512_pairs($($arg),*) };
                    }
                    // SAFETY: as above.
                    Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2($($arg),*) },
                    Level::Baseline => {}
                }
            }
            let _ = pairs;
            // SAFETY: the caller's.
            unsafe { $body::<$crate::kernels::lanes::Portable>($($arg),*) }
        }
    };
}
pub(super) use widest;

#[cfg(test)]
mod tests {
    use super::*;

    unsafe fn product<V: Vector>(out: &mut [f32], a: &[f32], b: &[f32], lines: usize, k: usize) {
        for add in [false, true] {
            let to = To {
                start: out.as_mut_ptr(),
                row_stride: lines * LINE,
                add,
            };
            let left = Left {
                start: a.as_ptr(),
                row_stride: k,
                col_stride: 1,
            };
            let right = Right {
                start: b.as_ptr(),
                row_stride: lines * LINE,
            };
            // SAFETY: the slices hold 8 × k, k × lines · 16 and 8 × lines · 16 elements.
            unsafe { rows8::<V>(to, left, right, lines, k) }
        }
    }

    widest! { fn widest_product(pairs, out: &mut [f32], a: &[f32], b: &[f32], lines: usize, k: usize) = product }

    #[test]
    fn products_overwrite_and_then_add_at_every_width() {
        for (lines, k) in [(1, 1), (2, 7), (3, 20)] {
            let a: Vec<f32> = (0..8 * k).map(|i| (i as f32 * 0.3).sin()).collect();
            let width = lines * LINE;
            let b: Vec<f32> = (0..k * width).map(|i| (i as f32 * 0.7).cos()).collect();
            let mut wide = vec![9.0; 8 * width];
            let mut portable = vec![9.0; 8 * width];
            // SAFETY: sizes as `product` says.
            unsafe {
                widest_product(false, &mut wide, &a, &b, lines, k);
                product::<Portable>(&mut portable, &a, &b, lines, k);
            }
            for i in 0..8 * width {
                let exact: f32 = (0..k)
                    .map(|p| a[i / width * k + p] * b[p * width + i % width])
                    .sum();
                assert!((wide[i] - 2.0 * exact).abs() < 1e-5, "{i}");
                assert!((portable[i] - 2.0 * exact).abs() < 1e-5, "{i}");
            }
        }
    }

    unsafe fn exponentials<V: Vector>(x: &mut [f32]) {
        for x in x.chunks_exact_mut(V::LANES) {
            // SAFETY: the slice holds LANES elements.
            unsafe { V::load(x.as_ptr()).exp().store(x.as_mut_ptr()) }
        }
    }

    widest! { fn widest_exponentials(pairs, x: &mut [f32]) = exponentials }

    #[test]
    fn exponentials_are_within_two_ulp_at_every_width() {
        let x: Vec<f32> = (0..175_008).map(|i| i as f32 * 1e-3 - 87.0).collect();
        let (mut wide, mut portable) = (x.clone(), x.clone());
        // SAFETY: the length is a multiple of all lanes.
        unsafe {
            widest_exponentials(false, &mut wide);
            exponentials::<Portable>(&mut portable);
        }
        for ((x, wide), portable) in x.iter().zip(wide).zip(portable) {
            let exact = f64::from(*x).exp();
            for value in [wide, portable] {
                assert!((f64::from(value) / exact - 1.0).abs() < 2.5e-7, "{x}");
            }
        }
        let mut ends = [f32::NAN, f32::NEG_INFINITY, 200.0, 0.0].repeat(4);
        // SAFETY: sixteen elements.
        unsafe { widest_exponentials(false, &mut ends) };
        assert!(ends[0].is_nan() && ends[1] < 2e-38 && ends[2] > 1e38 && ends[3] == 1.0);
    }

    #[test]
    fn lanes_within_a_range_are_kept() {
        let ones = [1.0_f32; 8];
        for (first, last) in [(0, 8), (3, 5), (0, 0), (7, 20), (9, 12)] {
            let mut kept = [0.0_f32; 8];
            // SAFETY: eight elements each.
            unsafe {
                let nothing = Portable::zero();
                let all = Portable::load(ones.as_ptr());
                all.keep(first, last, nothing).store(kept.as_mut_ptr());
            }
            for (i, x) in kept.iter().enumerate() {
                assert_eq!(*x == 1.0, i >= first && i < last);
            }
        }
    }

    #[test]
    fn buffers_are_aligned_and_keep_their_memory() {
        let mut buffer = Buffer::default();
        let first = buffer.get(100).as_ptr();
        assert_eq!(first as usize % 64, 0);
        assert!(buffer.get(70).len() >= 70);
        assert_eq!(buffer.get(100).as_ptr(), first);
    }
}
