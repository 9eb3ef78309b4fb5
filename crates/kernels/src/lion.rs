//! One Lion update over flat buffers (Chen et al. 2023, arXiv 2302.06675), with the clipping factor folded in and norms as
//! by-products.
#![allow(unsafe_code)]

use super::flat;
use super::lanes::{Vector, widest};
use super::threads;
use super::update::{self, Chunks, Elementwise, Part, Piece};
use candle_core::{Result, Tensor};

/// The hyperparameters of one update.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    /// Scale of every gradient (clipping).
    pub grad_scale: f64,
}

/// Flat f32 tensors: all weights; gradients and their running mean, each as long as the trainable set.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    pub weights: &'a Tensor,
    pub grads: &'a Tensor,
    pub mean: &'a Tensor,
}

/// Updates weights and means in place, in one pass that also computes the norms.
///
/// # Errors
/// State tensors that are not contiguous f32; on other devices candle's own.
pub fn update(rule: &Rule, state: &State, chunks: &mut Chunks) -> Result<()> {
    if !state.weights.device().is_cpu() {
        return composite(rule, state, chunks.parts());
    }
    flat::read(state.grads, |grads| {
        flat::write(state.weights, |weights| {
            flat::write(state.mean, |mean| {
                threads::enter(|| fused(rule, [weights, mean], grads, chunks));
            })
        })
    })??
}

/// `state` is weights and mean.
fn fused(rule: &Rule, [weights, mean]: [&mut [f32]; 2], grads: &[f32], chunks: &mut Chunks) {
    chunks.update(weights, grads, [mean], |part, piece| {
        let coefficients = Coefficients {
            keep: part.keep(rule.lr) as f32,
            lr: part.lr(rule.lr) as f32,
            grad_scale: rule.grad_scale as f32,
            beta1: rule.beta1 as f32,
            gain1: (1.0 - rule.beta1) as f32,
            beta2: rule.beta2 as f32,
            gain2: (1.0 - rule.beta2) as f32,
        };
        // SAFETY: a piece has as many weights and means as gradients.
        unsafe { apply(false, coefficients, piece) }
    });
}

/// Constants shared by all elements of a tensor; gains are 1 − beta.
#[derive(Clone, Copy)]
struct Coefficients {
    keep: f32,
    lr: f32,
    grad_scale: f32,
    beta1: f32,
    gain1: f32,
    beta2: f32,
    gain2: f32,
}

widest! {
    fn apply(pairs, rule: Coefficients, piece: Piece<1>) = apply_with
}

/// # Safety
/// As [`update::apply`].
#[inline(always)]
unsafe fn apply_with<V: Vector>(rule: Coefficients, piece: Piece<1>) {
    // SAFETY: guaranteed by the caller.
    unsafe { update::apply::<V, 1>(&rule, piece) }
}

impl Elementwise<1> for Coefficients {
    #[inline(always)]
    unsafe fn next<V: Vector>(&self, grad: V, weight: V, [mean]: [V; 1]) -> (V, [V; 1]) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let g = grad.times(V::all(self.grad_scale));
            let direction = mean
                .times(V::all(self.beta1))
                .plus(g.times(V::all(self.gain1)));
            let mean = mean
                .times(V::all(self.beta2))
                .plus(g.times(V::all(self.gain2)));
            let change = sign(direction).times(V::all(self.lr));
            (weight.times(V::all(self.keep)).minus(change), [mean])
        }
    }
}

/// −1, 0 or 1, and NaN for NaN. The smallest subnormal times two large factors is above 1.
#[inline(always)]
unsafe fn sign<V: Vector>(x: V) -> V {
    // SAFETY: the caller guarantees the instructions.
    unsafe {
        let large = V::all(f32::MAX);
        // `min` and `max` return their second operand if one is NaN.
        let x = V::all(1.0).min(V::all(-1.0).max(x.times(large)));
        V::all(1.0).min(V::all(-1.0).max(x.times(large)))
    }
}

/// The same in candle operations, for devices without the fused form.
fn composite(rule: &Rule, state: &State, parts: &[Part]) -> Result<()> {
    let g = (state.grads * rule.grad_scale)?;
    let direction = ((state.mean * rule.beta1)? + (&g * (1.0 - rule.beta1))?)?.sign()?;
    let mean = ((state.mean * rule.beta2)? + (g * (1.0 - rule.beta2))?)?;
    for part in parts {
        let old = state.weights.narrow(0, part.weights, part.len)?;
        let change = (direction.narrow(0, part.grads, part.len)? * part.lr(rule.lr))?;
        let new = ((old * part.keep(rule.lr))? - change)?;
        state.weights.slice_set(&new, 0, part.weights)?;
    }
    state.mean.slice_set(&mean, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn part(weights: usize, grads: usize, len: usize, weight_decay: f64) -> Part {
        Part {
            weights,
            grads,
            len,
            lr_scale: 1.0,
            weight_decay,
        }
    }

    #[test]
    fn signs_are_exact_for_zero_subnormal_and_non_finite_updates() {
        let grads = [
            0.0,
            -0.0,
            1e-45,
            -1e-45,
            3.0,
            -1e30,
            f32::INFINITY,
            f32::NAN,
        ];
        let (mut weights, mut mean) = (vec![0.0; 8], vec![0.0; 8]);
        let rule = Rule {
            lr: 1.0,
            beta1: 0.0,
            beta2: 0.5,
            grad_scale: 1.0,
        };
        let mut chunks = Chunks::new(vec![part(0, 0, 8, 0.0)]);
        fused(&rule, [&mut weights, &mut mean], &grads, &mut chunks);
        assert_eq!(weights[..7], [0.0, 0.0, -1.0, 1.0, -1.0, 1.0, -1.0]);
        assert!(weights[7].is_nan(), "{}", weights[7]);
    }

    #[test]
    fn fused_equals_composite_and_measures_each_tensor() {
        let tensor = |len: usize, f: &dyn Fn(usize) -> f32| {
            let values: Vec<f32> = (0..len).map(f).collect();
            Tensor::new(values, &Device::Cpu).unwrap()
        };
        let parts = vec![part(5, 0, 30_000, 0.5), part(40_000, 30_000, 17, 0.0)];
        let rule = Rule {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.99,
            grad_scale: 0.5,
        };
        let make = || {
            [
                tensor(50_000, &|i| (i as f32 * 0.37).sin()),
                tensor(30_017, &|i| (i as f32 * 0.11).cos()),
                tensor(30_017, &|i| (i as f32 * 0.05).sin() * 0.1),
            ]
        };
        let run = |fused: bool| {
            let [weights, grads, mean] = make();
            let state = State {
                weights: &weights,
                grads: &grads,
                mean: &mean,
            };
            let mut chunks = Chunks::new(parts.clone());
            match fused {
                true => super::update(&rule, &state, &mut chunks).unwrap(),
                false => composite(&rule, &state, &parts).unwrap(),
            }
            let values = [weights, mean].map(|t| t.to_vec1::<f32>().unwrap());
            (values, chunks)
        };
        let ((fused, chunks), (composite, _)) = (run(true), run(false));
        for (fused, composite) in fused.iter().zip(&composite) {
            for (i, (a, b)) in fused.iter().zip(composite).enumerate() {
                assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "{i}: {a} {b}");
            }
        }
        let [before, grads, _] = make().map(|t| t.to_vec1::<f32>().unwrap());
        update::assert_norms(&chunks, &grads, &before, &fused[0]);
    }
}
