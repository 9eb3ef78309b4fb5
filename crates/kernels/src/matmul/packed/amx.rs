//! AMX, see `crate::amx`: squares of 32 × 32 sums.
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an instruction; the trait says what callers owe"
)]

use super::added::Added;
use super::ahead::Ahead;
use super::avx512;
use super::factor::Source;
use super::instructions::{Instructions, Tiles};
use super::job::Write;
use super::pack::{distance, panels};
use super::tile::finish_row;
use crate::amx::{self, SIDE};
use crate::lanes::transpose;
use crate::pointers::WritePtr;
use std::arch::asm;
use std::arch::x86_64::{__m512, _mm512_setzero_si512};

const BYTES_PER_ROW: usize = SIDE * size_of::<u32>();

/// A 2 × 2 square of tile registers of sums: two more hold its rows of the left input, two its columns of the right one.
/// Subnormal numbers count as 0.
pub(super) struct Bf16;

impl Tiles for Bf16 {
    type Run = Pending;
    const LANES: usize = SIDE;
    const PER_WORD: usize = 2;
    const ROWS: usize = 2 * SIDE;
    const VECTORS: usize = 2;
    const STEP: usize = SIDE;
    const WORDS_PER_TURN: usize = SIDE;
    // Sapphire Rapids: the fastest of 128, 192, 256, 512 and 1024.
    const DEPTH: usize = 192;
    const CHUNK: usize = Self::DEPTH;
    const BLOCK_ROWS: usize = 256;
    const IS_FAST: bool = true;

    unsafe fn begin() {
        amx::configure();
    }

    unsafe fn end(pending: &mut Pending) {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")]
        unsafe fn write(pending: &mut Pending) {
            pending.write(Bf16::ROWS);
        }
        write(pending);
        amx::release();
    }

    unsafe fn pack_left(to: *mut u32, from: Source) {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")]
        unsafe fn pack(to: *mut u32, from: Source) {
            let words = from.k.div_ceil(Bf16::PER_WORD);
            // If adjacent elements are across k, all panels get some words before any gets the next.
            let depth = if from.stride == 1 { 2 * SIDE } else { from.k };
            for k in (0..from.k).step_by(depth.max(1)) {
                for first in (0..from.width).step_by(Bf16::ROWS) {
                    let part = Source {
                        start: from.start.add(first * from.stride + k * from.k_stride),
                        width: Bf16::ROWS.min(from.width - first),
                        k: depth.min(from.k - k),
                        ..from
                    };
                    let to = to
                        .add(first / Bf16::ROWS * distance::<Bf16>(words, Bf16::ROWS))
                        .add(k / Bf16::PER_WORD * Bf16::ROWS);
                    if part.stride == 1 {
                        left_across(to, part);
                    } else {
                        left_along(to, part);
                    }
                }
            }
        }
        pack(to, from);
    }

    unsafe fn pack_right(to: *mut u32, from: Source) {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")]
        unsafe fn pack(to: *mut u32, from: Source) {
            let words = from.k.div_ceil(Bf16::PER_WORD);
            panels::<avx512::Bf16>(to, from, Bf16::COLS);
            let rest = words.next_multiple_of(Bf16::STEP) - words;
            to.add(words * Bf16::COLS).write_bytes(0, rest * Bf16::COLS);
        }
        pack(to, from);
    }

    unsafe fn tile(
        size: (usize, usize),
        words: usize,
        left: *const u32,
        right: *const u32,
        write: Write,
        (ahead, pending): (&mut Ahead, &mut Pending),
    ) {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")]
        unsafe fn tile(
            rows: usize,
            words: usize,
            (left, right): (*const u32, *const u32),
            write: Write,
            ahead: &mut Ahead,
            pending: &mut Pending,
        ) {
            let steps = words.div_ceil(SIDE);
            let lines = Lines::new(write, rows, steps);
            if rows > SIDE {
                square::<2>(steps, left, right, lines, ahead, pending);
            } else {
                square::<1>(steps, left, right, lines, ahead, pending);
            }
            pending.follow(rows, write);
        }
        tile(size.0, words, (left, right), write, ahead, pending);
    }
}

/// The sums of a tile, as rows.
#[repr(align(64))]
struct Sums([f32; Bf16::ROWS * Bf16::COLS]);

impl Sums {
    #[inline(always)]
    unsafe fn row(&self, row: usize) -> [__m512; 2] {
        let at = self.0.as_ptr().add(row * Bf16::COLS);
        [
            avx512::Bf16::load(at, SIDE),
            avx512::Bf16::load(at.add(SIDE), SIDE),
        ]
    }

    /// Stores the tile registers.
    #[inline(always)]
    unsafe fn take(&mut self) {
        asm!(
            "tilestored [{to} + {wide}*1], tmm0",
            "tilestored [{to} + {wide}*1 + 64], tmm1",
            "tilestored [{to} + {wide}*1 + 2048], tmm2",
            "tilestored [{to} + {wide}*1 + 2112], tmm3",
            to = in(reg) self.0.as_mut_ptr(),
            wide = in(reg) 2 * BYTES_PER_ROW,
            options(nostack)
        );
    }
}

/// Packed inputs of one step: of the left, then of the right.
#[repr(align(64))]
struct Panels([u32; (Bf16::ROWS + Bf16::COLS) * SIDE]);

/// The previous tile, whose rows are written while the next one's sums are computed: tile registers and vectors are separate
/// units, and neither waits for the other.
pub(super) struct Pending {
    sums: Sums,
    write: Option<Write>,
    /// The low-rank term, where only part of it is kept (dropout).
    low_rank: Sums,
    added: Option<Added>,
    /// Its packed inputs, and the columns that the right one is for.
    panels: Panels,
    packed_for: Option<(usize, usize)>,
    /// The first row to write, and the number of rows.
    next: usize,
    rows: usize,
}

impl Default for Pending {
    fn default() -> Self {
        Pending {
            sums: Sums([0.0; Bf16::ROWS * Bf16::COLS]),
            write: None,
            low_rank: Sums([0.0; Bf16::ROWS * Bf16::COLS]),
            added: None,
            panels: Panels([0; (Bf16::ROWS + Bf16::COLS) * SIDE]),
            packed_for: None,
            next: 0,
            rows: 0,
        }
    }
}

impl Pending {
    /// Writes up to `count` rows.
    #[inline(always)]
    unsafe fn write(&mut self, count: usize) {
        let Some(write) = self.write else { return };
        let to = self.rows.min(self.next + count);
        match self.added {
            None => {
                for row in self.next..to {
                    finish_row::<avx512::Bf16, 2>(&self.sums.row(row), None, row, write);
                }
            }
            Some(_) => self.write_with_low_rank(to),
        }
        self.next = to;
    }

    /// Writes up to row `to`, with the low-rank term. A separate function, to keep the tile loop small.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")]
    unsafe fn write_with_low_rank(&self, to: usize) {
        let Some((write, added)) = self.write.zip(self.added) else {
            return;
        };
        for row in self.next..to {
            let [a, b] = self.low_rank.row(row);
            let kept = [
                added.kept::<avx512::Bf16>(a, row, 0),
                added.kept::<avx512::Bf16>(b, row, SIDE),
            ];
            finish_row::<avx512::Bf16, 2>(&self.sums.row(row), Some(kept), row, write);
        }
    }

    /// Makes the tile whose sums are in the registers the pending one.
    #[inline(always)]
    unsafe fn follow(&mut self, rows: usize, mut write: Write) {
        self.added = write.low_rank.take();
        (self.write, self.next, self.rows) = (Some(write), 0, rows);
        if self.added.is_some() {
            self.store_with_low_rank();
        } else {
            self.sums.take();
        }
    }

    /// Stores the sums of a tile with a low-rank term; if the term covers the whole tile, it is added in the registers.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")]
    unsafe fn store_with_low_rank(&mut self) {
        let Some((write, added)) = self.write.zip(self.added) else {
            return;
        };
        if added.is_whole() {
            self.add_low_rank(write.cols, added);
            self.sums.take();
            self.added = None;
        } else {
            self.sums.take();
            amx::clear();
            self.add_low_rank(write.cols, added);
            self.low_rank.take();
        }
    }

    /// Adds a low-rank term to the sums in the registers, with inputs rounded like all others.
    #[inline(always)]
    unsafe fn add_low_rank(&mut self, cols: usize, added: Added) {
        let (left, right) = self.panels.0.split_at_mut(Bf16::ROWS * SIDE);
        let (left, right) = (left.as_mut_ptr(), right.as_mut_ptr());
        let ranks = added.ranks(cols);
        for first in ranks.clone().step_by(SIDE * Bf16::PER_WORD) {
            let part = first..ranks.end.min(first + SIDE * Bf16::PER_WORD);
            let (z, factor) = added.sources(part.clone(), self.rows, cols);
            left_along(left, z);
            let place = Some((added.col, first));
            if self.packed_for != place {
                let words = part.len().div_ceil(Bf16::PER_WORD);
                panels::<avx512::Bf16>(right, factor, Bf16::COLS);
                let rest = (SIDE - words) * Bf16::COLS;
                right.add(words * Bf16::COLS).write_bytes(0, rest);
                self.packed_for = place;
            }
            step::<2>(left, right);
        }
    }
}

/// Sums of `M` registers of rows and two of columns. A panel of the left input holds, for each step of 16 words along k, its rows
/// one below the other; one of the right input holds the words one below the other.
#[inline(always)]
unsafe fn square<const M: usize>(
    steps: usize,
    mut left: *const u32,
    mut right: *const u32,
    mut lines: Lines,
    ahead: &mut Ahead,
    pending: &mut Pending,
) {
    let rows_per_step = Bf16::ROWS.div_ceil(steps.max(1));
    amx::clear();
    for _ in 0..steps {
        ahead.turn();
        lines.turn();
        step::<M>(left, right);
        left = left.add(SIDE * Bf16::ROWS);
        right = right.add(SIDE * Bf16::COLS);
        pending.write(rows_per_step);
    }
    pending.write(Bf16::ROWS);
}

/// Adds the products of 16 words along k to the sums.
#[inline(always)]
unsafe fn step<const M: usize>(left: *const u32, right: *const u32) {
    let (narrow, wide) = (BYTES_PER_ROW, 2 * BYTES_PER_ROW);
    asm!(
        "tileloadd tmm6, [{right} + {wide}*1]",
        "tileloadd tmm4, [{left} + {narrow}*1]",
        "tileloadd tmm7, [{right} + {wide}*1 + 64]",
        "tdpbf16ps tmm0, tmm4, tmm6",
        "tdpbf16ps tmm1, tmm4, tmm7",
        left = in(reg) left,
        right = in(reg) right,
        narrow = in(reg) narrow,
        wide = in(reg) wide,
        options(nostack, readonly)
    );
    if M == 2 {
        asm!(
            "tileloadd tmm5, [{left} + {narrow}*1 + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            left = in(reg) left,
            narrow = in(reg) narrow,
            options(nostack, readonly)
        );
    }
}

/// The lines of a destination tile, prefetched for writing while its sums are computed: all at once they would displace
/// the panels' lines in the miss queue.
struct Lines {
    row: WritePtr,
    stride: usize,
    left: usize,
    per_step: usize,
}

impl Lines {
    fn new(write: Write, rows: usize, steps: usize) -> Self {
        Lines {
            row: write.to,
            stride: write.stride,
            left: rows,
            per_step: rows.div_ceil(steps.max(1)),
        }
    }

    /// Prefetches the share of one step.
    #[inline(always)]
    unsafe fn turn(&mut self) {
        for _ in 0..self.per_step.min(self.left) {
            self.row.fetch(Bf16::COLS);
            self.row = self.row.add(self.stride);
            self.left -= 1;
        }
    }
}

/// Packs up to ROWS rows whose elements are contiguous along k.
#[inline(always)]
unsafe fn left_along(to: *mut u32, rows: Source) {
    let zero = _mm512_setzero_si512();
    let step = SIDE * Bf16::PER_WORD;
    for row in 0..Bf16::ROWS {
        for (at, k) in (0..rows.k).step_by(step).enumerate() {
            let words = if row < rows.width {
                let from = rows.start.add(row * rows.stride + k);
                avx512::Bf16::along(from, step.min(rows.k - k))
            } else {
                zero
            };
            let to = to.add((at * Bf16::ROWS + row) * SIDE);
            avx512::Bf16::store_words(to, words);
        }
    }
}

/// The same for elements that are contiguous across k: squares are transposed.
#[inline(always)]
unsafe fn left_across(to: *mut u32, rows: Source) {
    let step = SIDE * Bf16::PER_WORD;
    for (at, k) in (0..rows.k).step_by(step).enumerate() {
        for row in (0..Bf16::ROWS).step_by(SIDE) {
            let n = rows.width.saturating_sub(row).min(SIDE);
            let mut square = [_mm512_setzero_si512(); SIDE];
            for (word, square) in square.iter_mut().enumerate() {
                let k = k + word * Bf16::PER_WORD;
                if k < rows.k && n > 0 {
                    let second = if k + 1 < rows.k { rows.k_stride } else { 0 };
                    let from = rows.start.add(k * rows.k_stride + row);
                    *square = avx512::Bf16::across(from, second, n);
                }
            }
            for (i, words) in transpose(square).into_iter().enumerate() {
                let to = to.add((at * Bf16::ROWS + row + i) * SIDE);
                avx512::Bf16::store_words(to, words);
            }
        }
    }
}
