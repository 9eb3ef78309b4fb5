//! Dropout (Srivastava et al. 2014): features are zeroed with a given probability, the others scaled to preserve the mean.
//! The mask is a pure function of (seed, micro-step, site in the model, feature), so a recomputed pass, on any number
//! of threads or after a resume, uses the same one.

use super::simd::multiversion;
use super::threads;
use candle_core::{Result, Tensor};
use llmtui_base::rng::{Rng, Stream};

/// The dropout of one site in one pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    pub seed: u64,
    /// Counted over the whole run.
    pub micro_step: u64,
    /// The site in the model.
    pub lane: u32,
    /// Number of the first row: 0, or the number of rows before this part where rows are processed in parts.
    pub first_row: usize,
    /// Dropout probability, below 1.
    pub rate: f64,
}

/// FLOPs per element, for choosing the thread count: a Philox block of ten rounds yields four numbers.
const COST: usize = 20;
/// Factors drawn at once.
const AT_ONCE: usize = 128;
/// Features per word of a mask.
const WORD: usize = 32;

/// Which features of x are kept, one bit each as [`draw_mask`] writes them, and the scale of the kept ones.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a> {
    pub mask: &'a [f32],
    /// Words per row of the mask.
    pub words: usize,
    pub scale: f32,
}

impl Kept<'_> {
    /// Bits of the features from `column` on of a row; `column` is a whole number of registers.
    #[inline(always)]
    pub(crate) fn bits(&self, row: usize, column: usize) -> u32 {
        self.mask[row * self.words + column / 32].to_bits() >> (column % 32)
    }
}

impl Dropout {
    /// Random numbers below this drop.
    fn threshold(&self) -> u32 {
        (self.rate * 4_294_967_296.0) as u32
    }

    /// Scale of kept features.
    fn scale(&self) -> f32 {
        (1.0 / (1.0 - self.rate)) as f32
    }

    /// What kernels need to apply a drawn mask of rows of `width` features themselves.
    pub fn kept<'a>(&self, mask: &'a [f32], width: usize) -> Kept<'a> {
        Kept {
            mask,
            words: mask_words(width),
            scale: self.scale(),
        }
    }

    /// The generator at the start of row `row`.
    #[inline]
    fn at_row(&self, row: usize, width: usize) -> Rng {
        let mut rng = Rng::new(self.seed, Stream::Dropout, self.micro_step, self.lane);
        let row = self.first_row + row;
        rng.skip_normals((row * width.div_ceil(4)) as u32);
        rng
    }

    /// Calls `f(first feature, factors)` for the features of row `row`, a chunk at a time.
    #[inline]
    fn factors(&self, row: usize, width: usize, mut f: impl FnMut(usize, &[f32])) {
        let mut factors = [0.0; AT_ONCE];
        for first in (0..width).step_by(AT_ONCE) {
            let factors = &mut factors[..AT_ONCE.min(width - first)];
            let mut rng = self.at_row(row, width);
            // A normal takes one block, and a block yields four numbers.
            rng.skip_normals((first / 4) as u32);
            draw(rng, self.threshold(), self.scale(), factors);
            f(first, factors);
        }
    }

    /// Factors of `rows` rows, row-major: 0 or 1 / (1 − rate).
    pub fn mask(&self, rows: usize, width: usize) -> Vec<f32> {
        let mut mask = vec![0.0; rows * width];
        for (row, mask) in mask.chunks_exact_mut(width).enumerate() {
            self.factors(row, width, |first, factors| {
                mask[first..first + factors.len()].copy_from_slice(factors);
            });
        }
        mask
    }
}

/// `x` (…, D) with dropout.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(drop: &Dropout, x: &Tensor) -> Result<Tensor> {
    let width = x.dim(candle_core::D::Minus1)?;
    let mask = drop.mask(x.elem_count() / width, width);
    let mask = Tensor::from_vec(mask, x.shape(), &candle_core::Device::Cpu)?;
    x * mask.to_dtype(x.dtype())?.to_device(x.device())?
}

/// `dx` (rows, `width`) = the gradient of [`add`] with respect to its `x`, for `dy`.
pub fn add_backward(
    (drop, scale): (Option<&Dropout>, f32),
    width: usize,
    dy: &[f32],
    dx: &mut [f32],
) {
    match scale {
        1.0 => dx.copy_from_slice(dy),
        scale => threads::rows1(dx, width, width, |first, dx| {
            scaled(&dy[first * width..][..dx.len()], scale, dx);
        }),
    }
    if let Some(drop) = drop {
        apply(drop, width, dx);
    }
}

/// Applies dropout to `x` (rows, `width`) in place; it is its own backward.
pub fn apply(drop: &Dropout, width: usize, x: &mut [f32]) {
    threads::rows1(x, width, COST * width, |first, x| {
        for (i, row) in x.chunks_exact_mut(width).enumerate() {
            drop.factors(first + i, width, |at, factors| {
                for (x, factor) in row[at..].iter_mut().zip(factors) {
                    *x *= factor;
                }
            });
        }
    });
}

/// Words per row of a mask of `width` features.
pub fn mask_words(width: usize) -> usize {
    width.div_ceil(WORD)
}

/// The mask of `mask.len() / mask_words(width)` rows, one bit per feature, 1 where it is kept: drawn once, for passes that need
/// it again. The words are stored as the bits of f32 values; they are not numbers.
pub fn draw_mask(drop: &Dropout, width: usize, mask: &mut [f32]) {
    let words = mask_words(width);
    threads::rows1(mask, words, COST * width, |first, mask| {
        for (i, mask) in mask.chunks_exact_mut(words).enumerate() {
            draw_bits(drop.at_row(first + i, width), drop.threshold(), width, mask);
        }
    });
}

/// `y` (rows, `width`) = dropout(`x`) by its mask.
pub fn copy_masked(drop: &Dropout, width: usize, mask: &[f32], x: &[f32], y: &mut [f32]) {
    let words = mask_words(width);
    threads::rows1(y, width, width, |first, y| {
        let from = &x[first * width..][..y.len()];
        let masks = mask[first * words..].chunks_exact(words);
        let rows = from.chunks_exact(width).zip(masks);
        for (y, (x, mask)) in y.chunks_exact_mut(width).zip(rows) {
            copy_multiplied(mask, drop.scale(), x, y);
        }
    });
}

/// `y` (rows, `width`) += dropout(`x`) by its mask.
pub fn add_masked(drop: &Dropout, width: usize, mask: &[f32], x: &[f32], y: &mut [f32]) {
    let words = mask_words(width);
    threads::rows1(y, width, width, |first, y| {
        let from = &x[first * width..][..y.len()];
        let masks = mask[first * words..].chunks_exact(words);
        let rows = from.chunks_exact(width).zip(masks);
        for (y, (x, mask)) in y.chunks_exact_mut(width).zip(rows) {
            add_multiplied(mask, drop.scale(), x, y);
        }
    });
}

/// `y` (rows, `width`) = `residual` + `scale` · dropout(`x`).
pub fn add(
    (drop, scale): (Option<&Dropout>, f32),
    width: usize,
    x: &[f32],
    residual: &[f32],
    y: &mut [f32],
) {
    let cost = if drop.is_some() { COST } else { 1 };
    threads::rows1(y, width, cost * width, |first, y| {
        let part = first * width..first * width + y.len();
        let (x, residual) = (&x[part.clone()], &residual[part]);
        let Some(drop) = drop else {
            return match scale {
                1.0 => sum(x, residual, y),
                scale => sum_scaled(x, scale, residual, y),
            };
        };
        let rows = x.chunks_exact(width).zip(residual.chunks_exact(width));
        for (i, (y, (x, residual))) in y.chunks_exact_mut(width).zip(rows).enumerate() {
            drop.factors(first + i, width, |at, factors| {
                let inputs = x[at..].iter().zip(&residual[at..]);
                for ((y, factor), (x, residual)) in y[at..].iter_mut().zip(factors).zip(inputs) {
                    *y = residual + x * (factor * scale);
                }
            });
        }
    });
}

multiversion! {
    /// Fills `factors` with 0 where the generator's next number is below `threshold`, else with `scale`.
    fn draw(rng: Rng, threshold: u32, scale: f32, factors: &mut [f32]) {
        let mut rng = rng;
        let mut blocks = Blocks::default();
        for factors in factors.chunks_mut(AT_ONCE) {
            let words = blocks.fill(&mut rng, factors.len().div_ceil(4));
            for (j, words) in words.into_iter().enumerate() {
                for (factor, word) in factors.iter_mut().skip(j).step_by(4).zip(words) {
                    *factor = if *word >= threshold { scale } else { 0.0 };
                }
            }
        }
    }
}

multiversion! {
    /// The bits of a row of `width` features: 0 where the generator's next number is below `threshold`.
    fn draw_bits(rng: Rng, threshold: u32, width: usize, mask: &mut [f32]) {
        let mut rng = rng;
        let mut blocks = Blocks::default();
        let mut fours = [0u32; AT_ONCE / 4];
        for (at, mask) in (0..width).step_by(AT_ONCE).zip(mask.chunks_mut(AT_ONCE / WORD)) {
            let left = AT_ONCE.min(width - at);
            let fours = &mut fours[..left.div_ceil(4)];
            let [a, b, c, d] = blocks.fill(&mut rng, fours.len());
            let words = a.iter().zip(b).zip(c.iter().zip(d));
            for (bits, ((a, b), (c, d))) in fours.iter_mut().zip(words) {
                let bit = |word: &u32, place: u32| if *word >= threshold { place } else { 0 };
                *bits = bit(a, 1) | bit(b, 2) | bit(c, 4) | bit(d, 8);
            }
            // Features beyond the width count as dropped.
            let last = left - 4 * (fours.len() - 1);
            fours[left.div_ceil(4) - 1] &= (1 << last) - 1;
            for (word, fours) in mask.iter_mut().zip(fours.chunks(WORD / 4)) {
                let bits = fours.iter().rev().fold(0, |bits, four| bits << 4 | four);
                *word = f32::from_bits(bits);
            }
        }
    }
}

/// Random numbers: word j of block i is at `[j][i]`.
#[derive(Default)]
struct Blocks([[u32; AT_ONCE / 4]; 4]);

impl Blocks {
    /// The next `n` blocks.
    #[inline(always)]
    fn fill(&mut self, rng: &mut Rng, n: usize) -> [&[u32]; 4] {
        let [a, b, c, d] = &mut self.0;
        rng.next_blocks([&mut a[..n], &mut b[..n], &mut c[..n], &mut d[..n]]);
        [&a[..n], &b[..n], &c[..n], &d[..n]]
    }
}

/// `scale` where bit `i` is set, else 0.
#[inline(always)]
fn factor(bits: u32, i: usize, scale: u32) -> f32 {
    f32::from_bits(((bits >> i) & 1).wrapping_neg() & scale)
}

multiversion! {
    fn copy_multiplied(mask: &[f32], scale: f32, x: &[f32], y: &mut [f32]) {
        let scale = scale.to_bits();
        for ((y, x), word) in y.chunks_mut(WORD).zip(x.chunks(WORD)).zip(mask) {
            let bits = word.to_bits();
            for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
                *y = x * factor(bits, i, scale);
            }
        }
    }
}

multiversion! {
    fn add_multiplied(mask: &[f32], scale: f32, x: &[f32], y: &mut [f32]) {
        let scale = scale.to_bits();
        for ((y, x), word) in y.chunks_mut(WORD).zip(x.chunks(WORD)).zip(mask) {
            let bits = word.to_bits();
            for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
                *y += x * factor(bits, i, scale);
            }
        }
    }
}

multiversion! {
    fn sum(x: &[f32], residual: &[f32], y: &mut [f32]) {
        for ((y, &x), &residual) in y.iter_mut().zip(x).zip(residual) {
            *y = residual + x;
        }
    }
}

multiversion! {
    fn sum_scaled(x: &[f32], scale: f32, residual: &[f32], y: &mut [f32]) {
        for ((y, &x), &residual) in y.iter_mut().zip(x).zip(residual) {
            *y = residual + x * scale;
        }
    }
}

multiversion! {
    fn scaled(x: &[f32], scale: f32, y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x * scale;
        }
    }
}

/// A configuration for tests.
#[cfg(test)]
pub(super) const DROPOUT: Dropout = Dropout {
    seed: 5,
    micro_step: 3,
    lane: 7,
    first_row: 0,
    rate: 0.3,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn the_dropped_share_is_right_and_the_mean_is_preserved() {
        let mask = DROPOUT.mask(200, 130);
        let dropped = mask.iter().filter(|&&m| m == 0.0).count() as f64 / mask.len() as f64;
        assert!((dropped - 0.3).abs() < 0.01, "{dropped}");
        let mean = mask.iter().sum::<f32>() / mask.len() as f32;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn masks_use_the_generators_numbers_one_by_one() {
        for width in [1, 5, 64, 67, 256, 700] {
            let mask = DROPOUT.mask(3, width);
            for (row, mask) in mask.chunks_exact(width).enumerate() {
                let mut rng = Rng::new(5, Stream::Dropout, 3, 7);
                rng.skip_normals((row * width.div_ceil(4)) as u32);
                for (i, factor) in mask.iter().enumerate() {
                    let kept = rng.next_u32() >= DROPOUT.threshold();
                    let exact = if kept { DROPOUT.scale() } else { 0.0 };
                    assert_eq!(factor.to_bits(), exact.to_bits(), "{width}: row {row}, {i}");
                }
            }
        }
    }

    #[test]
    fn steps_sites_and_seeds_differ_and_each_is_reproducible() {
        let mask = DROPOUT.mask(4, 33);
        assert_eq!(mask, DROPOUT.mask(4, 33));
        let others = [
            Dropout { seed: 6, ..DROPOUT },
            Dropout {
                micro_step: 4,
                ..DROPOUT
            },
            Dropout { lane: 8, ..DROPOUT },
        ];
        for other in others {
            assert_ne!(mask, other.mask(4, 33), "{other:?}");
        }
        // The same row by row, on any thread.
        assert_eq!(mask[..66], DROPOUT.mask(2, 33));
        let behind = Dropout {
            first_row: 2,
            ..DROPOUT
        };
        assert_eq!(mask[66..], behind.mask(2, 33));
    }

    #[test]
    fn a_stored_mask_equals_drawing_again() {
        for (rows, width) in [(1, 1), (3, 31), (5, 32), (90, 67), (7, 300)] {
            let x = normal(rows * width, 0);
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let mut mask = vec![0.0; rows * mask_words(width)];
            draw_mask(&DROPOUT, width, &mut mask);
            let mut again = x.clone();
            apply(&DROPOUT, width, &mut again);
            let mut copied = vec![9.0; x.len()];
            copy_masked(&DROPOUT, width, &mask, &x, &mut copied);
            assert_eq!(bits(&copied), bits(&again), "{rows} x {width}");
            let mut sum = x.clone();
            add_masked(&DROPOUT, width, &mask, &x, &mut sum);
            let exact: Vec<f32> = x.iter().zip(&again).map(|(x, d)| x + d).collect();
            assert_eq!(bits(&sum), bits(&exact), "{rows} x {width}");
        }
    }

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        let (rows, width) = (90, 67);
        let (x, residual) = (normal(rows * width, 0), normal(rows * width, 1));
        let dy = normal(rows * width, 2);
        let (lx, lr) = (leaf(&x, &[rows, width]), leaf(&residual, &[rows, width]));
        let (exact, grads) = oracle(&[&lx, &lr], &dy, || {
            composite(&DROPOUT, &lx)? + lr.as_tensor()
        });
        let mut y = vec![9.0; x.len()];
        add((Some(&DROPOUT), 1.0), width, &x, &residual, &mut y);
        assert_close("y", &y, &exact, 1e-6);
        let mut dx = dy.clone();
        apply(&DROPOUT, width, &mut dx);
        assert_close("dx", &dx, &grads[0], 1e-6);
        add((None, 1.0), width, &x, &residual, &mut y);
        assert_eq!(y[5], x[5] + residual[5]);
    }

    #[test]
    fn what_is_added_is_scaled_and_so_is_its_gradient() {
        let (rows, width, scale) = (90, 67, 0.22_f32);
        let (x, residual) = (normal(rows * width, 0), normal(rows * width, 1));
        let dy = normal(rows * width, 2);
        for drop in [None, Some(&DROPOUT)] {
            let (lx, lr) = (leaf(&x, &[rows, width]), leaf(&residual, &[rows, width]));
            let (exact, grads) = oracle(&[&lx, &lr], &dy, || {
                let x = match drop {
                    Some(drop) => composite(drop, &lx)?,
                    None => lx.as_tensor().clone(),
                };
                (x * f64::from(scale))? + lr.as_tensor()
            });
            let mut y = vec![9.0; x.len()];
            add((drop, scale), width, &x, &residual, &mut y);
            assert_close("y", &y, &exact, 1e-6);
            let mut dx = vec![9.0; x.len()];
            add_backward((drop, scale), width, &dy, &mut dx);
            assert_close("dx", &dx, &grads[0], 1e-6);
        }
    }
}
