//! The interface of an instruction set for matmuls; the loops around it are written once, in `pack`, `tile` and `blocked`.
//!
//! Inputs are packed into 32-bit *words*: one f32, or two bf16 that are adjacent along k, the first in the low half.

use super::ahead::Ahead;
use super::factor::Source;
use super::job::{Job, Part, Write};
use crate::numbers::bf16;
use crate::pointers::ReadPtr;

/// How one instruction set computes a tile of the destination, and how it wants its inputs packed.
///
/// # Safety
/// Implementations must be called only on machines that have the instructions; pointers must be valid for the documented sizes.
pub(super) trait Tiles {
    /// Elements of a vector of sums.
    const LANES: usize;
    /// Neighbours along k in one word.
    const PER_WORD: usize;
    /// Rows of a tile: words of a panel of the left input.
    const ROWS: usize;
    /// Vectors in a row of a tile.
    const VECTORS: usize;
    /// Columns of a tile: words of a panel of the right input.
    const COLS: usize = Self::LANES * Self::VECTORS;
    /// Words along k of which panels hold a multiple, the last ones 0.
    const STEP: usize = 1;
    /// Words along k packed at once, a multiple of STEP: a panel of the right input should stay in the L1 cache, or come from
    /// the L2 cache as fast as it is used. The deeper, the less often sums are written and read again.
    const DEPTH: usize;
    /// Words along k summed in registers before they are added to the destination: rounding errors grow with the number of
    /// terms summed in a row.
    const CHUNK: usize;
    /// Rows of the left input packed at once, a multiple of ROWS: with a panel of the right input they should stay in the
    /// L2 cache, of which two threads of one core have half each.
    const BLOCK_ROWS: usize;
    /// Words along k between two prefetches.
    const WORDS_PER_TURN: usize = 4;
    /// Quarters of a turn per cache line of the left input's next block that are left when its prefetch begins.
    const LEAD: usize = 5;
    /// Whether tiles are so fast that packing the left input again costs more than threads gain by smaller shares.
    const IS_FAST: bool = false;

    /// State that a thread keeps from one tile to the next.
    type Run: Default;
    /// Called by a thread before its first tile.
    unsafe fn begin() {}
    /// Called after its last tile: only now are all tiles written.
    unsafe fn end(_: &mut Self::Run) {}
    /// Packs rows of the left input: panels of ROWS words for each word along k, [`super::pack::distance`] apart.
    unsafe fn pack_left(to: *mut u32, from: Source);
    /// Packs columns of the right input: panels of COLS words.
    unsafe fn pack_right(to: *mut u32, from: Source);
    /// One tile of `size` (rows, vectors) with `words` words along k.
    unsafe fn tile(
        size: (usize, usize),
        words: usize,
        left: *const u32,
        right: *const u32,
        write: Write,
        run: (&mut Ahead, &mut Self::Run),
    );
}

/// The vector instructions of one matmul kernel.
///
/// # Safety
/// As for [`Tiles`].
pub(super) trait Instructions: Tiles {
    /// A vector of f32 sums.
    type Sum: Copy;
    /// A vector of packed words.
    type Words: Copy;
    /// Rows and columns computed together where the right input is not packed (`rows`): their sums, the columns and one row
    /// fill the registers.
    const FEW: (usize, usize);

    unsafe fn zero() -> Self::Sum;
    unsafe fn splat(x: f32) -> Self::Sum;
    /// x · y + z
    unsafe fn mul_add(x: Self::Sum, y: Self::Sum, z: Self::Sum) -> Self::Sum;
    unsafe fn add(x: Self::Sum, y: Self::Sum) -> Self::Sum;
    unsafe fn mul(x: Self::Sum, y: Self::Sum) -> Self::Sum;
    /// The sum of all lanes of each vector, in the same order for any number of vectors.
    unsafe fn totals<const N: usize>(x: &[Self::Sum; N], to: &mut [f32; N]);
    /// Self where the lane's bit of `bits` is 1, else 0; the lowest bit is the first lane's.
    unsafe fn keep(x: Self::Sum, bits: u32) -> Self::Sum;
    /// The first `n` ≤ LANES floats, the rest 0.
    unsafe fn load(from: *const f32, n: usize) -> Self::Sum;
    /// Writes the first `n` ≤ LANES floats.
    unsafe fn store(to: *mut f32, n: usize, x: Self::Sum);
    /// The same, rounded to nearest, ties to even.
    unsafe fn store_bf16(to: *mut bf16, n: usize, x: Self::Sum);

    /// LANES words.
    unsafe fn words(from: *const u32) -> Self::Words;
    unsafe fn store_words(to: *mut u32, x: Self::Words);
    /// One word in all lanes.
    unsafe fn broadcast(from: *const u32) -> Self::Words;
    /// sum + x · y, for both numbers of a word that holds two.
    unsafe fn dot(sum: Self::Sum, x: Self::Words, y: Self::Words) -> Self::Sum;

    /// The next `k` ≤ LANES · PER_WORD elements along k, the rest 0, of an unpacked input.
    unsafe fn in_place(from: ReadPtr, k: usize) -> Self::Words;
    // Packing flushes subnormal numbers to 0: a processor spends 150 cycles on a multiplication with one, and each packed
    // number is multiplied many times.
    /// Packs the next `k` ≤ LANES · PER_WORD elements along k, the rest 0.
    unsafe fn along(from: ReadPtr, k: usize) -> Self::Words;
    /// Packs one word of each of `n` ≤ LANES elements across k; `step` is the offset of the second of a pair, 0 if there is none.
    unsafe fn across(from: ReadPtr, step: usize, n: usize) -> Self::Words;
    /// Packs `rows` ≤ LANES vectors along k, `row_stride` apart, and writes them transposed: the words of one k are contiguous,
    /// `width` words from those of the next. LANES words are written for each k.
    unsafe fn turn(
        to: *mut u32,
        width: usize,
        from: ReadPtr,
        row_stride: usize,
        rows: usize,
        k: usize,
    );

    /// [`super::rows::all`] with the instructions enabled.
    unsafe fn few_rows(job: &Job, packed: *mut u32);
    /// [`super::rows::part`] with the instructions enabled, for `size` (rows, columns).
    unsafe fn few_rows_part(size: (usize, usize), job: &Job, at: Part);
}

/// The methods of [`Tiles`] that run the loops of the neighbouring files, inside `impl Tiles for $name`. The instructions are
/// enabled around each loop, so that the operations above are inlined into it.
macro_rules! tiles {
    ($name:ident, $features:literal, $rows:tt, $vectors:tt) => {
        unsafe fn pack_left(to: *mut u32, from: Source) {
            #[target_feature(enable = $features)]
            unsafe fn pack(to: *mut u32, from: Source) {
                panels::<$name>(to, from, $name::ROWS);
            }
            pack(to, from);
        }
        unsafe fn pack_right(to: *mut u32, from: Source) {
            #[target_feature(enable = $features)]
            unsafe fn pack(to: *mut u32, from: Source) {
                panels::<$name>(to, from, $name::COLS);
            }
            pack(to, from);
        }
        unsafe fn tile(
            size: (usize, usize),
            words: usize,
            left: *const u32,
            right: *const u32,
            write: Write,
            (ahead, _): (&mut Ahead, &mut ()),
        ) {
            #[target_feature(enable = $features)]
            unsafe fn sized<const M: usize, const N: usize>(
                words: usize,
                left: *const u32,
                right: *const u32,
                write: Write,
                ahead: &mut Ahead,
            ) {
                tile::<$name, M, N>(words, left, right, write, ahead);
            }
            by_size!(
                size,
                $rows,
                $vectors,
                sized(words, left, right, write, ahead)
            )
        }
    };
}
pub(super) use tiles;

/// The same for [`Instructions`].
macro_rules! few_rows {
    ($name:ident, $features:literal, $few_rows:tt by $few_cols:tt) => {
        unsafe fn few_rows(job: &Job, packed: *mut u32) {
            #[target_feature(enable = $features)]
            unsafe fn few_rows(job: &Job, packed: *mut u32) {
                rows::all::<$name>(job, packed);
            }
            few_rows(job, packed);
        }
        unsafe fn few_rows_part(size: (usize, usize), job: &Job, at: Part) {
            #[target_feature(enable = $features)]
            unsafe fn sized<const R: usize, const C: usize>(job: &Job, at: Part) {
                rows::part::<$name, R, C>(job, at);
            }
            by_size!(size, $few_rows, $few_cols, sized(job, at))
        }
    };
}
pub(super) use few_rows;
