//! AVX-512 with VNNI: sixteen rows in a register, four products and their sum in one instruction.
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an instruction; the trait says what callers owe"
)]

use super::Lanes;
use crate::quant::tile::{Job, by_layout, tile};
use std::arch::x86_64::*;

pub(in crate::quant) struct Avx512;

impl Lanes for Avx512 {
    type Bytes = __m512i;
    type Ints = __m512i;
    type Floats = __m512;

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> __m512i {
        _mm512_loadu_si512(from.cast())
    }
    #[inline(always)]
    unsafe fn low(x: __m512i) -> __m512i {
        _mm512_and_si512(x, _mm512_set1_epi8(15))
    }
    #[inline(always)]
    unsafe fn high(x: __m512i) -> __m512i {
        _mm512_and_si512(_mm512_srli_epi16::<4>(x), _mm512_set1_epi8(15))
    }
    #[inline(always)]
    unsafe fn upper(x: __m512i, shift: i32, mask: u8) -> __m512i {
        let moved = _mm512_srl_epi16(x, _mm_cvtsi32_si128(shift));
        let kept = _mm512_and_si512(moved, _mm512_set1_epi8(mask.cast_signed()));
        _mm512_slli_epi16::<4>(kept)
    }
    #[inline(always)]
    unsafe fn or(x: __m512i, y: __m512i) -> __m512i {
        _mm512_or_si512(x, y)
    }
    #[inline(always)]
    unsafe fn all(x: i32) -> __m512i {
        _mm512_set1_epi32(x)
    }
    #[inline(always)]
    unsafe fn dot(sum: __m512i, weights: __m512i, x: *const i8) -> __m512i {
        let x = _mm512_set1_epi32(x.cast::<i32>().read_unaligned());
        _mm512_dpbusd_epi32(sum, weights, x)
    }
    #[inline(always)]
    unsafe fn to_floats(x: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(x)
    }
    #[inline(always)]
    unsafe fn halves(from: *const u8) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
    }
    #[inline(always)]
    unsafe fn unsigned(from: *const u8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())))
    }
    #[inline(always)]
    unsafe fn signed(from: *const u8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        _mm512_set1_ps(x)
    }
    #[inline(always)]
    unsafe fn mul(x: __m512, y: __m512) -> __m512 {
        _mm512_mul_ps(x, y)
    }
    #[inline(always)]
    unsafe fn add(x: __m512, y: __m512) -> __m512 {
        _mm512_add_ps(x, y)
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m512) {
        _mm512_storeu_ps(to, x);
    }
}

/// # Safety
/// The machine must have the instructions; the job's pointers must be valid for what it says.
pub(in crate::quant) unsafe fn run(job: &Job) {
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma,f16c")]
    unsafe fn sized<L: crate::quant::layout::Layout, const M: usize>(job: &Job) {
        tile::<Avx512, L, M>(job);
    }
    by_layout!(job, sized, [1 2 3 4 5 6 7 8]);
}
