//! The softmax of one position's logits for a sampler: unnormalized weights, and the reported statistics.

use super::math::{exp, max};
use super::simd::multiversion;

/// Weights per partial sum: a draw first finds its block by these sums, then the element in it.
const BLOCK: usize = 1024;
const LANES: usize = 8;

/// The softmax of logits x whose maximum is t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Softmax {
    /// t
    pub top: f32,
    /// Σ exp(x − t)
    pub sum: f64,
    /// The mean of x − t under the softmax.
    pub mean: f64,
}

/// Whether all numbers are finite.
pub fn is_finite(logits: &[f32]) -> bool {
    let mut finite = true;
    check(logits, &mut finite);
    finite
}

multiversion! {
    fn check(logits: &[f32], finite: &mut bool) {
        // Without an early exit, so that it vectorizes.
        *finite = logits.iter().fold(true, |all, x| all & x.is_finite());
    }
}

/// Fills `weights` with exp(x − t).
pub fn softmax(logits: &[f32], weights: &mut Vec<f32>) -> Softmax {
    weights.resize(logits.len(), 0.0);
    let mut softmax = Softmax {
        top: f32::NEG_INFINITY,
        sum: 0.0,
        mean: 0.0,
    };
    weigh(logits, weights, &mut softmax);
    softmax
}

multiversion! {
    fn weigh(logits: &[f32], weights: &mut [f32], softmax: &mut Softmax) {
        let top = max(logits);
        let (mut sum, mut mean) = (0.0_f64, 0.0_f64);
        // Blocks in f32, their sums in f64.
        for (logits, weights) in logits.chunks(BLOCK).zip(weights.chunks_mut(BLOCK)) {
            let (mut block_sum, mut block_mean) = ([0.0_f32; LANES], [0.0_f32; LANES]);
            for (logits, weights) in logits.chunks(LANES).zip(weights.chunks_mut(LANES)) {
                for i in 0..logits.len().min(LANES) {
                    let weight = exp(logits[i] - top);
                    weights[i] = weight;
                    block_sum[i] += weight;
                    block_mean[i] += weight * (logits[i] - top);
                }
            }
            sum += block_sum.iter().map(|&x| f64::from(x)).sum::<f64>();
            mean += block_mean.iter().map(|&x| f64::from(x)).sum::<f64>();
        }
        *softmax = Softmax { top, sum, mean: mean / sum };
    }
}

/// The index at which a draw `uniform` in [0, 1) from unnormalized `weights` falls; `None` if rounding leaves a remainder.
pub fn sample(weights: &[f32], uniform: f64) -> Option<usize> {
    let mut sums = vec![0.0; weights.len().div_ceil(BLOCK)];
    block_sums(weights, &mut sums);
    let mut left = uniform * sums.iter().sum::<f64>();
    for (block, sum) in sums.iter().enumerate() {
        if left < *sum {
            let from = block * BLOCK;
            let within = weights[from..].iter().take(BLOCK).position(|weight| {
                left -= f64::from(*weight);
                left < 0.0
            });
            return within.map(|at| from + at);
        }
        left -= sum;
    }
    None
}

multiversion! {
    fn block_sums(weights: &[f32], sums: &mut [f64]) {
        for (block, sum) in weights.chunks(BLOCK).zip(sums) {
            let mut lanes = [0.0_f64; LANES];
            let (whole, rest) = block.as_chunks::<LANES>();
            for part in whole {
                for i in 0..LANES {
                    lanes[i] += f64::from(part[i]);
                }
            }
            for (lane, weight) in lanes.iter_mut().zip(rest) {
                *lane += f64::from(*weight);
            }
            *sum = lanes.iter().sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::normal;

    #[test]
    fn sums_and_means_are_those_in_f64() {
        for n in [1, 7, 1024, 5003] {
            let logits = normal(n, 0);
            let mut weights = Vec::new();
            let got = softmax(&logits, &mut weights);
            let top = logits.iter().copied().fold(f32::MIN, f32::max);
            let shifted = logits.iter().map(|x| f64::from(x - top));
            let exact: Vec<f64> = shifted.clone().map(f64::exp).collect();
            let sum: f64 = exact.iter().sum();
            let mean = shifted.zip(&exact).map(|(x, w)| x * w).sum::<f64>() / sum;
            assert_eq!(got.top, top);
            assert!((got.sum / sum - 1.0).abs() < 1e-6, "{got:?} {sum}");
            assert!((got.mean - mean).abs() < 1e-5, "{got:?} {mean}");
            for (weight, exact) in weights.iter().zip(exact) {
                assert!((f64::from(*weight) - exact).abs() < 1e-6);
            }
        }
    }

    /// Every draw falls where a linear scan over all weights puts it, at block boundaries too.
    #[test]
    fn a_draw_falls_where_the_cumulative_sum_says() {
        let mut weights = vec![0.0_f32; 3000];
        for at in [0, 5, 1023, 1024, 2047, 2999] {
            weights[at] = 1.0;
        }
        let places: Vec<_> = (0..6)
            .map(|i| sample(&weights, (f64::from(i) + 0.5) / 6.0))
            .collect();
        let exact = [0, 5, 1023, 1024, 2047, 2999].map(Some);
        assert_eq!(places, exact);
        assert_eq!(sample(&[], 0.3), None);
        assert_eq!(sample(&[0.0, 2.0, 0.0], 0.999_999), Some(1));
    }

    #[test]
    fn a_single_non_finite_logit_is_detected() {
        let mut logits = vec![1.0_f32; 100];
        assert!(is_finite(&logits));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            logits[97] = bad;
            assert!(!is_finite(&logits));
        }
    }
}
