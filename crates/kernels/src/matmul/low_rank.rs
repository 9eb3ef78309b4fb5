//! Fuses an adapter's low-rank term into the epilogue of a matmul: a separate pass over the destination would read and write it
//! once more, which takes longer than the low-rank matmul itself.

use crate::dropout::Kept;
use crate::simd::multiversion;
use crate::threads;
use std::ops::Range;

/// Columns that share one range of ranks.
pub const GROUP: usize = 16;

/// `scale` · `z` (rows, ranks) · `factor` (ranks, cols), with dropout if there is a mask.
#[derive(Debug, Clone, Copy)]
pub struct LowRank<'a> {
    pub z: &'a [f32],
    /// Row length of z.
    pub ranks: usize,
    pub factor: &'a [f32],
    /// For each [`GROUP`] of columns, the ranks (from, to) outside which the factor is 0 there, as with several adapters side by
    /// side. Empty: all ranks count everywhere.
    pub used: &'a [(u16, u16)],
    pub kept: Option<Kept<'a>>,
    pub scale: f32,
}

impl LowRank<'_> {
    /// # Panics
    /// Sizes other than those of a destination (rows, cols).
    pub fn check(&self, rows: usize, cols: usize) {
        assert_eq!(self.z.len(), rows * self.ranks, "rows of low rank");
        assert_eq!(self.factor.len(), self.ranks * cols, "a factor");
        let groups = [0, cols.div_ceil(GROUP)];
        assert!(groups.contains(&self.used.len()), "its groups");
        if let Some(kept) = self.kept {
            assert!(
                kept.words * 32 >= cols && kept.mask.len() == rows * kept.words,
                "a mask"
            );
        }
    }

    /// The term of element (row, col).
    #[inline]
    pub(super) fn one(&self, row: usize, col: usize) -> f32 {
        let cols = self.factor.len() / self.ranks.max(1);
        let terms = self
            .ranks_of(col, 1)
            .map(|r| self.z[row * self.ranks + r] * self.factor[r * cols + col]);
        let is_kept = self.kept.is_none_or(|kept| kept.bits(row, col) & 1 == 1);
        if is_kept {
            self.whole_scale() * terms.sum::<f32>()
        } else {
            0.0
        }
    }

    /// The ranks that contribute to `n` columns from `col` on.
    #[inline(always)]
    pub(super) fn ranks_of(&self, col: usize, n: usize) -> Range<usize> {
        let groups = col / GROUP..(col + n).div_ceil(GROUP);
        let Some(used) = self.used.get(groups) else {
            return 0..self.ranks;
        };
        let mut ranks = (u16::MAX, 0);
        for &(from, to) in used {
            ranks = (ranks.0.min(from), ranks.1.max(to));
        }
        usize::from(ranks.0)..usize::from(ranks.1)
    }

    /// The scale, including that of dropout.
    #[inline(always)]
    pub(super) fn whole_scale(&self) -> f32 {
        self.scale * self.kept.map_or(1.0, |kept| kept.scale)
    }

    /// Adds the term to `y` (rows, cols).
    pub fn add_to(&self, y: &mut [f32], cols: usize) {
        threads::rows1(y, cols, 2 * self.ranks * cols, |first, y| {
            for (i, y) in y.chunks_exact_mut(cols).enumerate() {
                add_row(self, first + i, y);
            }
        });
    }
}

multiversion! {
    fn add_row(of: &LowRank<'_>, row: usize, y: &mut [f32]) {
        let (cols, scale) = (y.len(), of.whole_scale());
        let z = &of.z[row * of.ranks..][..of.ranks];
        for (group, y) in y.chunks_mut(GROUP).enumerate() {
            let mut sums = [0.0; GROUP];
            for r in of.ranks_of(group * GROUP, y.len()) {
                let factor = &of.factor[r * cols + group * GROUP..][..y.len()];
                for (sum, f) in sums.iter_mut().zip(factor) {
                    *sum += z[r] * f;
                }
            }
            let bits = of.kept.map_or(u32::MAX, |kept| kept.bits(row, group * GROUP));
            for (i, (y, sum)) in y.iter_mut().zip(sums).enumerate() {
                *y += if bits >> i & 1 == 1 { scale * sum } else { 0.0 };
            }
        }
    }
}
