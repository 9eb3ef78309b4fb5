//! AVX2 with fused multiply-add: f32.
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an instruction; the trait says what callers owe"
)]

use super::ahead::Ahead;
use super::factor::Source;
use super::instructions::{Instructions, Tiles, few_rows, tiles};
use super::job::{Job, Part, Write};
use super::pack::panels;
use super::rows;
use super::tile::{by_size, tile};
use crate::lanes::{Vector, Ymm, flush_subnormal_ymm as flush_subnormal};
use crate::numbers::{Number, bf16};
use crate::pointers::ReadPtr;
use std::arch::x86_64::*;

/// Eight f32 per vector. Twelve sums, two columns and one row use fifteen of sixteen registers.
pub(super) struct F32;

/// All bits of the first `n` of 8 lanes.
#[inline(always)]
unsafe fn first(n: usize) -> __m256i {
    const WINDOW: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    _mm256_loadu_si256(WINDOW.as_ptr().add(8 - n).cast())
}

/// The next `n` numbers of an input.
#[inline(always)]
unsafe fn numbers(from: ReadPtr, n: usize) -> __m256 {
    match from {
        ReadPtr::F32(from) => load(from, n),
        ReadPtr::Bf16(from) => {
            let mut halves = [bf16::ZERO; 8];
            std::ptr::copy_nonoverlapping(from, halves.as_mut_ptr(), n);
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        }
    }
}

#[inline(always)]
unsafe fn load(from: *const f32, n: usize) -> __m256 {
    if n == 8 {
        _mm256_loadu_ps(from)
    } else {
        _mm256_maskload_ps(from, first(n))
    }
}

/// Transposes a square of 8 × 8: in pairs, in fours within each 128-bit half, then the halves.
#[inline(always)]
unsafe fn transpose(x: [__m256; 8]) -> [__m256; 8] {
    let mut pairs = x;
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_ps(x[2 * i], x[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_ps(x[2 * i], x[2 * i + 1]);
    }
    // fours[4 g + c] holds, in half p, column 4 p + c of rows 4 g .. 4 g + 4.
    let mut fours = pairs;
    for i in 0..2 {
        let at = 4 * i;
        fours[at] = _mm256_shuffle_ps::<0x44>(pairs[at], pairs[at + 2]);
        fours[at + 1] = _mm256_shuffle_ps::<0xee>(pairs[at], pairs[at + 2]);
        fours[at + 2] = _mm256_shuffle_ps::<0x44>(pairs[at + 1], pairs[at + 3]);
        fours[at + 3] = _mm256_shuffle_ps::<0xee>(pairs[at + 1], pairs[at + 3]);
    }
    let mut turned = fours;
    for c in 0..4 {
        turned[c] = _mm256_permute2f128_ps::<0x20>(fours[c], fours[4 + c]);
        turned[4 + c] = _mm256_permute2f128_ps::<0x31>(fours[c], fours[4 + c]);
    }
    turned
}

impl Tiles for F32 {
    type Run = ();
    const LANES: usize = 8;
    const PER_WORD: usize = 1;
    const ROWS: usize = 6;
    const VECTORS: usize = 2;
    // Zen 3: the fastest of 256 × 156, 384 × 96, 384 × 156 and 512 × 72, by up to 15 % where k is 384.
    const DEPTH: usize = 512;
    const CHUNK: usize = 256;
    const BLOCK_ROWS: usize = 72;
    // Zen 3, two threads: training's matmuls gain 4 %; with three times as much it is the same.
    const LEAD: usize = 16;

    tiles!(F32, "avx2,fma", [1 2 3 4 5 6], [1 2]);
}

impl Instructions for F32 {
    type Sum = __m256;
    type Words = __m256;
    const FEW: (usize, usize) = (4, 3);

    #[inline(always)]
    unsafe fn zero() -> __m256 {
        _mm256_setzero_ps()
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        _mm256_set1_ps(x)
    }
    #[inline(always)]
    unsafe fn mul_add(x: __m256, y: __m256, z: __m256) -> __m256 {
        _mm256_fmadd_ps(x, y, z)
    }
    #[inline(always)]
    unsafe fn add(x: __m256, y: __m256) -> __m256 {
        _mm256_add_ps(x, y)
    }
    #[inline(always)]
    unsafe fn mul(x: __m256, y: __m256) -> __m256 {
        _mm256_mul_ps(x, y)
    }
    #[inline(always)]
    unsafe fn totals<const N: usize>(x: &[__m256; N], to: &mut [f32; N]) {
        for (&x, to) in x.iter().zip(to) {
            let fours = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let pairs = _mm_add_ps(fours, _mm_movehl_ps(fours, fours));
            *to = _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)));
        }
    }
    #[inline(always)]
    unsafe fn keep(x: __m256, bits: u32) -> __m256 {
        Ymm(x).keep_bits(bits).0
    }
    #[inline(always)]
    unsafe fn load(from: *const f32, n: usize) -> __m256 {
        load(from, n)
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, n: usize, x: __m256) {
        if n == 8 {
            _mm256_storeu_ps(to, x);
        } else {
            _mm256_maskstore_ps(to, first(n), x);
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(to: *mut bf16, n: usize, x: __m256) {
        let mut numbers = [0.0; 8];
        _mm256_storeu_ps(numbers.as_mut_ptr(), x);
        let halves: [bf16; 8] = numbers.map(Number::narrow);
        std::ptr::copy_nonoverlapping(halves.as_ptr(), to, n);
    }
    #[inline(always)]
    unsafe fn words(from: *const u32) -> __m256 {
        _mm256_loadu_ps(from.cast())
    }
    #[inline(always)]
    unsafe fn store_words(to: *mut u32, x: __m256) {
        _mm256_storeu_ps(to.cast(), x);
    }
    #[inline(always)]
    unsafe fn broadcast(from: *const u32) -> __m256 {
        _mm256_broadcast_ss(&*from.cast::<f32>())
    }
    #[inline(always)]
    unsafe fn dot(sum: __m256, x: __m256, y: __m256) -> __m256 {
        _mm256_fmadd_ps(x, y, sum)
    }
    #[inline(always)]
    unsafe fn in_place(from: ReadPtr, k: usize) -> __m256 {
        numbers(from, k)
    }
    #[inline(always)]
    unsafe fn along(from: ReadPtr, k: usize) -> __m256 {
        flush_subnormal(numbers(from, k))
    }
    #[inline(always)]
    unsafe fn across(from: ReadPtr, _: usize, n: usize) -> __m256 {
        flush_subnormal(numbers(from, n))
    }
    #[inline(always)]
    unsafe fn turn(
        to: *mut u32,
        width: usize,
        from: ReadPtr,
        row_stride: usize,
        rows: usize,
        k: usize,
    ) {
        let mut square = [_mm256_setzero_ps(); 8];
        for (i, row) in square.iter_mut().enumerate() {
            if i < rows {
                *row = Self::along(from.add(i * row_stride), k);
            }
        }
        let turned = transpose(square);
        for (i, &word) in turned.iter().enumerate() {
            if i < k {
                Self::store_words(to.add(i * width), word);
            }
        }
    }

    few_rows!(F32, "avx2,fma", [1 2 3 4] by [1 3]);
}
