//! The registers of x86-64: AVX2, AVX-512, and AVX-512 with pairs of bf16.

use super::Vector;
use crate::numbers::bf16;
use crate::simd::{Level, level};
use std::arch::x86_64::*;

/// Methods that are a single expression of intrinsics.
macro_rules! instructions {
    ($(fn $method:ident($($params:tt)*) $(-> $ret:ty)? { $body:expr })*) => {
        $(
            #[inline(always)]
            #[allow(unused_unsafe, reason = "some expressions are no instruction")]
            unsafe fn $method($($params)*) $(-> $ret)? {
                // SAFETY: the trait's conditions, guaranteed by the caller.
                unsafe { $body }
            }
        )*
    };
}

/// AVX2 with FMA.
#[derive(Clone, Copy)]
pub(crate) struct Ymm(pub __m256);

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
        fn divide(self, b: Self) -> Self { Ymm(_mm256_div_ps(self.0, b.0)) }
        fn sqrt(self) -> Self { Ymm(_mm256_sqrt_ps(self.0)) }
        fn fused(self, b: Self, c: Self) -> Self { Ymm(_mm256_fmadd_ps(self.0, b.0, c.0)) }
        fn max(self, b: Self) -> Self { Ymm(_mm256_max_ps(self.0, b.0)) }
        fn min(self, b: Self) -> Self { Ymm(_mm256_min_ps(self.0, b.0)) }
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
        fn keep_bits(self, bits: u32) -> Self {
            {
                let lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
                let set = _mm256_and_si256(_mm256_set1_epi32(bits as i32), lane);
                let kept = _mm256_cmpeq_epi32(set, lane);
                Ymm(_mm256_and_ps(self.0, _mm256_castsi256_ps(kept)))
            }
        }
        fn load_bf16(from: *const bf16) -> Self {
            Ymm(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(
                _mm_loadu_si128(from.cast()),
            ))))
        }
        fn flush_subnormal(self) -> Self { Ymm(flush_subnormal_ymm(self.0)) }
        fn zero_below(self, of: Self, end: f32) -> Self {
            Ymm(_mm256_and_ps(self.0, _mm256_cmp_ps::<_CMP_NLT_UQ>(of.0, _mm256_set1_ps(end))))
        }
        // By halving: the four registers' halves, then quarters side by side.
        fn totals(four: [Self; 4]) -> [f32; 4] {
            {
                let [a, b, c, d] = four.map(|x| x.0);
                let halved = |a, b| {
                    _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
                };
                // Four lanes each of a, b and of c, d; then two of a, c, b, d; then one.
                let (ab, cd) = (halved(a, b), halved(c, d));
                let pairs = _mm256_add_ps(_mm256_shuffle_ps::<0x44>(ab, cd), _mm256_shuffle_ps::<0xee>(ab, cd));
                let sums = _mm256_add_ps(pairs, _mm256_movehdup_ps(pairs));
                let (ac, bd) = (_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
                let lanes = _mm_unpacklo_ps(_mm_shuffle_ps::<0x88>(ac, ac), _mm_shuffle_ps::<0x88>(bd, bd));
                std::mem::transmute::<__m128, [f32; 4]>(lanes)
            }
        }
        fn words_along(self, _next: Self) -> Self { self }
        fn words_down(self, _below: Self) -> Self { self }
    }
}

/// The exponent bits of a float.
const EXPONENT: i32 = f32::INFINITY.to_bits() as i32;

/// The numbers, with subnormal ones replaced by 0 of the same sign, see `math::flush_subnormal`. Integer comparisons: comparing
/// subnormal floats may be slow as well.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(crate) unsafe fn flush_subnormal_ymm(x: __m256) -> __m256 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let bits = _mm256_castps_si256(x);
        let exponent = _mm256_and_si256(bits, _mm256_set1_epi32(EXPONENT));
        let subnormal = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
        let digits = _mm256_srli_epi32::<1>(subnormal);
        _mm256_castsi256_ps(_mm256_andnot_si256(digits, bits))
    }
}

/// The same for sixteen numbers, as words.
///
/// # Safety
/// AVX-512F.
#[inline(always)]
pub(crate) unsafe fn flush_subnormal_zmm(bits: __m512i) -> __m512i {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let subnormal = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(EXPONENT));
        _mm512_mask_and_epi32(bits, subnormal, bits, _mm512_set1_epi32(i32::MIN))
    }
}

/// 2^n for |n| ≤ 126.
#[inline(always)]
unsafe fn power_of_two(n: __m256i) -> __m256 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let biased = _mm256_add_epi32(n, _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
    }
}

macro_rules! zmm {
    ($(#[$meta:meta])* $name:ident, $numbers:literal: has_amx: $has_amx:expr; $($own:tt)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(__m512);

        impl Vector for $name {
            const LANES: usize = 16;
            const NUMBERS: usize = $numbers;
            #[inline(always)]
            fn has_amx() -> bool {
                $has_amx
            }
            #[inline(always)]
            unsafe fn transposed((from, stride): (*const f32, usize), (to, to_stride): (*mut f32, usize)) {
                // SAFETY: guaranteed by the caller: a line is a register.
                unsafe {
                    let rows = std::array::from_fn(|i| _mm512_loadu_si512(from.add(i * stride).cast()));
                    for (i, column) in transpose(rows).into_iter().enumerate() {
                        _mm512_storeu_si512(to.add(i * to_stride).cast(), column);
                    }
                }
            }
            instructions! {
                fn zero() -> Self { $name(_mm512_setzero_ps()) }
                fn load(from: *const f32) -> Self { $name(_mm512_loadu_ps(from)) }
                fn store(self, to: *mut f32) { _mm512_storeu_ps(to, self.0) }
                fn splat(from: *const f32) -> Self { $name(_mm512_set1_ps(*from)) }
                fn all(x: f32) -> Self { $name(_mm512_set1_ps(x)) }
                fn plus(self, b: Self) -> Self { $name(_mm512_add_ps(self.0, b.0)) }
                fn minus(self, b: Self) -> Self { $name(_mm512_sub_ps(self.0, b.0)) }
                fn times(self, b: Self) -> Self { $name(_mm512_mul_ps(self.0, b.0)) }
                fn divide(self, b: Self) -> Self { $name(_mm512_div_ps(self.0, b.0)) }
                fn sqrt(self) -> Self { $name(_mm512_sqrt_ps(self.0)) }
                fn fused(self, b: Self, c: Self) -> Self { $name(_mm512_fmadd_ps(self.0, b.0, c.0)) }
                fn max(self, b: Self) -> Self { $name(_mm512_max_ps(self.0, b.0)) }
                fn min(self, b: Self) -> Self { $name(_mm512_min_ps(self.0, b.0)) }
                fn times_power_of_two(self, n: Self) -> Self { $name(_mm512_scalef_ps(self.0, n.0)) }
                fn keep(self, first: usize, last: usize, other: Self) -> Self {
                    $name(_mm512_mask_blend_ps(lanes(first, last), other.0, self.0))
                }
                fn keep_bits(self, bits: u32) -> Self {
                    $name(_mm512_maskz_mov_ps(bits as u16, self.0))
                }
                fn load_bf16(from: *const bf16) -> Self {
                    $name(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(
                        _mm256_loadu_si256(from.cast()),
                    ))))
                }
                fn total(self) -> f32 { _mm512_reduce_add_ps(self.0) }
                // By halving, the registers' halves and then quarters side by side.
                fn totals(four: [Self; 4]) -> [f32; 4] {
                    {
                        let [a, b, c, d] = four.map(|x| x.0);
                        let halved = |a, b| {
                            _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b))
                        };
                        let (ab, cd) = (halved(a, b), halved(c, d));
                        let quarters = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd));
                        let pairs = _mm512_add_ps(quarters, _mm512_permute_ps::<0x4e>(quarters));
                        let sums = _mm512_add_ps(pairs, _mm512_permute_ps::<0xb1>(pairs));
                        let first = _mm512_maskz_compress_ps(0x1111, sums);
                        std::mem::transmute::<__m128, [f32; 4]>(_mm512_castps512_ps128(first))
                    }
                }
                fn max_lane(self) -> f32 { _mm512_reduce_max_ps(self.0) }
                fn times_power_of_two_or_zero(self, n: Self, of: Self, end: f32) -> Self {
                    {
                        let kept = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(of.0, _mm512_set1_ps(end));
                        $name(_mm512_maskz_scalef_ps(kept, self.0, n.0))
                    }
                }
                // Where x is too small, the result is discarded.
                fn exp_to_one(self) -> Self { self.exp_within(self) }
                fn flush_subnormal(self) -> Self {
                    $name(_mm512_castsi512_ps(flush_subnormal_zmm(_mm512_castps_si512(self.0))))
                }
                fn zero_below(self, of: Self, end: f32) -> Self {
                    {
                        let kept = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(of.0, _mm512_set1_ps(end));
                        $name(_mm512_maskz_mov_ps(kept, self.0))
                    }
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
    Zmm, 1: has_amx: false;
    fn multiply_add(self, b: Self, sum: Self) -> Self { Zmm(_mm512_fmadd_ps(self.0, b.0, sum.0)) }
    fn words_along(self, _next: Self) -> Self { self }
    fn words_down(self, _below: Self) -> Self { self }
}

zmm! {
    /// AVX-512 with bf16: pairs of bf16 numbers, sums in f32.
    ZmmPairs, 2: has_amx: level() == Level::Amx;
    fn multiply_add(self, b: Self, sum: Self) -> Self {
        ZmmPairs(_mm512_dpbf16_ps(sum.0, as_pairs(self.0), as_pairs(b.0)))
    }
    fn keep_numbers(self, bits: u32) -> Self {
        ZmmPairs(_mm512_castsi512_ps(_mm512_maskz_mov_epi16(bits, _mm512_castps_si512(self.0))))
    }
    fn store_bf16(self, to: *mut bf16) {
        _mm256_storeu_si256(to.cast(), std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(self.0)))
    }
    fn words_along(self, next: Self) -> Self {
        ZmmPairs(std::mem::transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(next.0, self.0)))
    }
    fn words_down(self, below: Self) -> Self {
        {
            // The upper row's sixteen, then the lower one's, interleaved.
            let rounded = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(below.0, self.0));
            ZmmPairs(_mm512_castsi512_ps(_mm512_permutexvar_epi16(alternating(), rounded)))
        }
    }
}

#[inline(always)]
unsafe fn as_pairs(words: __m512) -> __m512bh {
    // SAFETY: the same 512 bits.
    unsafe { std::mem::transmute::<__m512, __m512bh>(words) }
}

/// Indices that interleave the lower and the upper sixteen of 32.
#[inline(always)]
pub(crate) unsafe fn alternating() -> __m512i {
    const ORDER: [u16; 32] = {
        let mut order = [0; 32];
        let mut i = 0;
        while i < 16 {
            order[2 * i] = i as u16;
            order[2 * i + 1] = 16 + i as u16;
            i += 1;
        }
        order
    };
    // SAFETY: the same 512 bits.
    unsafe { std::mem::transmute::<[u16; 32], __m512i>(ORDER) }
}

/// Transposes a square of 16 × 16 words: in pairs, in fours within each 128-bit part, then the parts.
///
/// # Safety
/// The machine must have AVX-512.
#[inline(always)]
#[allow(unsafe_op_in_unsafe_fn, reason = "every line is an instruction")]
pub(crate) unsafe fn transpose(x: [__m512i; 16]) -> [__m512i; 16] {
    let mut pairs = x;
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    // fours[4 g + c] holds, in part p, column 4 p + c of rows 4 g .. 4 g + 4.
    let mut fours = pairs;
    for i in 0..4 {
        let at = 4 * i;
        fours[at] = _mm512_unpacklo_epi64(pairs[at], pairs[at + 2]);
        fours[at + 1] = _mm512_unpackhi_epi64(pairs[at], pairs[at + 2]);
        fours[at + 2] = _mm512_unpacklo_epi64(pairs[at + 1], pairs[at + 3]);
        fours[at + 3] = _mm512_unpackhi_epi64(pairs[at + 1], pairs[at + 3]);
    }
    let mut turned = fours;
    for c in 0..4 {
        let (a, b, d, e) = (fours[c], fours[4 + c], fours[8 + c], fours[12 + c]);
        let (low_ab, low_de) = (
            _mm512_shuffle_i32x4::<0x44>(a, b),
            _mm512_shuffle_i32x4::<0x44>(d, e),
        );
        let (high_ab, high_de) = (
            _mm512_shuffle_i32x4::<0xee>(a, b),
            _mm512_shuffle_i32x4::<0xee>(d, e),
        );
        turned[c] = _mm512_shuffle_i32x4::<0x88>(low_ab, low_de);
        turned[4 + c] = _mm512_shuffle_i32x4::<0xdd>(low_ab, low_de);
        turned[8 + c] = _mm512_shuffle_i32x4::<0x88>(high_ab, high_de);
        turned[12 + c] = _mm512_shuffle_i32x4::<0xdd>(high_ab, high_de);
    }
    turned
}
