//! Elementary functions that the compiler can vectorize, and sums over sixteen lanes. NaN stays NaN.

/// Where e^x leaves the flush_subnormal numbers.
pub const EXP_END: f32 = -87.3;

/// x, or 0 of the same sign if x is subnormal: below 1.2e-38. Processors take a hundred times as long for a subnormal operand or
/// result as for any other.
#[inline(always)]
pub fn flush_subnormal(x: f32) -> f32 {
    let bits = x.to_bits();
    let is_subnormal = bits & f32::INFINITY.to_bits() == 0;
    f32::from_bits(if is_subnormal { bits & SIGN } else { bits })
}

/// The sign bit of a float.
const SIGN: u32 = 1 << 31;

/// e^x to 2 ulp (2.5e-7 relative) for −87.3 ≤ x ≤ 88.7; 0 below, close to where it becomes subnormal, and clamped above.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to the nearest integer
    // Comparisons, because min and max would drop NaN.
    let is_over = x < EXP_END;
    let x = if is_over { EXP_END } else { x };
    let x = if x > 88.7 { 88.7 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts (Cody and Waite 1980): the first multiplication is exact.
    let r = x - n * 0.693_359_4;
    let r = r + n * 2.121_944_4e-4;
    // Minimax on |r| ≤ ln 2 / 2, fitted for this project: 4e-9 relative.
    let tail =
        0.5 + r * (0.166_665_16 + r * (0.041_666_264 + r * (0.008_369_152 + r * 0.001_394_644_7)));
    let power = 1.0 + (r + r * r * tail);
    // 2^n in two factors, so that n = 128 does not overflow the exponent.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    let rest = n.wrapping_sub(half);
    let power = power * exp2i(half) * exp2i(rest);
    if is_over { 0.0 } else { power }
}

/// 2^n for |n| ≤ 126.
#[inline(always)]
fn exp2i(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// ln x of a positive number, to 2 ulp away from 1 and to 1e-7 of |x − 1| near it; numbers below 1.2e-38, 0 and negative ones too, count
/// as that.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    // A comparison, because max would drop NaN.
    let x = if x < f32::MIN_POSITIVE {
        f32::MIN_POSITIVE
    } else {
        x
    };
    // x = 2^n · (1 + f) with 1 + f from √½ to √2.
    const LOWEST: i32 = 0x3f35_04f3; // the bits of √½
    let bits = x.to_bits() as i32;
    let n = bits.wrapping_sub(LOWEST) >> 23;
    let f = f32::from_bits(bits.wrapping_sub(n << 23) as u32) - 1.0;
    // ln(1 + f) = 2 artanh(s), whose series in s² ends below 2e-9 of it.
    let s = f / (2.0 + f);
    let z = s * s;
    let rest = z * (1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0))));
    let n = n as f32;
    // ln 2 in two parts, as in `exp`.
    let mantissa = 2.0 * s + (2.0 * s * rest - n * 2.121_944_4e-4);
    let found = n * 0.693_359_4 + mantissa;
    if x.is_nan() { x } else { found }
}

/// tanh(x) to 2e-7 relative.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let size = x.abs();
    // Exponentials far from 0, a polynomial in x² (fitted for this project) near it, where a difference would cancel. From 10 on
    // it is 1, and a larger exponential would make the quotient subnormal, which is slow. A comparison preserves NaN.
    let end = if size > 20.0 { 20.0 } else { size };
    let far = 1.0 - 2.0 / (exp(2.0 * end) + 1.0);
    let far = if x < 0.0 { -far } else { far };
    let s = x * x;
    let p = 0.020_469_379 + s * -0.005_515_125;
    let p = -0.053_688_01 + s * p;
    let p = 0.133_308_3 + s * p;
    let p = -0.333_332_6 + s * p;
    let near = x + x * s * p;
    if size < 0.65 { near } else { far }
}

/// 1 / (1 + e^−x).
pub fn sigmoid(x: f32) -> f32 {
    if x < EXP_END {
        0.0
    } else {
        1.0 / (1.0 + exp(-x))
    }
}

/// ln(1 + e^x). It calls libm.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { exp(x).ln_1p() }
}

/// Σ f(a, b) over two slices of one length, in sixteen lanes whatever the machine.
#[inline(always)]
pub fn sum2(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; 16];
    let (a_blocks, a_rest) = a.as_chunks::<16>();
    let (b_blocks, b_rest) = b.as_chunks::<16>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for i in 0..16 {
            lanes[i] += f(a[i], b[i]);
        }
    }
    for (i, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[i] += f(a, b);
    }
    fold_lanes(lanes)
}

/// Both sums of Σ f(a, b) over two slices of one length, in sixteen lanes each.
#[inline(always)]
pub fn sums2(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> [f32; 2]) -> [f32; 2] {
    let mut lanes = [[0.0_f32; 16]; 2];
    let (a_blocks, a_rest) = a.as_chunks::<16>();
    let (b_blocks, b_rest) = b.as_chunks::<16>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for i in 0..16 {
            let both = f(a[i], b[i]);
            lanes[0][i] += both[0];
            lanes[1][i] += both[1];
        }
    }
    for (i, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        let both = f(a, b);
        lanes[0][i] += both[0];
        lanes[1][i] += both[1];
    }
    lanes.map(fold_lanes)
}

/// Σ f(a) over a slice, in sixteen lanes.
#[inline(always)]
pub fn sum1(a: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    sum2(a, a, |a, _| f(a))
}

/// The largest element; −∞ if empty. NaN is skipped.
#[inline(always)]
pub fn max(a: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (blocks, rest) = a.as_chunks::<16>();
    for block in blocks {
        for i in 0..16 {
            lanes[i] = if block[i] > lanes[i] {
                block[i]
            } else {
                lanes[i]
            };
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = if x > *lane { x } else { *lane };
    }
    // By halving: one by one would be a dependency chain of sixteen.
    let mut width = 8;
    while width > 0 {
        for i in 0..width {
            let other = lanes[i + width];
            lanes[i] = if other > lanes[i] { other } else { lanes[i] };
        }
        width /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn fold_lanes(lanes: [f32; 16]) -> f32 {
    let mut width = 8;
    let mut lanes = lanes;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tanh_is_close_everywhere_and_keeps_nan() {
        for i in -40_000..=40_000 {
            let x = i as f32 * 5e-4;
            let exact = f64::from(x).tanh();
            let error = (f64::from(tanh(x)) - exact).abs();
            assert!(error <= 2.5e-7 * exact.abs(), "{x}: {error:e}");
        }
        assert!(tanh(f32::NAN).is_nan());
        assert_eq!([tanh(200.0), tanh(-200.0)], [1.0, -1.0]);
    }

    #[test]
    fn exp_is_within_two_ulp_and_keeps_nan() {
        let mut worst = 0.0_f64;
        for i in -87_000..88_000 {
            let x = i as f32 * 1e-3 + 1.3e-4;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) / exact - 1.0).abs());
        }
        assert!(worst < 2.5e-7, "{worst:e}");
        assert!(exp(f32::NAN).is_nan());
        assert_eq!([exp(f32::NEG_INFINITY), exp(EXP_END.next_down())], [0.0; 2]);
        assert!(exp(EXP_END) >= f32::MIN_POSITIVE);
        assert!(exp(200.0) > 1e38);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn ln_is_close_everywhere_and_keeps_nan() {
        for i in 0..400_000 {
            let x = exp(-87.0 + i as f32 * 4e-4);
            let exact = f64::from(x).ln();
            let error = (f64::from(ln(x)) - exact).abs();
            assert!(error <= 2e-7 * exact.abs(), "{x:e}: {error:e}");
        }
        for i in -1000..1000 {
            let x = 1.0 + i as f32 * 2e-5;
            let exact = f64::from(x).ln();
            let error = (f64::from(ln(x)) - exact).abs();
            assert!(error <= 2e-7 * exact.abs(), "{x}: {error:e}");
        }
        assert!(ln(f32::NAN).is_nan());
        assert_eq!(ln(1.0), 0.0);
        assert_eq!([ln(0.0), ln(-1.0)], [ln(f32::MIN_POSITIVE); 2]);
    }

    #[test]
    fn sums_count_every_element_once() {
        for n in [0, 1, 15, 16, 17, 33, 100] {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let exact: f32 = a.iter().map(|x| 2.0 * x).sum();
            assert_eq!(sum2(&a, &a, |a, b| a + b), exact);
            assert_eq!(sum1(&a, |a| 2.0 * a), exact);
            assert_eq!(sums2(&a, &a, |a, b| [a + b, a]), [exact, exact / 2.0]);
            let top = if n == 0 {
                f32::NEG_INFINITY
            } else {
                n as f32 - 1.0
            };
            assert_eq!(max(&a), top);
        }
    }
}
