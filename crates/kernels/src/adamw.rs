//! One AdamW update over flat buffers (Loshchilov and Hutter 2019, in PyTorch's order of operations), with the clipping
//! factor folded in and per-tensor norms as by-products.
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
    pub eps: f64,
    /// Scale of every gradient (clipping).
    pub grad_scale: f64,
    /// Index of this update, from 1.
    pub step: u64,
}

/// Flat f32 tensors: all weights; gradients and moments, each as long as the trainable set.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    pub weights: &'a Tensor,
    pub grads: &'a Tensor,
    pub mean: &'a Tensor,
    pub square: &'a Tensor,
}

/// Updates weights and moments in place, in one pass that also computes the norms.
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
                flat::write(state.square, |square| {
                    threads::enter(|| fused(rule, [weights, mean, square], grads, chunks));
                })
            })
        })
    })???
}

/// `state` is weights, mean and square.
fn fused(rule: &Rule, state: [&mut [f32]; 3], grads: &[f32], chunks: &mut Chunks) {
    let [weights, mean, square] = state;
    let common = Coefficients::new(rule);
    chunks.update(weights, grads, [mean, square], |part, piece| {
        // SAFETY: a piece has as many weights and moments as gradients.
        unsafe { apply(false, common.of(rule, part), piece) }
    });
}

/// The same for a single tensor, without norms: weights, mean, square and gradients have equal lengths.
pub fn tensor(rule: &Rule, part: &Part, state: [&mut [f32]; 3], grads: &[f32]) {
    let fits = state.iter().all(|s| s.len() == grads.len());
    assert!(fits, "weights and moments of a tensor");
    let [weights, mean, square] = state;
    let piece = Piece {
        weights: weights.as_mut_ptr(),
        state: [mean.as_mut_ptr(), square.as_mut_ptr()],
        grads,
        squares: &mut [0.0; 3],
    };
    // SAFETY: lengths were checked.
    unsafe { apply(false, Coefficients::new(rule).of(rule, part), piece) }
}

/// Constants shared by all elements of a tensor.
#[derive(Clone, Copy)]
struct Coefficients {
    /// Factor of weight decay: 1 − lr · weight_decay.
    keep: f32,
    grad_scale: f32,
    /// 1 − beta1, beta2, 1 − beta2.
    mean_gain: f32,
    beta2: f32,
    square_gain: f32,
    /// lr / (1 − beta1^t).
    step_size: f32,
    /// 1 / √(1 − beta2^t), as a factor, because divisions and square roots dominate this pass.
    root_correction: f32,
    eps: f32,
}

impl Coefficients {
    fn new(rule: &Rule) -> Self {
        let correction = |beta: f64| 1.0 - beta.powf(rule.step as f64);
        Coefficients {
            keep: 1.0,
            grad_scale: rule.grad_scale as f32,
            mean_gain: (1.0 - rule.beta1) as f32,
            beta2: rule.beta2 as f32,
            square_gain: (1.0 - rule.beta2) as f32,
            step_size: (rule.lr / correction(rule.beta1)) as f32,
            root_correction: (1.0 / correction(rule.beta2).sqrt()) as f32,
            eps: rule.eps as f32,
        }
    }

    /// The coefficients of one tensor.
    fn of(self, rule: &Rule, part: &Part) -> Self {
        let correction = 1.0 - rule.beta1.powf(rule.step as f64);
        Coefficients {
            keep: part.keep(rule.lr) as f32,
            step_size: (part.lr(rule.lr) / correction) as f32,
            ..self
        }
    }
}

widest! {
    fn apply(pairs, rule: Coefficients, piece: Piece<2>) = apply_with
}

/// # Safety
/// As [`update::apply`].
#[inline(always)]
unsafe fn apply_with<V: Vector>(rule: Coefficients, piece: Piece<2>) {
    // SAFETY: guaranteed by the caller.
    unsafe { update::apply::<V, 2>(&rule, piece) }
}

impl Elementwise<2> for Coefficients {
    #[inline(always)]
    unsafe fn next<V: Vector>(&self, grad: V, weight: V, [mean, square]: [V; 2]) -> (V, [V; 2]) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let g = grad.times(V::all(self.grad_scale));
            let mean = mean.plus(g.minus(mean).times(V::all(self.mean_gain)));
            let kept = square.times(V::all(self.beta2));
            let square = kept.plus(g.times(g).times(V::all(self.square_gain)));
            let root = square.sqrt().times(V::all(self.root_correction));
            let denominator = root.plus(V::all(self.eps));
            let change = V::all(self.step_size).times(mean.divide(denominator));
            let weight = weight.times(V::all(self.keep)).minus(change);
            // Where gradients are 0, as in embedding rows of absent tokens, moments would decay until they are subnormal and
            // stay so: ten times slower, for updates too small to change any weight.
            (weight, [mean.flush_subnormal(), square.flush_subnormal()])
        }
    }
}

/// The same in candle operations, for devices without the fused form.
fn composite(rule: &Rule, state: &State, parts: &[Part]) -> Result<()> {
    let g = (state.grads * rule.grad_scale)?;
    let mean = (state.mean + ((&g - state.mean)? * (1.0 - rule.beta1))?)?;
    let square = ((state.square * rule.beta2)? + (g.sqr()? * (1.0 - rule.beta2))?)?;
    let correction = |beta: f64| 1.0 - beta.powf(rule.step as f64);
    let denominator = ((square.sqrt()? / correction(rule.beta2).sqrt())? + rule.eps)?;
    let direction = (mean.div(&denominator)? / correction(rule.beta1))?;
    for part in parts {
        let old = state.weights.narrow(0, part.weights, part.len)?;
        let change = (direction.narrow(0, part.grads, part.len)? * part.lr(rule.lr))?;
        let new = ((old * part.keep(rule.lr))? - change)?;
        state.weights.slice_set(&new, 0, part.weights)?;
    }
    state.mean.slice_set(&mean, 0, 0)?;
    state.square.slice_set(&square, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    enum Form {
        Fused,
        Composite,
    }

    /// Tensors that end at these offsets, with their weight decay.
    fn parts(ends: &[(usize, f64)]) -> Vec<Part> {
        let mut from = 0;
        let part = |&(end, weight_decay): &(usize, f64)| {
            let part = Part {
                weights: from,
                grads: from,
                len: end - from,
                lr_scale: 1.0,
                weight_decay,
            };
            from = end;
            part
        };
        ends.iter().map(part).collect()
    }

    fn tensor(f: impl Fn(usize) -> f32) -> Tensor {
        let values: Vec<f32> = (0..180_000).map(f).collect();
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    #[test]
    fn fused_equals_composite_across_tensors_and_measures_each() {
        let make = || {
            (
                tensor(|i| (i as f32 * 0.37).sin()),
                tensor(|i| (i as f32 * 0.11).cos()),
                tensor(|i| (i as f32 * 0.05).sin() * 0.1),
                tensor(|i| (i as f32 * 0.03).sin().abs() * 0.01),
            )
        };
        let rule = Rule {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            grad_scale: 0.5,
            step: 3,
        };
        let parts = parts(&[(10, 0.1), (17_000, 0.0), (17_001, 0.1), (180_000, 0.0)]);
        let mut chunks = Chunks::new(parts.clone());
        let results = [Form::Fused, Form::Composite].map(|form| {
            let (weights, grads, mean, square) = make();
            let state = State {
                weights: &weights,
                grads: &grads,
                mean: &mean,
                square: &square,
            };
            match form {
                Form::Fused => super::update(&rule, &state, &mut chunks).unwrap(),
                Form::Composite => composite(&rule, &state, &parts).unwrap(),
            }
            [weights, mean, square].map(|t| t.to_vec1::<f32>().unwrap())
        });
        let (before, grads, _, _) = make();
        let (before, grads) = (
            before.to_vec1::<f32>().unwrap(),
            grads.to_vec1::<f32>().unwrap(),
        );
        update::assert_norms(&chunks, &grads, &before, &results[0][0]);
        for (fused, composite) in results[0].iter().zip(&results[1]) {
            for (i, (a, b)) in fused.iter().zip(composite).enumerate() {
                assert!((a - b).abs() <= 2e-6 * (1.0 + b.abs()), "{i}: {a} {b}");
            }
        }
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let parts = parts(&[(123, 0.1), (200_000, 0.0)]);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.unwrap().install(|| {
                let values: Vec<f32> = (0..200_000).map(|i| (i as f32 * 0.1).sin()).collect();
                let (mut w, mut m, mut v) =
                    (values.clone(), vec![0.0; 200_000], vec![0.0; 200_000]);
                let mut chunks = Chunks::new(parts.clone());
                let rule = Rule {
                    lr: 0.01,
                    beta1: 0.9,
                    beta2: 0.99,
                    eps: 1e-8,
                    grad_scale: 0.5,
                    step: 1,
                };
                fused(&rule, [&mut w, &mut m, &mut v], &values, &mut chunks);
                (w, chunks.norms().to_vec())
            })
        };
        let one = run(1);
        assert!(one == run(2) && one == run(3));
    }

    #[test]
    fn moments_of_zero_gradients_decay_to_0() {
        let least = f32::MIN_POSITIVE;
        let (mut w, mut m, mut v) = (vec![1.0; 40], vec![-1.05 * least; 40], vec![least; 40]);
        (m[7], v[7]) = (-3.0 * least, 3.0 * least);
        let mut chunks = Chunks::new(parts(&[(40, 0.0)]));
        let rule = Rule {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            grad_scale: 1.0,
            step: 9,
        };
        fused(&rule, [&mut w, &mut m, &mut v], &[0.0; 40], &mut chunks);
        for i in 0..40 {
            let is_kept = i == 7;
            assert_eq!([m[i] == 0.0, v[i] == 0.0], [!is_kept; 2], "{i}");
        }
        assert!(m[7] <= -2.0 * least && v[7] >= 2.0 * least);
        assert_eq!(w, [1.0; 40]);
    }

    #[test]
    fn tiny_gradients_stay_finite_with_the_smallest_eps_that_a_spec_may_have() {
        // Their squares are subnormal in f32, and count as 0.
        let grads: Vec<f32> = (0..40).map(|i| 10f32.powi(-16 - i / 4)).collect();
        let (mut w, mut m, mut v) = (vec![1.0; 40], vec![0.0; 40], vec![0.0; 40]);
        let mut chunks = Chunks::new(parts(&[(40, 0.0)]));
        for step in 1..=20 {
            let rule = Rule {
                lr: 1e-3,
                beta1: 0.9,
                beta2: 0.999,
                eps: 1e-20,
                grad_scale: 1.0,
                step,
            };
            fused(&rule, [&mut w, &mut m, &mut v], &grads, &mut chunks);
        }
        assert!(w.iter().all(|w| w.is_finite()), "{w:?}");
    }

    #[test]
    fn the_first_update_without_decay_moves_every_weight_by_lr() {
        let ones = vec![1.0; 1000];
        let (mut w, mut m, mut v) = (ones.clone(), vec![0.0; 1000], vec![0.0; 1000]);
        let mut chunks = Chunks::new(parts(&[(1000, 0.0)]));
        let rule = Rule {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            grad_scale: 1.0,
            step: 1,
        };
        fused(&rule, [&mut w, &mut m, &mut v], &ones, &mut chunks);
        assert!((chunks.norms()[0].update_ratio().unwrap() - 0.01).abs() < 1e-6);
    }
}
