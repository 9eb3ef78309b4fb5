//! Activation functions and their derivatives on vector registers.
#![allow(unsafe_code)]

use crate::lanes::Vector;
use crate::math::EXP_END;

/// A function of one variable.
pub trait Function: Copy {
    /// The function's value and derivative at `x`.
    ///
    /// # Safety
    /// The machine must have V's instructions.
    unsafe fn value_and_slope<V: Vector>(self, x: V) -> (V, V);

    /// In gated activations, the factor of its value that comes of `up`.
    ///
    /// # Safety
    /// The machine must have V's instructions.
    #[inline(always)]
    unsafe fn factor<V: Vector>(self, up: V) -> V {
        up
    }

    /// The gradient with respect to `up`, from that with respect to its factor.
    ///
    /// # Safety
    /// The machine must have V's instructions.
    #[inline(always)]
    unsafe fn factor_back<V: Vector>(self, _up: V, gradient: V) -> V {
        gradient
    }
}

/// x, or slope · x below 0.
#[derive(Clone, Copy)]
pub struct LeakyRelu(pub f32);

impl Function for LeakyRelu {
    #[inline(always)]
    unsafe fn value_and_slope<V: Vector>(self, x: V) -> (V, V) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (zero, below) = (V::zero(), V::all(self.0));
            let value = below.fused(zero.min(x), zero.max(x));
            // At 0 the derivative is that of the negative side.
            let more = V::all(1.0 - self.0).zero_below(x, f32::MIN_POSITIVE);
            (value, below.plus(more))
        }
    }
}

/// x · sigmoid(x).
#[derive(Clone, Copy)]
pub struct Silu;

impl Function for Silu {
    #[inline(always)]
    unsafe fn value_and_slope<V: Vector>(self, x: V) -> (V, V) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let s = sigmoid(x);
            let value = x.times(s);
            // s (1 + x (1 − s)) = s + (1 − s) · value
            (value, V::all(1.0).minus(s).fused(value, s))
        }
    }
}

/// x' · sigmoid(slope · x') of x' = min(x, limit), and as factor the other half within ±limit, plus 1.
#[derive(Clone, Copy)]
pub struct ClampedSilu {
    pub limit: f32,
    pub slope: f32,
}

impl Function for ClampedSilu {
    #[inline(always)]
    unsafe fn value_and_slope<V: Vector>(self, x: V) -> (V, V) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let within = V::all(self.limit).min(x);
            let s = sigmoid(within.times(V::all(self.slope)));
            let value = within.times(s);
            // s + slope · value (1 − s), and 0 above the limit.
            let bend = V::all(1.0).minus(s).times(V::all(self.slope));
            let slope = bend.fused(value, s);
            (value, slope.zero_below(x.times(V::all(-1.0)), -self.limit))
        }
    }

    #[inline(always)]
    unsafe fn factor<V: Vector>(self, up: V) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let within = V::all(self.limit).min(V::all(-self.limit).max(up));
            within.plus(V::all(1.0))
        }
    }

    #[inline(always)]
    unsafe fn factor_back<V: Vector>(self, up: V, gradient: V) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let kept = gradient.zero_below(up, -self.limit);
            kept.zero_below(up.times(V::all(-1.0)), -self.limit)
        }
    }
}

/// x Φ(x), with the normal distribution function.
#[derive(Clone, Copy)]
pub struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    unsafe fn value_and_slope<V: Vector>(self, x: V) -> (V, V) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (cdf, pdf) = normal_cdf_pdf(x);
            (x.times(cdf), x.fused(pdf, cdf))
        }
    }
}

/// 0.5 x (1 + tanh(√(2/π)(x + 0.044715 x³))).
#[derive(Clone, Copy)]
pub struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    unsafe fn value_and_slope<V: Vector>(self, x: V) -> (V, V) {
        /// 2 √(2/π): 0.5 (1 + tanh u) is the logistic function of 2 u.
        const SLOPE: f32 = 1.595_769;
        const CUBIC: f32 = SLOPE * 0.044_715;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let square = x.times(x);
            let s = sigmoid(x.times(square.fused(V::all(CUBIC), V::all(SLOPE))));
            let slope = square.fused(V::all(3.0 * CUBIC), V::all(SLOPE));
            let value = x.times(s);
            // s + x s (1 − s) · slope
            let bend = V::all(1.0).minus(s).times(slope);
            (value, value.fused(bend, s))
        }
    }
}

/// 1 / (1 + e^−x); 0 below −87.3, close to where it becomes subnormal. NaN is preserved.
#[inline(always)]
unsafe fn sigmoid<V: Vector>(x: V) -> V {
    // SAFETY: guaranteed by the caller.
    unsafe {
        // Clamped before the division, which would be slow for a subnormal quotient.
        let e = V::all(EXP_END).max(x).times(V::all(-1.0)).exp();
        let one = V::all(1.0);
        one.divide(one.plus(e)).zero_below(x, EXP_END)
    }
}

/// The standard normal distribution function Φ(x) and its density φ(x). Φ is within 1.2e-7 absolute, and 5e-7 relative in
/// the left tail.
#[inline(always)]
unsafe fn normal_cdf_pdf<V: Vector>(x: V) -> (V, V) {
    // Φ(−|x|) / e^(−x²/2) as a polynomial in t = 1 / (1 + 0.32 |x|), without the factor t, lowest power first: fitted for this
    // project, 4e-8 relative.
    const TAIL: [f32; 10] = [
        0.127_661_53,
        0.127_660_67,
        0.114_627_42,
        0.087_787_13,
        0.058_840_356,
        -0.009_860_295,
        0.066_079_95,
        -0.147_401_1,
        0.095_756_285,
        -0.021_151_972,
    ];
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (zero, one) = (V::zero(), V::all(1.0));
        let bell = x.times(x).times(V::all(-0.5)).exp();
        let size = zero.minus(x).max(x);
        let t = one.divide(size.fused(V::all(0.32), one));
        let mut p = V::all(TAIL[9]);
        for &c in TAIL[..9].iter().rev() {
            p = p.fused(t, V::all(c));
        }
        // Φ(−|x|). For x > 0 the result is 1 − tail, computed as tail + (1 − 2 tail).
        let tail = bell.times(t).times(p);
        let right = tail.fused(V::all(-2.0), one).zero_below(x, 0.0);
        (tail.plus(right), bell.times(V::all(0.398_942_3)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::Portable;
    use crate::math::exp;

    /// The first lane of `f` applied to x.
    fn lane(x: f32, f: impl Fn(Portable) -> (Portable, Portable)) -> (f32, f32) {
        let (mut first, mut second) = ([0.0; 8], [0.0; 8]);
        // SAFETY: portable registers of eight need no instructions.
        unsafe {
            let (a, b) = f(Portable::all(x));
            a.store(first.as_mut_ptr());
            b.store(second.as_mut_ptr());
        }
        (first[0], second[0])
    }

    fn sigmoid(x: f32) -> f32 {
        // SAFETY: the portable register type needs no special instructions.
        lane(x, |x| unsafe { (super::sigmoid(x), x) }).0
    }

    fn normal_cdf_pdf(x: f32) -> (f32, f32) {
        // SAFETY: as above.
        lane(x, |x| unsafe { super::normal_cdf_pdf(x) })
    }

    #[test]
    fn tails_are_never_subnormal() {
        for i in 0..2_000 {
            let x = i as f32 * 0.1;
            let (cdf, pdf) = normal_cdf_pdf(-15.0 - x);
            for y in [exp(-x), sigmoid(-x), cdf, pdf] {
                assert!(y == 0.0 || y.is_normal(), "{x}: {y:e}");
            }
            let exact = 1.0 / (1.0 + f64::from(x).exp());
            let error = (f64::from(sigmoid(-x)) - exact).abs();
            assert!(error <= 1e-6 * exact || x > 87.0, "{x}: {error:e}");
        }
        assert_eq!(
            [sigmoid(f32::NEG_INFINITY), sigmoid(f32::INFINITY)],
            [0.0, 1.0]
        );
        assert!(sigmoid(f32::NAN).is_nan());
    }

    /// Φ by Simpson's rule over the density, in f64.
    fn phi(x: f64) -> f64 {
        let density = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
        let (from, steps) = (-12.0, 4000);
        let h = (x - from) / f64::from(steps);
        let inner: f64 = (1..steps)
            .map(|i| density(from + h * f64::from(i)) * if i % 2 == 1 { 4.0 } else { 2.0 })
            .sum();
        (density(from) + inner + density(x)) * h / 3.0
    }

    #[test]
    fn normal_cdf_is_accurate_in_the_middle_and_in_the_tail() {
        for i in -90..=90 {
            let x = i as f32 * 0.1;
            let (cdf, pdf) = normal_cdf_pdf(x);
            let exact = phi(f64::from(x));
            let error = (f64::from(cdf) - exact).abs();
            assert!(error < 1.2e-7, "{x}: {error:e}");
            if x < 0.0 {
                // The argument x²/2 is rounded in f32 before the exponential: 3e-6 at x = −9.
                assert!(
                    error / exact < 5e-7 + f64::from(x * x) * 6e-8,
                    "{x}: {}",
                    error / exact
                );
            }
            let density = (-0.5 * f64::from(x).powi(2)).exp() / std::f64::consts::TAU.sqrt();
            assert!((f64::from(pdf) - density).abs() < 1e-7);
        }
        assert!(normal_cdf_pdf(f32::NAN).0.is_nan());
    }
}
