//! AVX-512 with VNNI: sixteen rows in a register, four products and their sum in one instruction.
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an instruction; the trait says what callers owe"
)]

use crate::lanes::transpose;
use crate::numbers::bf16;
use crate::quant::activations::BLOCK;
use crate::quant::lanes::{Lanes, ROWS};
use crate::quant::layout::{Codes, GROUPS, Layout, Scales};
use crate::quant::tile::{Job, by_layout, tile};
use std::arch::x86_64::*;
use std::mem::transmute;
use std::ops::Range;

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
    unsafe fn bits(x: __m512i, shift: i32, mask: u8) -> __m512i {
        let by = _mm_cvtsi32_si128(shift.abs());
        let moved = match shift {
            0.. => _mm512_srl_epi16(x, by),
            _ => _mm512_sll_epi16(x, by),
        };
        _mm512_and_si512(moved, _mm512_set1_epi8(mask.cast_signed()))
    }
    #[inline(always)]
    unsafe fn look_up(x: __m512i, table: &[u8; 16]) -> __m512i {
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
        _mm512_shuffle_epi8(table, x)
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
    unsafe fn powers(from: *const u8) -> __m512 {
        let exponents = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponents))
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
/// The machine must have the instructions; the job's pointers must be valid for its sizes.
pub(in crate::quant) unsafe fn run(job: &Job) {
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma,f16c")]
    unsafe fn sized<L: Layout, const M: usize>(job: &Job) {
        tile::<Avx512, L, M>(job);
    }
    by_layout!(job, sized, [1 2 3 4 5 6 7 8]);
}

/// Some of a panel's sixteen rows, some of their columns, as contiguous bf16: block by block, sixteen rows at once, then
/// transposed.
///
/// # Safety
/// The machine must have AVX-512 with bf16; columns must be cut between blocks; the panel and `to` must have the stated sizes.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma,f16c")]
pub(in crate::quant) unsafe fn dequantize<L: Layout>(
    panel: &[u8],
    rows: Range<usize>,
    columns: &Range<usize>,
    to: &mut [bf16],
) {
    assert!(rows.end <= ROWS && to.len() == rows.len() * columns.len());
    for column in columns.clone().step_by(BLOCK) {
        let (unit, block) = (
            column / BLOCK / L::Scales::BLOCKS,
            column / BLOCK % L::Scales::BLOCKS,
        );
        let unit = &panel[unit * L::UNIT..][..L::UNIT];
        let words = transpose(transposed_block::<L>(unit.as_ptr(), block));
        for (row, words) in words[rows.clone()].iter().enumerate() {
            let at = row * columns.len() + column - columns.start;
            _mm512_storeu_si512(to[at..][..BLOCK].as_mut_ptr().cast(), *words);
        }
    }
}

/// A block of sixteen rows: for each pair of columns, a pair of bf16 per row. The order of operations is that of
/// [`crate::quant::repack::row`].
#[inline(always)]
unsafe fn transposed_block<L: Layout>(unit: *const u8, block: usize) -> [__m512i; BLOCK / 2] {
    let codes = unit.add(L::Scales::BYTES + block * L::Codes::BYTES);
    let each_part = GROUPS / L::Scales::PARTS;
    let mut words = [_mm512_setzero_si512(); BLOCK / 2];
    for part in 0..L::Scales::PARTS {
        let minimum = L::Scales::minimum::<Avx512>(unit, block, part);
        let scale = L::Scales::scale::<Avx512>(unit, block, part);
        for group in part * each_part..(part + 1) * each_part {
            let codes = L::Codes::group::<Avx512>(codes, group);
            let pairs = [
                (codes, _mm512_srli_epi32::<8>(codes)),
                (
                    _mm512_srli_epi32::<16>(codes),
                    _mm512_srli_epi32::<24>(codes),
                ),
            ];
            for (at, (first, second)) in pairs.into_iter().enumerate() {
                let first = value::<L>(first, scale, minimum);
                words[2 * group + at] = pair(first, value::<L>(second, scale, minimum));
            }
        }
    }
    words
}

/// The values of the codes in the lowest byte of each row.
#[inline(always)]
unsafe fn value<L: Layout>(code: __m512i, scale: __m512, minimum: __m512) -> __m512 {
    let code = _mm512_and_si512(code, _mm512_set1_epi32(255));
    let code = _mm512_sub_epi32(code, _mm512_set1_epi32(L::OFFSET));
    let product = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(code));
    if L::Scales::MINIMUM {
        _mm512_add_ps(product, minimum)
    } else {
        product
    }
}

/// Rounds two vectors to bf16; the first becomes the lower half of each word.
#[inline(always)]
unsafe fn pair(low: __m512, high: __m512) -> __m512i {
    let low: __m256i = transmute(_mm512_cvtneps_pbh(low));
    let high: __m256i = transmute(_mm512_cvtneps_pbh(high));
    let high = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(high));
    _mm512_or_si512(_mm512_cvtepu16_epi32(low), high)
}
