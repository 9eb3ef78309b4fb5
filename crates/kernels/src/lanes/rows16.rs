//! A matmul of sixteen rows in tile registers, see `crate::amx`.

use super::{Left, ROWS, Right, To, Vector, rows8, transpose};
use crate::amx::{self, SIDE};
use std::arch::asm;
use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_storeu_si512};
use std::mem::MaybeUninit;

/// Words of the left input that are transposed at once.
const TRANSPOSED: usize = 2 * SIDE;

/// Sixteen rows of the left input, row by row.
#[repr(align(64))]
struct Rows([MaybeUninit<u32>; SIDE * TRANSPOSED]);

/// `to` (16, lines · 16) = (or +=) left (16, k words) · right (k words, lines · 16), words being pairs of bf16.
///
/// # Safety
/// The pointers must reach these elements, `to` exclusively; the machine must have V's instructions and AMX, and this thread's
/// tile registers must be configured.
#[inline(always)]
pub(crate) unsafe fn rows16<V: Vector>(to: To, left: Left, right: Right, lines: usize, k: usize) {
    let whole = k / SIDE * SIDE;
    // SAFETY: guaranteed by the caller; offsets stay within the 16 × lines · 16 block.
    unsafe {
        if k == 0 || left.col_stride == 1 {
            steps(to, left, right, lines, whole / SIDE);
        } else {
            for from in (0..whole).step_by(TRANSPOSED) {
                let words = TRANSPOSED.min(whole - from);
                let mut rows = Rows([MaybeUninit::uninit(); SIDE * TRANSPOSED]);
                let rows = to_rows(&mut rows, left.from(from), words);
                let to = To {
                    add: to.add || from > 0,
                    ..to
                };
                steps(to, rows, right.from(from), lines, words / SIDE);
            }
        }
        if whole < k {
            let to = To {
                add: to.add || whole > 0,
                ..to
            };
            for row in (0..SIDE).step_by(ROWS) {
                let (to, left) = (to.at(row, 0), left.from(whole).below(row));
                rows8::<V>(to, left, right.from(whole), lines, k - whole);
            }
        }
    }
}

/// Copies words of sixteen rows that are adjacent across memory into rows.
#[inline(always)]
unsafe fn to_rows(rows: &mut Rows, left: Left, words: usize) -> Left {
    // SAFETY: guaranteed by the caller: `words` is a multiple of SIDE, at most TRANSPOSED, and all rows are neighbours.
    unsafe {
        let start = rows.0.as_mut_ptr().cast::<u32>();
        for from in (0..words).step_by(SIDE) {
            let mut square = [_mm512_loadu_si512(left.from(from).start.cast()); SIDE];
            for (word, square) in square.iter_mut().enumerate().skip(1) {
                *square = _mm512_loadu_si512(left.from(from + word).start.cast());
            }
            let transposed: [__m512i; SIDE] = transpose(square);
            for (row, words) in transposed.into_iter().enumerate() {
                _mm512_storeu_si512(start.add(row * TRANSPOSED + from).cast(), words);
            }
        }
        Left {
            start: start.cast(),
            row_stride: TRANSPOSED,
            col_stride: 1,
        }
    }
}

/// All lines, four at a time, with `steps` times sixteen words.
#[inline(always)]
unsafe fn steps(to: To, left: Left, right: Right, lines: usize, steps: usize) {
    for line in (0..lines).step_by(4) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (to, right) = (to.at(0, line), right.at(line));
            match lines - line {
                1 => columns::<1>(to, left, right, steps),
                2 => columns::<2>(to, left, right, steps),
                3 => columns::<3>(to, left, right, steps),
                _ => columns::<4>(to, left, right, steps),
            }
        }
    }
}

/// Reads or writes the sums of one line.
macro_rules! sums {
    ($instruction:literal, $to:expr, $stride:expr, $($flag:ident),*) => {
        asm!($instruction, to = in(reg) $to, stride = in(reg) $stride, options(nostack $(, $flag)*))
    };
}

/// Adds the product of the left input's words, in register 4, with those of one line.
macro_rules! product {
    ($load:literal, $multiply:literal, $right:expr, $stride:expr) => {
        asm!($load, $multiply, right = in(reg) $right, stride = in(reg) $stride, options(nostack, readonly))
    };
}

/// N lines of sums in registers 0 to 3.
#[inline(always)]
unsafe fn columns<const N: usize>(to: To, left: Left, right: Right, steps: usize) {
    let bytes = |stride: usize| stride * size_of::<f32>();
    let (sums, row, words) = (
        bytes(to.row_stride),
        bytes(left.row_stride),
        bytes(right.row_stride),
    );
    // SAFETY: guaranteed by the caller.
    unsafe {
        if to.add {
            sums!(
                "tileloadd tmm0, [{to} + {stride}*1]",
                to.start,
                sums,
                readonly
            );
            if N > 1 {
                sums!(
                    "tileloadd tmm1, [{to} + {stride}*1 + 64]",
                    to.start,
                    sums,
                    readonly
                );
            }
            if N > 2 {
                sums!(
                    "tileloadd tmm2, [{to} + {stride}*1 + 128]",
                    to.start,
                    sums,
                    readonly
                );
            }
            if N > 3 {
                sums!(
                    "tileloadd tmm3, [{to} + {stride}*1 + 192]",
                    to.start,
                    sums,
                    readonly
                );
            }
        } else {
            amx::clear();
        }
        for step in 0..steps {
            let left = left.start.add(step * SIDE);
            let right = right.from(step * SIDE).start;
            sums!("tileloadd tmm4, [{to} + {stride}*1]", left, row, readonly);
            product!(
                "tileloadd tmm5, [{right} + {stride}*1]",
                "tdpbf16ps tmm0, tmm4, tmm5",
                right,
                words
            );
            if N > 1 {
                product!(
                    "tileloadd tmm6, [{right} + {stride}*1 + 64]",
                    "tdpbf16ps tmm1, tmm4, tmm6",
                    right,
                    words
                );
            }
            if N > 2 {
                product!(
                    "tileloadd tmm7, [{right} + {stride}*1 + 128]",
                    "tdpbf16ps tmm2, tmm4, tmm7",
                    right,
                    words
                );
            }
            if N > 3 {
                product!(
                    "tileloadd tmm5, [{right} + {stride}*1 + 192]",
                    "tdpbf16ps tmm3, tmm4, tmm5",
                    right,
                    words
                );
            }
        }
        sums!("tilestored [{to} + {stride}*1], tmm0", to.start, sums,);
        if N > 1 {
            sums!("tilestored [{to} + {stride}*1 + 64], tmm1", to.start, sums,);
        }
        if N > 2 {
            sums!("tilestored [{to} + {stride}*1 + 128], tmm2", to.start, sums,);
        }
        if N > 3 {
            sums!("tilestored [{to} + {stride}*1 + 192], tmm3", to.start, sums,);
        }
    }
}
