//! One AdamW update over flat buffers (Loshchilov and Hutter 2019, in PyTorch's order of operations), with the clipping
//! factor folded in.

use super::flat;
use super::simd::multiversion;
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// The numbers of one update.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    /// Every gradient is multiplied by this first.
    pub grad_scale: f64,
    /// Number of this update, from 1.
    pub step: u64,
}

/// Flat f32 tensors of one length.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    pub weights: &'a Tensor,
    pub grads: &'a Tensor,
    pub mean: &'a Tensor,
    pub square: &'a Tensor,
}

/// Elements that one task updates.
const CHUNK: usize = 1 << 14;

/// Updates weights and moments in place. `decay_runs` lists (end, decays) of neighbouring parameters.
pub fn update(rule: &Rule, state: &State, decay_runs: &[(usize, bool)]) -> Result<()> {
    if !state.weights.device().is_cpu() {
        return composite(rule, state, decay_runs);
    }
    flat::read(state.grads, |grads| {
        flat::write(state.weights, |weights| {
            flat::write(state.mean, |mean| {
                flat::write(state.square, |square| {
                    fused(rule, weights, grads, mean, square, decay_runs)
                })
            })
        })
    })???
}

fn fused(
    rule: &Rule,
    weights: &mut [f32],
    grads: &[f32],
    mean: &mut [f32],
    square: &mut [f32],
    decay_runs: &[(usize, bool)],
) {
    let coefficients = Coefficients::new(rule);
    weights
        .par_chunks_mut(CHUNK)
        .zip(grads.par_chunks(CHUNK))
        .zip(mean.par_chunks_mut(CHUNK))
        .zip(square.par_chunks_mut(CHUNK))
        .enumerate()
        .for_each(|(chunk, (((w, g), m), v))| {
            let start = chunk * CHUNK;
            let mut from = 0;
            let first = decay_runs.partition_point(|&(end, _)| end <= start);
            for &(end, decays) in &decay_runs[first..] {
                let to = (end - start).min(w.len());
                let keep = if decays { coefficients.keep } else { 1.0 };
                apply(
                    coefficients,
                    keep,
                    &mut w[from..to],
                    &g[from..to],
                    &mut m[from..to],
                    &mut v[from..to],
                );
                from = to;
                if from == w.len() {
                    break;
                }
            }
        });
}

/// What is the same for all elements.
#[derive(Clone, Copy)]
struct Coefficients {
    /// 1 − lr · weight_decay.
    keep: f32,
    grad_scale: f32,
    /// 1 − beta1, beta2, 1 − beta2.
    mean_gain: f32,
    beta2: f32,
    square_gain: f32,
    /// lr / (1 − beta1^t).
    step_size: f32,
    /// √(1 − beta2^t).
    root_correction: f32,
    eps: f32,
}

impl Coefficients {
    fn new(rule: &Rule) -> Self {
        let correction = |beta: f64| 1.0 - beta.powf(rule.step as f64);
        Coefficients {
            keep: (1.0 - rule.lr * rule.weight_decay) as f32,
            grad_scale: rule.grad_scale as f32,
            mean_gain: (1.0 - rule.beta1) as f32,
            beta2: rule.beta2 as f32,
            square_gain: (1.0 - rule.beta2) as f32,
            step_size: (rule.lr / correction(rule.beta1)) as f32,
            root_correction: correction(rule.beta2).sqrt() as f32,
            eps: rule.eps as f32,
        }
    }
}

multiversion! {
    fn apply(
        c: Coefficients,
        keep: f32,
        w: &mut [f32],
        g: &[f32],
        m: &mut [f32],
        v: &mut [f32],
    ) {
        for (((w, &g), m), v) in w.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * c.grad_scale;
            *m += (g - *m) * c.mean_gain;
            *v = *v * c.beta2 + g * g * c.square_gain;
            let denominator = v.sqrt() / c.root_correction + c.eps;
            *w = *w * keep - c.step_size * (*m / denominator);
        }
    }
}

/// The same in candle operations, for devices without the fused form.
fn composite(rule: &Rule, state: &State, decay_runs: &[(usize, bool)]) -> Result<()> {
    let g = (state.grads * rule.grad_scale)?;
    let mean = (state.mean + ((&g - state.mean)? * (1.0 - rule.beta1))?)?;
    let square = ((state.square * rule.beta2)? + (g.sqr()? * (1.0 - rule.beta2))?)?;
    let correction = |beta: f64| 1.0 - beta.powf(rule.step as f64);
    let denominator = ((square.sqrt()? / correction(rule.beta2).sqrt())? + rule.eps)?;
    let update = (mean.div(&denominator)? * (rule.lr / correction(rule.beta1)))?;
    let keep = 1.0 - rule.lr * rule.weight_decay;
    let mut start = 0;
    for &(end, decays) in decay_runs {
        let part = state.weights.narrow(0, start, end - start)?;
        let kept = if decays { (part * keep)? } else { part.copy()? };
        let new = (kept - update.narrow(0, start, end - start)?)?;
        state.weights.slice_set(&new, 0, start)?;
        start = end;
    }
    state.mean.slice_set(&mean, 0, 0)?;
    state.square.slice_set(&square, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn tensor(f: impl Fn(usize) -> f32) -> Tensor {
        let values: Vec<f32> = (0..40_000).map(f).collect();
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    #[test]
    fn fused_equals_composite_across_chunks_and_decay_runs() {
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
            weight_decay: 0.1,
            grad_scale: 0.5,
            step: 3,
        };
        let runs = [(10, true), (17_000, false), (17_001, true), (40_000, false)];
        let results = [update, composite].map(|door| {
            let (weights, grads, mean, square) = make();
            let state = State {
                weights: &weights,
                grads: &grads,
                mean: &mean,
                square: &square,
            };
            door(&rule, &state, &runs).unwrap();
            [weights, mean, square].map(|t| t.to_vec1::<f32>().unwrap())
        });
        for (fused, composite) in results[0].iter().zip(&results[1]) {
            for (i, (a, b)) in fused.iter().zip(composite).enumerate() {
                assert!((a - b).abs() <= 2e-6 * (1.0 + b.abs()), "{i}: {a} {b}");
            }
        }
    }
}
