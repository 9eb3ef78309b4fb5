//! Soft caps: x becomes c · tanh(x / c), which is close to x near 0 and bounded by ±c (Gemma Team 2024, Gemma 2, arXiv 2408.00118).

use super::math::tanh;
use super::simd::multiversion;
use candle_core::{Result, Tensor};

/// c · tanh(x / c) of every element.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(x: &Tensor, cap: f64) -> Result<Tensor> {
    (x * (1.0 / cap))?.tanh()? * cap
}

multiversion! {
    /// The same in place.
    pub fn apply(x: &mut [f32], cap: f32) {
        let share = 1.0 / cap;
        for x in x {
            *x = cap * tanh(*x * share);
        }
    }
}

/// The derivative at a capped value y: 1 − (y / c)².
#[inline(always)]
pub fn slope(y: f32, share: f32) -> f32 {
    let t = y * share;
    1.0 - t * t
}

multiversion! {
    /// Converts `gradients` with respect to capped values to gradients with respect to the values before the cap; `share` is 1 / c.
    pub fn uncap(gradients: &mut [f32], capped: &[f32], share: f32) {
        for (gradient, &y) in gradients.iter_mut().zip(capped) {
            *gradient *= slope(y, share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn values_and_slopes_agree_with_candle_in_f64() {
        let x: Vec<f32> = normal(300, 0).iter().map(|x| 20.0 * x).collect();
        let lx = leaf(&x, &[300]);
        let (exact, grads) = oracle(&[&lx], &[1.0; 300], || composite(&lx, 30.0));
        let mut y = x.clone();
        apply(&mut y, 30.0);
        assert_close("y", &y, &exact, 1e-6);
        let slopes: Vec<f32> = y.iter().map(|&y| slope(y, 1.0 / 30.0)).collect();
        assert_close("slopes", &slopes, &grads[0], 1e-6);
        assert!(y.iter().all(|y| y.abs() <= 30.0));
    }
}
