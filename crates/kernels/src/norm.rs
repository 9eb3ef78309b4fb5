//! Normalization over the last dimension: LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019).
#![allow(unsafe_code)]

use super::fetch::{self, RUN};
use super::lanes::{Lanes, Vector, widest};
use super::math::sum1;
use super::matmul::Accumulation;
use super::numbers::{Number, ValuesMut};
use super::simd::multiversion;
use super::threads::Shared;
use super::{reduce, threads};
use candle_core::{D, Result, Tensor};

/// The kind of normalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// (x − mean) / √(var + eps) · gain (+ bias), the variance without Bessel's correction.
    Layer,
    /// x / √(mean(x²) + eps) · gain.
    Rms,
}

/// `x` (…, D), `gain` (D), `bias` (D) → (…, D).
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
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

/// Operations per element, for choosing the thread count.
const COST: usize = 6;

/// A fused norm: its kind and its parameters, (D) each.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    pub kind: NormKind,
    pub gain: &'a [f32],
    /// Added to a stored gain before use: 0, or 1 where gains are stored as their distance from 1.
    pub gain_offset: f32,
    pub bias: Option<&'a [f32]>,
    /// Added to the variance or mean square.
    pub eps: f32,
}

/// `x` (rows, D) → `y` (rows, D); `stats` (rows, 2) keeps mean and 1/√(var + eps) for the backward (mean 0 for RMSNorm).
pub fn forward(norm: Norm, x: &[f32], y: ValuesMut, stats: &mut [f32]) {
    match y {
        ValuesMut::F32(y) => forward_of(norm, x, y, stats),
        ValuesMut::Bf16(y) => forward_of(norm, x, y, stats),
    }
}

fn forward_of<N: Number>(norm: Norm, x: &[f32], y: &mut [N], stats: &mut [f32]) {
    let d = norm.gain.len();
    threads::rows2((y, d), (stats, 2), COST * d, |first, y, stats| {
        let x = &x[first * d..][..y.len()];
        forward_rows(norm, x, y, stats);
    });
}

multiversion! {
    fn forward_rows<N: Number>(norm: Norm<'_>, x: &[f32], y: &mut [N], stats: &mut [f32]) {
        let (kind, gain, offset) = (norm.kind, norm.gain, norm.gain_offset);
        let d = gain.len();
        let mut run = [0.0; RUN];
        let rows = x.chunks_exact(d).zip(y.chunks_exact_mut(d));
        for ((x, y), stats) in rows.zip(stats.chunks_exact_mut(2)) {
            fetch::ahead(x);
            fetch::ahead_mut(y);
            let mean = match kind {
                NormKind::Layer => sum1(x, |x| x) / d as f32,
                NormKind::Rms => 0.0,
            };
            let variance = sum1(x, |x| (x - mean) * (x - mean)) / d as f32;
            let scale = 1.0 / (variance + norm.eps).sqrt();
            stats[0] = mean;
            stats[1] = scale;
            let runs = y.chunks_mut(RUN).zip(x.chunks(RUN)).zip(gain.chunks(RUN));
            for (at, ((y, x), gain)) in runs.enumerate() {
                let values = N::room(y, &mut run);
                for ((value, &x), &g) in values.iter_mut().zip(x).zip(gain) {
                    *value = (x - mean) * scale * (g + offset);
                }
                if let Some(bias) = norm.bias {
                    for (value, &b) in values.iter_mut().zip(&bias[at * RUN..]) {
                        *value += b;
                    }
                }
                N::put(&run, y);
            }
        }
    }
}

/// Inputs and statistics of the forward.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a> {
    pub x: &'a [f32],
    pub stats: &'a [f32],
}

/// Gradients with respect to the norm's parameters, each (D).
#[derive(Debug)]
pub struct ParamGradients<'a> {
    pub gain: &'a mut [f32],
    pub bias: Option<&'a mut [f32]>,
    pub into: Accumulation,
}

/// `dx` (rows, D) = (or +=) the gradient with respect to the input, for `dy` (rows, D), and in the same pass the gradients with
/// respect to gain and bias, unless they are frozen.
pub fn backward(
    norm: Norm,
    saved: Saved,
    dy: &[f32],
    (dx, into): (&mut [f32], Accumulation),
    params: Option<ParamGradients>,
) {
    let d = norm.gain.len();
    let rows = dy.len() / d;
    assert_eq!(saved.x.len(), rows * d, "norm input");
    assert_eq!(saved.stats.len(), rows * 2, "norm statistics");
    assert_eq!(dx.len(), rows * d, "norm gradient");
    let dx = Shared(dx.as_mut_ptr());
    let sums = |rows: std::ops::Range<usize>, sums: &mut [f32]| {
        let (from, len) = (rows.start * d, rows.len() * d);
        // SAFETY: each call owns its rows of dx, whose size was checked.
        let dx = unsafe { std::slice::from_raw_parts_mut(dx.at(from), len) };
        let task = Task {
            norm,
            saved: Saved {
                x: &saved.x[from..from + len],
                stats: &saved.stats[rows.start * 2..rows.end * 2],
            },
            dy: &dy[from..from + len],
            add: into == Accumulation::Add,
        };
        let (dgain, dbias) = sums.split_at_mut(d);
        // SAFETY: all slices have the rows' length, the sums have length d.
        unsafe { backward_rows(false, &task, dx, dgain, dbias) }
    };
    reduce::over_rows(rows, 2 * d, 3 * COST * d, sums, |sums| {
        let Some(params) = params else {
            return;
        };
        let (dgain, dbias) = sums.split_at(d);
        reduce::join(params.gain, dgain, params.into);
        if let Some(bias) = params.bias {
            reduce::join(bias, dbias, params.into);
        }
    });
}

/// Rows of one task.
struct Task<'a> {
    norm: Norm<'a>,
    saved: Saved<'a>,
    dy: &'a [f32],
    add: bool,
}

widest! {
    fn backward_rows(pairs, task: &Task<'_>, dx: &mut [f32], dgain: &mut [f32], dbias: &mut [f32]) = backward_with
}

#[inline(always)]
unsafe fn backward_with<V: Vector>(
    task: &Task<'_>,
    dx: &mut [f32],
    dgain: &mut [f32],
    dbias: &mut [f32],
) {
    let d = task.norm.gain.len();
    // SAFETY: the caller guarantees the instructions.
    let offset = unsafe { V::all(task.norm.gain_offset) };
    let rows = task.saved.x.chunks_exact(d).zip(task.dy.chunks_exact(d));
    let rows = rows.zip(task.saved.stats.chunks_exact(2));
    for (((x, dy), stats), dx) in rows.zip(dx.chunks_exact_mut(d)) {
        fetch::ahead(x);
        fetch::ahead(dy);
        fetch::ahead_mut(dx);
        let (x, dy, gain) = (x.as_ptr(), dy.as_ptr(), task.norm.gain.as_ptr());
        // SAFETY: every row is d long, and registers_of stays below d.
        unsafe {
            let (mean, scale) = (V::all(stats[0]), V::all(stats[1]));
            let (mut along, mut level) = (Lanes::<V>::all(0.0), Lanes::<V>::all(0.0));
            for at in (0..d).step_by(V::LANES) {
                let left = d - at;
                let x = V::load_first(x.add(at), left).minus(mean);
                let dy = V::load_first(dy.add(at), left);
                let dy = dy.times(V::load_first(gain.add(at), left).plus(offset));
                *along.at(at) = dy.fused(x, *along.at(at));
                *level.at(at) = level.at(at).plus(dy);
            }
            // The gradient with respect to the normalized features is dy · gain; its component along them is removed, and its mean
            // (LayerNorm).
            let along = V::all(along.total() * stats[1] / d as f32);
            let level = V::all(match task.norm.kind {
                NormKind::Layer => level.total() / d as f32,
                NormKind::Rms => 0.0,
            });
            for at in (0..d).step_by(V::LANES) {
                let left = d - at;
                let x = V::load_first(x.add(at), left).minus(mean).times(scale);
                let dy = V::load_first(dy.add(at), left);
                let sum = dy.fused(x, V::load_first(dgain.as_ptr().add(at), left));
                sum.store_first(dgain.as_mut_ptr().add(at), left);
                let sum = dy.plus(V::load_first(dbias.as_ptr().add(at), left));
                sum.store_first(dbias.as_mut_ptr().add(at), left);
                let gain = V::load_first(gain.add(at), left).plus(offset);
                let inner = dy.times(gain).minus(level).minus(x.times(along));
                let to = dx.as_mut_ptr().add(at);
                let result = if task.add {
                    inner.fused(scale, V::load_first(to, left))
                } else {
                    inner.times(scale)
                };
                result.store_first(to, left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        let kinds = [
            (NormKind::Layer, 0.0),
            (NormKind::Rms, 0.0),
            (NormKind::Rms, 1.0),
        ];
        for (kind, offset) in kinds {
            for (rows, d) in [(1, 5), (3, 17), (50, 128), (129, 40), (600, 24)] {
                let x: Vec<f32> = normal(rows * d, 0).iter().map(|x| 2.0 * x + 0.5).collect();
                let (gain, bias) = (normal(d, 1), normal(d, 2));
                let dy = normal(rows * d, 3);
                let (lx, lg, lb) = (leaf(&x, &[rows, d]), leaf(&gain, &[d]), leaf(&bias, &[d]));
                let (exact, grads) = oracle(&[&lx, &lg, &lb], &dy, || {
                    composite(kind, &lx, &lg, Some(&lb), 1e-5)
                });
                let (mut y, mut stats) = (vec![9.0; rows * d], vec![0.0; rows * 2]);
                let kept: Vec<f32> = gain.iter().map(|g| g - offset).collect();
                let norm = Norm {
                    kind,
                    gain: &kept,
                    gain_offset: offset,
                    bias: Some(&bias),
                    eps: 1e-5,
                };
                forward(norm, &x, ValuesMut::F32(&mut y), &mut stats);
                assert_close("y", &y, &exact, 2e-6);
                let saved = Saved {
                    x: &x,
                    stats: &stats,
                };
                let mut dx = vec![f32::NAN; rows * d];
                let (mut dgain, mut dbias) = (vec![f32::NAN; d], vec![f32::NAN; d]);
                for (times, into) in [(1.0, Accumulation::Overwrite), (2.0, Accumulation::Add)] {
                    let params = ParamGradients {
                        gain: &mut dgain,
                        bias: Some(&mut dbias),
                        into,
                    };
                    backward(norm, saved, &dy, (&mut dx, into), Some(params));
                    for (what, values, exact) in [
                        ("dx", &dx, &grads[0]),
                        ("dgain", &dgain, &grads[1]),
                        ("dbias", &dbias, &grads[2]),
                    ] {
                        let exact: Vec<f64> = exact.iter().map(|x| times * x).collect();
                        assert_close(what, values, &exact, 5e-6);
                    }
                }
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
