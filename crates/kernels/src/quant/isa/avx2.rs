//! AVX2: sixteen rows in two registers. Bytes are multiplied as 16-bit numbers: the byte instruction of AVX2 saturates.
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an instruction; the trait says what callers owe"
)]

use crate::quant::lanes::Lanes;
use crate::quant::tile::{Job, by_layout, tile};
use std::arch::x86_64::*;

pub(in crate::quant) struct Avx2;

/// Four products for one register's rows.
#[inline(always)]
unsafe fn four(weights: __m256i, even: __m256i, odd: __m256i) -> __m256i {
    let low = _mm256_and_si256(weights, _mm256_set1_epi16(0xff));
    let high = _mm256_srli_epi16::<8>(weights);
    _mm256_add_epi32(_mm256_madd_epi16(low, even), _mm256_madd_epi16(high, odd))
}

impl Lanes for Avx2 {
    type Bytes = [__m256i; 2];
    type Ints = [__m256i; 2];
    type Floats = [__m256; 2];

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> [__m256i; 2] {
        [
            _mm256_loadu_si256(from.cast()),
            _mm256_loadu_si256(from.add(32).cast()),
        ]
    }
    #[inline(always)]
    unsafe fn bits(x: [__m256i; 2], shift: i32, mask: u8) -> [__m256i; 2] {
        let by = _mm_cvtsi32_si128(shift.abs());
        let mask = _mm256_set1_epi8(mask.cast_signed());
        let one = |x| {
            let moved = match shift {
                0.. => _mm256_srl_epi16(x, by),
                _ => _mm256_sll_epi16(x, by),
            };
            _mm256_and_si256(moved, mask)
        };
        [one(x[0]), one(x[1])]
    }
    #[inline(always)]
    unsafe fn look_up(x: [__m256i; 2], table: &[u8; 16]) -> [__m256i; 2] {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        [
            _mm256_shuffle_epi8(table, x[0]),
            _mm256_shuffle_epi8(table, x[1]),
        ]
    }
    #[inline(always)]
    unsafe fn or(x: [__m256i; 2], y: [__m256i; 2]) -> [__m256i; 2] {
        [_mm256_or_si256(x[0], y[0]), _mm256_or_si256(x[1], y[1])]
    }
    #[inline(always)]
    unsafe fn all(x: i32) -> [__m256i; 2] {
        [_mm256_set1_epi32(x); 2]
    }
    #[inline(always)]
    unsafe fn dot(sum: [__m256i; 2], weights: [__m256i; 2], x: *const i8) -> [__m256i; 2] {
        let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
        let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x));
        let odd = _mm256_srai_epi16::<8>(x);
        [
            _mm256_add_epi32(sum[0], four(weights[0], even, odd)),
            _mm256_add_epi32(sum[1], four(weights[1], even, odd)),
        ]
    }
    #[inline(always)]
    unsafe fn to_floats(x: [__m256i; 2]) -> [__m256; 2] {
        [_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])]
    }
    #[inline(always)]
    unsafe fn halves(from: *const u8) -> [__m256; 2] {
        [
            _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(from.add(16).cast())),
        ]
    }
    #[inline(always)]
    unsafe fn unsigned(from: *const u8) -> [__m256; 2] {
        Self::to_floats([
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast())),
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(8).cast())),
        ])
    }
    #[inline(always)]
    unsafe fn signed(from: *const u8) -> [__m256; 2] {
        Self::to_floats([
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())),
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(8).cast())),
        ])
    }
    #[inline(always)]
    unsafe fn powers(from: *const u8) -> [__m256; 2] {
        let eight = |at| {
            let exponents = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(at).cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponents))
        };
        [eight(0), eight(8)]
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> [__m256; 2] {
        [_mm256_set1_ps(x); 2]
    }
    #[inline(always)]
    unsafe fn mul(x: [__m256; 2], y: [__m256; 2]) -> [__m256; 2] {
        [_mm256_mul_ps(x[0], y[0]), _mm256_mul_ps(x[1], y[1])]
    }
    #[inline(always)]
    unsafe fn add(x: [__m256; 2], y: [__m256; 2]) -> [__m256; 2] {
        [_mm256_add_ps(x[0], y[0]), _mm256_add_ps(x[1], y[1])]
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: [__m256; 2]) {
        _mm256_storeu_ps(to, x[0]);
        _mm256_storeu_ps(to.add(8), x[1]);
    }
}

/// # Safety
/// The machine must have the instructions; the job's pointers must be valid for its sizes.
pub(in crate::quant) unsafe fn run(job: &Job) {
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn sized<L: crate::quant::layout::Layout, const M: usize>(job: &Job) {
        tile::<Avx2, L, M>(job);
    }
    by_layout!(job, sized, [1 2]);
}
