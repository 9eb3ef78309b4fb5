//! Normalisation over the last dimension: LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019).

use super::math::{sum1, sum2};
use super::matmul::Into;
use super::simd::multiversion;
use super::{reduce, threads};
use candle_core::{D, Result, Tensor};

/// Which normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// (x − mean) / √(var + eps) · gain (+ bias), the variance without Bessel's correction.
    Layer,
    /// x / √(mean(x²) + eps) · gain.
    Rms,
}

/// `x` (…, D), `gain` (D), `bias` (D) → (…, D).
pub fn composite(
    kind: NormKind,
    x: &Tensor,
    gain: &Tensor,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let centred = match kind {
        NormKind::Layer => x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?,
        NormKind::Rms => x.clone(),
    };
    let scale = (centred.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?;
    let y = centred.broadcast_div(&scale)?.broadcast_mul(gain)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}

/// Operations per element, for deciding on threads.
const COST: usize = 6;

/// `x` (rows, D) → `y` (rows, D); `stats` (rows, 2) keeps mean and 1/√(var + eps) for the backward (mean 0 for RMSNorm).
pub fn forward(
    kind: NormKind,
    x: &[f32],
    gain: &[f32],
    bias: Option<&[f32]>,
    eps: f64,
    y: &mut [f32],
    stats: &mut [f32],
) {
    let d = gain.len();
    threads::rows2((y, d), (stats, 2), COST * d, |first, y, stats| {
        let x = &x[first * d..][..y.len()];
        forward_rows(kind, x, gain, bias, eps as f32, y, stats);
    });
}

multiversion! {
    fn forward_rows(
        kind: NormKind,
        x: &[f32],
        gain: &[f32],
        bias: Option<&[f32]>,
        eps: f32,
        y: &mut [f32],
        stats: &mut [f32],
    ) {
        let d = gain.len();
        let rows = x.chunks_exact(d).zip(y.chunks_exact_mut(d));
        for ((x, y), stats) in rows.zip(stats.chunks_exact_mut(2)) {
            let mean = match kind {
                NormKind::Layer => sum1(x, |x| x) / d as f32,
                NormKind::Rms => 0.0,
            };
            let variance = sum1(x, |x| (x - mean) * (x - mean)) / d as f32;
            let scale = 1.0 / (variance + eps).sqrt();
            stats[0] = mean;
            stats[1] = scale;
            for ((y, &x), &g) in y.iter_mut().zip(x).zip(gain) {
                *y = (x - mean) * scale * g;
            }
            if let Some(bias) = bias {
                for (y, &b) in y.iter_mut().zip(bias) {
                    *y += b;
                }
            }
        }
    }
}

/// What the forward saw.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a> {
    pub x: &'a [f32],
    pub stats: &'a [f32],
}

/// `dx` (rows, D) = (or +=) the gradient by the input, for `dy` (rows, D).
pub fn backward_input(
    kind: NormKind,
    saved: Saved,
    gain: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    into: Into,
) {
    let d = gain.len();
    threads::rows1(dx, d, 2 * COST * d, |first, dx| {
        let rows = dx.len() / d;
        let saved = Saved {
            x: &saved.x[first * d..][..dx.len()],
            stats: &saved.stats[first * 2..][..rows * 2],
        };
        backward_rows(kind, saved, gain, &dy[first * d..][..dx.len()], dx, into);
    });
}

multiversion! {
    fn backward_rows(
        kind: NormKind,
        saved: Saved<'_>,
        gain: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        into: Into,
    ) {
        let d = gain.len();
        let inputs = saved.x.chunks_exact(d).zip(saved.stats.chunks_exact(2));
        let rows = dy.chunks_exact(d).zip(dx.chunks_exact_mut(d));
        for ((x, stats), (dy, dx)) in inputs.zip(rows) {
            let (mean, scale) = (stats[0], stats[1]);
            // Gradient by the normalised features is dy · gain; take out its mean (LayerNorm) and its part along them.
            let along = {
                let mut lanes = [0.0_f32; 16];
                let blocks = x.chunks(16).zip(dy.chunks(16)).zip(gain.chunks(16));
                for ((x, dy), g) in blocks {
                    for (lane, ((&x, &dy), &g)) in lanes.iter_mut().zip(x.iter().zip(dy).zip(g)) {
                        *lane += dy * g * (x - mean);
                    }
                }
                sum1(&lanes, |x| x) * scale / d as f32
            };
            let level = match kind {
                NormKind::Layer => sum2(dy, gain, |dy, g| dy * g) / d as f32,
                NormKind::Rms => 0.0,
            };
            let keep = match into {
                Into::Overwrite => 0.0,
                Into::Accumulate => 1.0,
            };
            if into == Into::Overwrite {
                dx.fill(0.0);
            }
            for ((dx, &x), (&dy, &g)) in dx.iter_mut().zip(x).zip(dy.iter().zip(gain)) {
                let normalised = (x - mean) * scale;
                *dx = *dx * keep + scale * (dy * g - level - normalised * along);
            }
        }
    }
}

/// `dgain` (D) += Σ over rows of dy · normalised x.
pub fn backward_gain(saved: Saved, dy: &[f32], dgain: &mut [f32]) {
    let width = dgain.len();
    let rows = dy.len() / width;
    reduce::by_columns(dgain, rows, |column, dgain| {
        gain_columns(saved, dy, width, column, dgain);
    });
}

multiversion! {
    fn gain_columns(saved: Saved<'_>, dy: &[f32], width: usize, column: usize, dgain: &mut [f32]) {
        let n = dgain.len();
        let rows = saved.x.chunks_exact(width).zip(dy.chunks_exact(width));
        for ((x, dy), stats) in rows.zip(saved.stats.chunks_exact(2)) {
            let (mean, scale) = (stats[0], stats[1]);
            let (x, dy) = (&x[column..column + n], &dy[column..column + n]);
            for ((sum, &x), &dy) in dgain.iter_mut().zip(x).zip(dy) {
                *sum += dy * ((x - mean) * scale);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        for kind in [NormKind::Layer, NormKind::Rms] {
            for (rows, d) in [(1, 5), (3, 17), (50, 128), (129, 40)] {
                let x: Vec<f32> = normal(rows * d, 0).iter().map(|x| 2.0 * x + 0.5).collect();
                let (gain, bias) = (normal(d, 1), normal(d, 2));
                let dy = normal(rows * d, 3);
                let (lx, lg, lb) = (leaf(&x, &[rows, d]), leaf(&gain, &[d]), leaf(&bias, &[d]));
                let (exact, grads) = oracle(&[&lx, &lg, &lb], &dy, || {
                    composite(kind, &lx, &lg, Some(&lb), 1e-5)
                });
                let (mut y, mut stats) = (vec![9.0; rows * d], vec![0.0; rows * 2]);
                forward(kind, &x, &gain, Some(&bias), 1e-5, &mut y, &mut stats);
                assert_close("y", &y, &exact, 2e-6);
                let saved = Saved {
                    x: &x,
                    stats: &stats,
                };
                let mut dx = vec![f32::NAN; rows * d];
                backward_input(kind, saved, &gain, &dy, &mut dx, Into::Overwrite);
                assert_close("dx", &dx, &grads[0], 5e-6);
                backward_input(kind, saved, &gain, &dy, &mut dx, Into::Accumulate);
                let twice: Vec<f64> = grads[0].iter().map(|x| 2.0 * x).collect();
                assert_close("dx twice", &dx, &twice, 5e-6);
                let mut dgain = vec![0.0; d];
                backward_gain(saved, &dy, &mut dgain);
                assert_close("dgain", &dgain, &grads[1], 2e-6);
                let mut dbias = vec![0.0; d];
                reduce::add_column_sums(&mut dbias, &dy);
                assert_close("dbias", &dbias, &grads[2], 2e-6);
            }
        }
    }

    #[test]
    fn composites_agree_with_candle_nn() {
        let x = leaf(&normal(6 * 8, 0), &[6, 8]);
        let (gain, bias) = (leaf(&normal(8, 1), &[8]), leaf(&normal(8, 2), &[8]));
        let ours = composite(NormKind::Layer, &x, &gain, Some(&bias), 1e-5).unwrap();
        let theirs = candle_nn::ops::layer_norm_slow(&x, &gain, &bias, 1e-5).unwrap();
        let difference = |a: &Tensor, b: &Tensor| {
            let d = (a - b).unwrap().abs().unwrap().max_all().unwrap();
            d.to_dtype(candle_core::DType::F64)
                .unwrap()
                .to_scalar::<f64>()
                .unwrap()
        };
        assert!(difference(&ours, &theirs) < 1e-12);
        let ours = composite(NormKind::Rms, &x, &gain, None, 1e-5).unwrap();
        let theirs = candle_nn::ops::rms_norm_slow(&x, &gain, 1e-5).unwrap();
        assert!(difference(&ours, &theirs) < 1e-12);
    }
}
