//! The activations of a quantized matmul: rows of f32, quantized to eight bits in blocks of 32.

use crate::matmul::Mat;
use crate::simd::multiversion;
use crate::threads;

/// Values per block.
pub const BLOCK: usize = 32;

/// Per-block data in addition to the codes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head {
    /// A value is about scale · code.
    pub scale: f32,
    /// scale · Σ codes: multiplied by a weight block's minimum.
    pub weighted: f32,
    /// Σ codes of each half, for the offset of the weights' codes.
    pub sums: [i32; 2],
}

/// Rows of codes −127..=127. Reused.
#[derive(Debug, Default)]
pub struct Activations {
    rows: usize,
    cols: usize,
    codes: Vec<i8>,
    heads: Vec<Head>,
}

/// FLOPs per value, for choosing the thread count.
const COST: usize = 4;

impl Activations {
    /// Quantizes the rows of `x`, whose width is a multiple of [`BLOCK`].
    pub fn fill(&mut self, x: Mat) {
        let (rows, cols) = (x.row_count(), x.cols());
        (self.rows, self.cols) = (rows, cols);
        let blocks = cols / BLOCK;
        self.codes.resize(rows * cols, 0);
        self.heads.resize(rows * blocks, Head::default());
        let codes = threads::SharedSlice::new(&mut self.codes);
        let heads = threads::SharedSlice::new(&mut self.heads);
        threads::tasks(rows, COST * cols, |row| {
            // SAFETY: each task has its own row.
            let (codes, heads) = unsafe {
                (
                    codes.range(row * cols..(row + 1) * cols),
                    heads.range(row * blocks..(row + 1) * blocks),
                )
            };
            round(x.row(row), codes, heads);
        });
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Codes and heads of the rows from `row` on.
    pub fn from(&self, row: usize) -> (&[i8], &[Head]) {
        let blocks = self.cols / BLOCK;
        (&self.codes[row * self.cols..], &self.heads[row * blocks..])
    }
}

multiversion! {
    /// One row. The value of largest magnitude in a block becomes ±127.
    fn round(x: &[f32], codes: &mut [i8], heads: &mut [Head]) {
        let blocks = x.as_chunks::<BLOCK>().0.iter().zip(codes.as_chunks_mut::<BLOCK>().0);
        for ((x, codes), head) in blocks.zip(heads) {
            let mut tops = [0.0_f32; 8];
            for x in x.as_chunks::<8>().0 {
                for (top, x) in tops.iter_mut().zip(x) {
                    *top = if x.abs() > *top { x.abs() } else { *top };
                }
            }
            let top = tops.iter().fold(0.0_f32, |a, &b| if b > a { b } else { a });
            let scale = top / 127.0;
            let inverse = if top > 0.0 { 127.0 / top } else { 0.0 };
            // Adding 1.5 · 2^23 rounds to an integer, ties to even, in the low bits.
            const ROUND: f32 = 12_582_912.0;
            let mut ints = [0_i32; BLOCK];
            for (int, x) in ints.iter_mut().zip(x) {
                *int = ((x * inverse + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
            }
            let mut sums = [0_i32; 2];
            for (sum, half) in sums.iter_mut().zip(ints.as_chunks::<16>().0) {
                *sum = half.iter().fold(0_i32, |a, &b| a.wrapping_add(b));
            }
            for (code, int) in codes.iter_mut().zip(&ints) {
                *code = *int as i8;
            }
            *head = Head {
                scale,
                weighted: scale * sums[0].wrapping_add(sums[1]) as f32,
                sums,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::normal;

    #[test]
    fn codes_represent_values_within_half_a_step() {
        let x = normal(3 * 64, 5);
        let mut activations = Activations::default();
        activations.fill(Mat::new(&x, 3, 64));
        assert_eq!(activations.rows(), 3);
        for row in 0..3 {
            let (codes, heads) = activations.from(row);
            for (i, &value) in x[row * 64..][..64].iter().enumerate() {
                let head = heads[i / BLOCK];
                let back = f32::from(codes[i]) * head.scale;
                assert!(
                    (value - back).abs() <= 0.5001 * head.scale,
                    "{value} {back}"
                );
            }
            let sum = |codes: &[i8]| codes.iter().map(|&c| i32::from(c)).sum::<i32>();
            assert_eq!(heads[1].sums, [sum(&codes[32..48]), sum(&codes[48..64])]);
            assert_eq!(
                heads[1].weighted,
                heads[1].scale * sum(&codes[32..64]) as f32
            );
            assert_eq!(
                codes[..32].iter().map(|c| c.unsigned_abs()).max(),
                Some(127)
            );
        }
    }

    #[test]
    fn rows_may_be_strided_and_zeros_stay_zeros() {
        let mut x = vec![9.0; 2 * 40];
        x[40..72].fill(0.0);
        let mut activations = Activations::default();
        activations.fill(Mat::strided(&x, 2, 32, 40));
        let (codes, heads) = activations.from(1);
        assert_eq!(codes, [0; 32]);
        assert_eq!((heads[0].scale, heads[0].weighted), (0.0, 0.0));
        assert_eq!(activations.from(0).0[..32], [127; 32]);
    }
}
