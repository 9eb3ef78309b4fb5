//! AVX-512: f32, and pairs of bf16 if the machine has `vdpbf16ps`.
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
use crate::lanes::{alternating, flush_subnormal_zmm as flush_subnormal, transpose};
use crate::numbers::{Number, bf16};
use crate::pointers::ReadPtr;
use std::arch::x86_64::*;
use std::mem::transmute;

/// The first `n` of 16 lanes.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1_u32 << n) - 1) as u16
}

/// Adds upper halves to lower ones until one number is left: for four vectors at once, three quarters of the shuffles are saved.
#[inline(always)]
unsafe fn totals<const N: usize>(x: &[__m512; N], to: &mut [f32; N]) {
    if N == 4 {
        let halves = |a, b| {
            let (low, high) = (
                _mm512_shuffle_f32x4::<0x44>(a, b),
                _mm512_shuffle_f32x4::<0xee>(a, b),
            );
            _mm512_add_ps(low, high)
        };
        let (ab, cd) = (halves(x[0], x[1]), halves(x[2], x[3]));
        let (low, high) = (
            _mm512_shuffle_f32x4::<0x88>(ab, cd),
            _mm512_shuffle_f32x4::<0xdd>(ab, cd),
        );
        // Four lanes of each.
        let fours = _mm512_add_ps(low, high);
        let pairs = _mm512_add_ps(fours, _mm512_permute_ps::<0x4e>(fours));
        let ones = _mm512_add_ps(pairs, _mm512_permute_ps::<0xb1>(pairs));
        let first = _mm512_maskz_compress_ps(0x1111, ones);
        _mm_storeu_ps(to.as_mut_ptr(), _mm512_castps512_ps128(first));
    } else {
        for (x, to) in x.iter().zip(to) {
            *to = _mm512_reduce_add_ps(*x);
        }
    }
}

/// Sixteen f32.
mod single {
    use super::*;

    #[inline(always)]
    pub unsafe fn dot(sum: __m512, x: __m512i, y: __m512i) -> __m512 {
        _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y), sum)
    }

    #[inline(always)]
    pub unsafe fn in_place(from: ReadPtr, k: usize) -> __m512i {
        match from {
            ReadPtr::F32(from) => _mm512_castps_si512(_mm512_maskz_loadu_ps(first(k), from)),
            ReadPtr::Bf16(from) => {
                let halves = _mm256_maskz_loadu_epi16(first(k), from.cast());
                _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves))
            }
        }
    }

    #[inline(always)]
    pub unsafe fn along(from: ReadPtr, k: usize) -> __m512i {
        flush_subnormal(in_place(from, k))
    }

    #[inline(always)]
    pub unsafe fn across(from: ReadPtr, _: usize, n: usize) -> __m512i {
        along(from, n)
    }

    /// Without a dedicated instruction.
    #[inline(always)]
    pub unsafe fn round(x: __m512) -> __m256i {
        let numbers = transmute::<__m512, [f32; 16]>(x);
        transmute::<[bf16; 16], __m256i>(numbers.map(Number::narrow))
    }
}

/// Sixteen pairs of bf16.
mod pairs {
    use super::*;

    #[inline(always)]
    pub unsafe fn dot(sum: __m512, x: __m512i, y: __m512i) -> __m512 {
        _mm512_dpbf16_ps(
            sum,
            transmute::<__m512i, __m512bh>(x),
            transmute::<__m512i, __m512bh>(y),
        )
    }

    /// 32 contiguous numbers, rounded: they are already pairs.
    #[inline(always)]
    pub unsafe fn along(from: ReadPtr, k: usize) -> __m512i {
        let from = match from {
            ReadPtr::F32(from) => from,
            ReadPtr::Bf16(from) => {
                let first = (1_u64 << k) - 1;
                return _mm512_maskz_loadu_epi16(first as u32, from.cast());
            }
        };
        let low = _mm512_maskz_loadu_ps(first(k.min(16)), from);
        let high = _mm512_maskz_loadu_ps(first(k.saturating_sub(16)), from.wrapping_add(16));
        transmute(_mm512_cvtne2ps_pbh(high, low))
    }

    /// The instructions treat subnormal numbers as 0 wherever they come from.
    #[inline(always)]
    pub unsafe fn in_place(from: ReadPtr, k: usize) -> __m512i {
        along(from, k)
    }

    /// Two rows of 16, rounded and interleaved.
    #[inline(always)]
    pub unsafe fn across(from: ReadPtr, step: usize, n: usize) -> __m512i {
        let second = if step == 0 { 0 } else { n };
        let rounded: __m512i = match from {
            ReadPtr::F32(from) => {
                let low = _mm512_maskz_loadu_ps(first(n), from);
                let high = _mm512_maskz_loadu_ps(first(second), from.wrapping_add(step));
                transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low))
            }
            ReadPtr::Bf16(from) => {
                let low = _mm256_maskz_loadu_epi16(first(n), from.cast());
                let high = from.wrapping_add(step).cast();
                let high = _mm256_maskz_loadu_epi16(first(second), high);
                _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
            }
        };
        _mm512_permutexvar_epi16(alternating(), rounded)
    }

    #[inline(always)]
    pub unsafe fn round(x: __m512) -> __m256i {
        transmute(_mm512_cvtneps_pbh(x))
    }
}

macro_rules! kernel {
    (
        $(#[$meta:meta])* $name:ident, $format:ident, $features:literal, per_word: $per_word:literal, depth: $depth:literal,
        rows: $rows:literal of $each_row:tt, vectors: $vectors:literal of $each_vector:tt
    ) => {
        $(#[$meta])*
        pub(super) struct $name;

        impl Tiles for $name {
            type Run = ();
            const LANES: usize = 16;
            const PER_WORD: usize = $per_word;
            const ROWS: usize = $rows;
            const VECTORS: usize = $vectors;
            const DEPTH: usize = $depth;
            const CHUNK: usize = $depth;
            const BLOCK_ROWS: usize = 156;

            tiles!($name, $features, $each_row, $each_vector);
        }

        impl Instructions for $name {
            type Sum = __m512;
            type Words = __m512i;
            const FEW: (usize, usize) = (5, 4);

            #[inline(always)]
            unsafe fn zero() -> __m512 {
                _mm512_setzero_ps()
            }
            #[inline(always)]
            unsafe fn splat(x: f32) -> __m512 {
                _mm512_set1_ps(x)
            }
            #[inline(always)]
            unsafe fn mul_add(x: __m512, y: __m512, z: __m512) -> __m512 {
                _mm512_fmadd_ps(x, y, z)
            }
            #[inline(always)]
            unsafe fn add(x: __m512, y: __m512) -> __m512 {
                _mm512_add_ps(x, y)
            }
            #[inline(always)]
            unsafe fn mul(x: __m512, y: __m512) -> __m512 {
                _mm512_mul_ps(x, y)
            }
            #[inline(always)]
            unsafe fn totals<const N: usize>(x: &[__m512; N], to: &mut [f32; N]) {
                totals(x, to);
            }
            #[inline(always)]
            unsafe fn keep(x: __m512, bits: u32) -> __m512 {
                _mm512_maskz_mov_ps(bits as u16, x)
            }
            #[inline(always)]
            unsafe fn load(from: *const f32, n: usize) -> __m512 {
                _mm512_maskz_loadu_ps(first(n), from)
            }
            #[inline(always)]
            unsafe fn store(to: *mut f32, n: usize, x: __m512) {
                _mm512_mask_storeu_ps(to, first(n), x)
            }
            #[inline(always)]
            unsafe fn store_bf16(to: *mut bf16, n: usize, x: __m512) {
                _mm256_mask_storeu_epi16(to.cast(), first(n), $format::round(x))
            }
            #[inline(always)]
            unsafe fn words(from: *const u32) -> __m512i {
                _mm512_loadu_si512(from.cast())
            }
            #[inline(always)]
            unsafe fn store_words(to: *mut u32, x: __m512i) {
                _mm512_storeu_si512(to.cast(), x)
            }
            #[inline(always)]
            unsafe fn broadcast(from: *const u32) -> __m512i {
                _mm512_set1_epi32(from.read().cast_signed())
            }
            #[inline(always)]
            unsafe fn dot(sum: __m512, x: __m512i, y: __m512i) -> __m512 {
                $format::dot(sum, x, y)
            }
            #[inline(always)]
            unsafe fn in_place(from: ReadPtr, k: usize) -> __m512i {
                $format::in_place(from, k)
            }
            #[inline(always)]
            unsafe fn along(from: ReadPtr, k: usize) -> __m512i {
                $format::along(from, k)
            }
            #[inline(always)]
            unsafe fn across(from: ReadPtr, step: usize, n: usize) -> __m512i {
                $format::across(from, step, n)
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
                let mut square = [_mm512_setzero_si512(); 16];
                for (i, row) in square.iter_mut().enumerate() {
                    if i < rows {
                        *row = Self::along(from.add(i * row_stride), k);
                    }
                }
                let words = k.div_ceil(Self::PER_WORD);
                let turned = transpose(square);
                for (i, &word) in turned.iter().enumerate() {
                    if i < words {
                        Self::store_words(to.add(i * width), word);
                    }
                }
            }

            few_rows!($name, $features, [1 2 3 4 5] by [1 4]);
        }
    };
}

kernel!(
    /// Sixteen f32 at a time.
    F32, single, "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma", per_word: 1, depth: 256,
    rows: 12 of [1 2 3 4 5 6 7 8 9 10 11 12], vectors: 2 of [1 2]
);

kernel!(
    /// Sixteen pairs of bf16 per vector. Denormals count as 0, as in `vdpbf16ps`.
    Bf16, pairs, "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma", per_word: 2, depth: 384,
    rows: 12 of [1 2 3 4 5 6 7 8 9 10 11 12], vectors: 2 of [1 2]
);
