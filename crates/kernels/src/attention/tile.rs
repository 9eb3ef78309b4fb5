//! Shared by the forward and backward of attention: tile sizes, packed copies of queries, keys and values for the
//! matmuls, and the visible part of a tile.
#![allow(unsafe_code)]

use super::{Scores, Sizes};
use crate::fetch::{self, ROWS_AHEAD};
use crate::lanes::{Group, InLanes, LINE, Left, Right, To, Vector};
use crate::math::flush_subnormal;
use crate::numbers::{Values, ValuesMut, bf16};
use crate::threads::SharedSlice;

/// Queries per tile.
pub(super) const QUERIES: usize = 64;
/// Keys per tile.
pub(super) const KEYS: usize = 128;
/// Keys per panel.
pub(super) const PANEL: usize = 2 * LINE;

/// Rows of one head within a larger matrix: row r starts at `r · stride`.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub values: Values<'a>,
    pub stride: usize,
    /// Features per row, and the same rounded up to whole lines.
    pub d: usize,
    pub padded: usize,
}

pub(super) fn padded(d: usize) -> usize {
    d.next_multiple_of(LINE)
}

impl Rows<'_> {
    /// Rows from..to times `scale` into `out` (≥ to − from, padded); the rest of `out` becomes 0.
    ///
    /// # Safety
    /// As for [`scaled`].
    #[inline(always)]
    pub unsafe fn copy<V: Vector>(&self, from: usize, to: usize, scale: f32, out: &mut [f32]) {
        match self.values {
            // SAFETY: guaranteed by the caller.
            Values::F32(values) => unsafe { self.copy_of::<V, _>(values, (from, to), scale, out) },
            // SAFETY: guaranteed by the caller.
            Values::Bf16(values) => unsafe { self.copy_of::<V, _>(values, (from, to), scale, out) },
        }
    }

    #[inline(always)]
    unsafe fn copy_of<V: Vector, N: InLanes>(
        &self,
        values: &[N],
        (from, to): (usize, usize),
        scale: f32,
        out: &mut [f32],
    ) {
        for (r, out) in out.chunks_exact_mut(self.padded).enumerate() {
            if from + r >= to {
                out.fill(0.0);
                continue;
            }
            if from + r + ROWS_AHEAD < to {
                let next = &values[(from + r + ROWS_AHEAD) * self.stride..];
                fetch::at(next.as_ptr(), self.d);
            }
            let row = &values[(from + r) * self.stride..][..self.d];
            // SAFETY: guaranteed by the caller.
            unsafe { scaled::<V, _, _>(row, scale, &mut out[..self.d]) };
            for x in &mut out[self.d..] {
                *x = 0.0;
            }
        }
    }
}

/// Packs `rows` (T, padded) as columns of a right input, see [`panels`], and as a right input, see [`column_words`], each if its
/// destination is not empty. `plain` has room for all rows and holds them at the end, unless a word is two numbers: then it is
/// used PANEL rows at a time, which stay in the L1 cache.
///
/// # Safety
/// As for [`scaled`].
#[inline(always)]
pub(super) unsafe fn pack<V: Vector>(
    rows: Rows,
    seq_len: usize,
    plain: &mut [f32],
    (mut as_columns, mut as_rows): (Option<&mut [f32]>, Option<&mut [f32]>),
) {
    let width = rows.padded;
    for first in (0..seq_len).step_by(PANEL) {
        let (start, n) = (first * width, PANEL * width);
        let part = match V::NUMBERS {
            2 => &mut plain[..n],
            _ => &mut plain[start..][..n],
        };
        let (start, n) = (start / V::NUMBERS, n / V::NUMBERS);
        // SAFETY: guaranteed by the caller.
        unsafe {
            rows.copy::<V>(first, seq_len, 1.0, part);
            if let Some(words) = as_rows.as_deref_mut() {
                column_words::<V>(part, width, &mut words[start..][..n]);
            }
            if let Some(words) = as_columns.as_deref_mut() {
                panels::<V>(part, width, &mut words[start..][..n]);
            }
        }
    }
}

/// `to` = `scale` · `from`, of equal length and any dtypes, subnormal numbers as 0. Hand-written: rows are short, and the
/// compiler's loop would start with four registers at once and process short rows one by one.
///
/// # Safety
/// The machine must have V's instructions.
#[inline(always)]
pub(super) unsafe fn scaled<V: Vector, A: InLanes, B: InLanes>(
    from: &[A],
    scale: f32,
    to: &mut [B],
) {
    let (lines, rest) = from.as_chunks::<LINE>();
    let (to_lines, to_rest) = to.as_chunks_mut::<LINE>();
    for (from, to) in lines.iter().zip(to_lines) {
        for at in (0..LINE).step_by(V::LANES) {
            // SAFETY: a line is a whole number of registers.
            unsafe {
                let x: V = A::load(from.as_ptr().add(at));
                B::store(
                    x.times(V::all(scale)).flush_subnormal(),
                    to.as_mut_ptr().add(at),
                );
            }
        }
    }
    for (to, x) in to_rest.iter_mut().zip(rest) {
        *to = B::narrow(flush_subnormal(scale * x.wide()));
    }
}

/// The rows of an output, of which tasks write disjoint parts.
pub(super) enum Outputs {
    F32(SharedSlice<f32>),
    Bf16(SharedSlice<bf16>),
}

impl Outputs {
    pub fn of(values: ValuesMut) -> Self {
        match values {
            ValuesMut::F32(values) => Outputs::F32(SharedSlice::new(values)),
            ValuesMut::Bf16(values) => Outputs::Bf16(SharedSlice::new(values)),
        }
    }

    /// Prefetches `n` numbers from `at` on.
    #[inline(always)]
    pub fn fetch(&self, at: usize, n: usize) {
        match self {
            Outputs::F32(values) => values.fetch(at, n),
            Outputs::Bf16(values) => values.fetch(at, n),
        }
    }

    /// Writes `scale` · `from` from number `at` on.
    ///
    /// # Safety
    /// As for [`scaled`]; the output must be alive, and nothing else may access these numbers.
    #[inline(always)]
    pub unsafe fn write<V: Vector>(&self, at: usize, from: &[f32], scale: f32) {
        let range = at..at + from.len();
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                Outputs::F32(values) => scaled::<V, _, _>(from, scale, values.range(range)),
                Outputs::Bf16(values) => scaled::<V, _, _>(from, scale, values.range(range)),
            }
        }
    }
}

/// Rows (n, padded) as a left input: words along the row.
///
/// # Safety
/// As for [`scaled`].
#[inline(always)]
pub(super) unsafe fn left_words<V: Vector>(rows: &[f32], words: &mut [f32]) {
    if V::NUMBERS == 2 {
        let words = words.chunks_exact_mut(V::LANES);
        for (word, numbers) in words.zip(rows.chunks_exact(2 * V::LANES)) {
            // SAFETY: LANES words, and twice as many numbers.
            unsafe {
                let next = V::load(numbers.as_ptr().add(V::LANES));
                V::load(numbers.as_ptr())
                    .words_along(next)
                    .store(word.as_mut_ptr());
            }
        }
    }
}

/// Rows (n, width), n even, as a right input, or as the left one of a matmul over rows: words down the columns.
///
/// # Safety
/// As for [`scaled`]; `width` is whole lines.
#[inline(always)]
pub(super) unsafe fn column_words<V: Vector>(rows: &[f32], width: usize, words: &mut [f32]) {
    if V::NUMBERS == 2 {
        let pairs = rows.chunks_exact(2 * width);
        for (words, rows) in words.chunks_exact_mut(width).zip(pairs) {
            for at in (0..width).step_by(V::LANES) {
                // SAFETY: at + LANES ≤ width.
                unsafe {
                    let below = V::load(rows.as_ptr().add(width + at));
                    let above = V::load(rows.as_ptr().add(at));
                    above.words_down(below).store(words.as_mut_ptr().add(at));
                }
            }
        }
    }
}

/// Rows (n, width), n a multiple of PANEL, as columns of a right input: panels of PANEL rows, transposed. `rows` is packed to
/// words in place if a word is two numbers.
///
/// # Safety
/// As for [`scaled`].
#[inline(always)]
pub(super) unsafe fn panels<V: Vector>(rows: &mut [f32], width: usize, panels: &mut [f32]) {
    let words = width / V::NUMBERS;
    if V::NUMBERS == 2 {
        let n = rows.len() / 2;
        for at in (0..n).step_by(V::LANES) {
            // SAFETY: words at.. come from numbers 2 at.., which are read before.
            unsafe {
                let from = rows.as_ptr().add(2 * at);
                let word = V::load(from).words_along(V::load(from.add(V::LANES)));
                word.store(rows.as_mut_ptr().add(at));
            }
        }
    }
    let all = panels.chunks_exact_mut(words * PANEL);
    for (panel, rows) in all.zip(rows.chunks_exact(PANEL * words)) {
        let whole = words / LINE * LINE;
        for i in (0..PANEL).step_by(LINE) {
            for w in (0..whole).step_by(LINE) {
                // SAFETY: LINE rows and LINE words of them, within the panel and the rows.
                unsafe {
                    let from = rows.as_ptr().add(i * words + w);
                    let to = panel.as_mut_ptr().add(w * PANEL + i);
                    V::transposed((from, words), (to, PANEL));
                }
            }
        }
        for (i, row) in rows.chunks_exact(words).enumerate() {
            for (w, &word) in row.iter().enumerate().skip(whole) {
                panel[w * PANEL + i] = word;
            }
        }
    }
}

/// A block of queries of one sequence and, for each, the first key it attends to. The last is the query itself.
pub(super) struct Block {
    pub from: usize,
    pub to: usize,
    pub first: [usize; QUERIES],
    /// The smallest of them, rounded down to a whole matmul group.
    pub lowest: usize,
    pub group: Group,
}

impl Block {
    #[inline(always)]
    pub fn new<V: Vector>(sizes: &Sizes, b: usize, block: usize) -> Self {
        let group = Group::of::<V>();
        let from = block * QUERIES;
        let to = (from + QUERIES).min(sizes.seq_len);
        let mut first = [0; QUERIES];
        let mut lowest = from;
        for t in from..to {
            let seen = sizes.mask.first_visible(b, t, sizes.seq_len);
            first[t - from] = seen;
            lowest = lowest.min(seen);
        }
        Block {
            from,
            to,
            first,
            lowest: lowest / group.multiple * group.multiple,
            group,
        }
    }

    /// The number of queries, rounded up to a whole matmul group.
    #[inline(always)]
    pub fn rows(&self) -> usize {
        (self.to - self.from).next_multiple_of(self.group.multiple)
    }

    /// The tiles that any query attends to.
    #[inline(always)]
    pub fn tiles(&self) -> std::ops::Range<usize> {
        self.lowest / KEYS..(self.to - 1) / KEYS + 1
    }

    /// Columns of tile `tile` that the matmuls of row group `group` read, in whole groups.
    #[inline(always)]
    pub fn columns(&self, tile: usize, group: usize) -> (usize, usize) {
        let base = tile * KEYS;
        let last = (self.from + (group + 1) * self.group.rows)
            .next_multiple_of(self.group.multiple)
            .saturating_sub(base)
            .min(KEYS);
        (self.lowest.saturating_sub(base).min(last), last)
    }

    /// Columns of the tile that row `r` attends to; none beyond the block's end.
    #[inline(always)]
    pub fn visible(&self, tile: usize, r: usize) -> (usize, usize) {
        let base = tile * KEYS;
        if self.from + r >= self.to {
            return (0, 0);
        }
        let last = (self.from + r + 1).saturating_sub(base).min(KEYS);
        (self.first[r].saturating_sub(base).min(last), last)
    }

    /// The columns of a tile's row that the matmuls read, in whole lines.
    #[inline(always)]
    pub fn lines(&self, tile: usize, r: usize) -> (usize, usize) {
        let (read, end) = self.columns(tile, r / self.group.rows);
        (read / LINE * LINE, end.next_multiple_of(LINE))
    }

    /// Matmul of all rows of `left` (rows, words) with the tile's keys: `scores` (rows, KEYS). Fully masked parts are left
    /// unchanged, except for the rest of a panel.
    ///
    /// # Safety
    /// As for [`Group::product`]: `left` holds rows() × words, `keys` all panels of the tile, `scores` QUERIES × KEYS.
    #[inline(always)]
    pub unsafe fn scores<V: Vector>(
        &self,
        tile: usize,
        left: *const f32,
        keys: *const f32,
        words: usize,
        scores: *mut f32,
    ) {
        let (all, each) = (self.rows(), self.group.rows);
        for panel in 0..KEYS / PANEL {
            for group in 0..all / each {
                let (first, last) = self.columns(tile, group);
                if panel * PANEL >= last || (panel + 1) * PANEL <= first {
                    continue;
                }
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let to = To {
                        start: scores.add(group * each * KEYS + panel * PANEL),
                        row_stride: KEYS,
                        add: false,
                    };
                    let left = Left {
                        start: left.add(group * each * words),
                        row_stride: words,
                        col_stride: 1,
                    };
                    let right = Right {
                        start: keys.add((tile * KEYS + panel * PANEL) * words),
                        row_stride: PANEL,
                    };
                    self.group
                        .product::<V>(to, left, right, PANEL / LINE, words);
                }
            }
        }
    }

    /// Soft cap and distance bias of head `h`'s scaled scores for the tile's keys, row by row.
    #[inline(always)]
    pub fn finish(&self, how: &Scores, h: usize, tile: usize, scores: &mut [f32]) {
        for r in 0..self.rows() {
            let (from, to) = self.lines(tile, r);
            let key = tile * KEYS + from;
            let distance = (self.from + r) as isize - key as isize;
            how.finish(h, distance, &mut scores[r * KEYS..][from..to]);
        }
    }

    /// `out` (rows, width) = (or +=) `weights` (rows, KEYS) · `values` (keys, width). `weights` and `values` are words, of
    /// the tile alone and of all keys.
    ///
    /// # Safety
    /// As for [`Group::product`].
    #[inline(always)]
    pub unsafe fn weigh<V: Vector>(
        &self,
        tile: usize,
        weights: *const f32,
        values: *const f32,
        (out, width): (*mut f32, usize),
        add: bool,
    ) {
        let each = self.group.rows;
        for group in 0..self.rows() / each {
            let (first, last) = self.columns(tile, group);
            let stride = KEYS / V::NUMBERS;
            // SAFETY: guaranteed by the caller; columns are whole groups, and so whole words.
            unsafe {
                let to = To {
                    start: out.add(group * each * width),
                    row_stride: width,
                    add,
                };
                let left = Left {
                    start: weights.add(group * each * stride + first / V::NUMBERS),
                    row_stride: stride,
                    col_stride: 1,
                };
                let right = Right {
                    start: values.add((tile * KEYS + first) / V::NUMBERS * width),
                    row_stride: width,
                };
                let k = (last - first) / V::NUMBERS;
                self.group.product::<V>(to, left, right, width / LINE, k);
            }
        }
    }
}
