//! One AdamW update over flat buffers (Loshchilov and Hutter 2019, in PyTorch's order of operations), with the clipping
//! factor folded in and per-tensor norms as by-products.
#![allow(unsafe_code)]

use super::flat;
use super::lanes::{Lanes, Vector, widest};
use super::threads::{self, Shared};
use candle_core::{Result, Tensor};

/// The hyperparameters of one update.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    /// Scale of every gradient (clipping).
    pub grad_scale: f64,
    /// Index of this update, from 1.
    pub step: u64,
}

/// Flat f32 tensors of equal length.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    pub weights: &'a Tensor,
    pub grads: &'a Tensor,
    pub mean: &'a Tensor,
    pub square: &'a Tensor,
}

/// One parameter tensor: where it ends in the flat buffers (it begins where the one before ends) and whether weight decay
/// applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub end: usize,
    pub decays: bool,
}

/// L2 norms of one parameter tensor in one update.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Norms {
    /// Of the gradient, before it is scaled.
    pub grad: f64,
    /// Of what the update changed, weight decay included.
    pub update: f64,
    /// Of the weights that it changed, as they were before.
    pub weight: f64,
}

impl Norms {
    /// How far the update moved the tensor, relative to its size: about 1e-3 in healthy pre-training (Karpathy, CS231n).
    pub fn update_ratio(&self) -> f64 {
        self.update / (self.weight + 1e-12)
    }
}

/// Elements whose squares are summed up in f32, in sixteen lanes.
const CHUNK: usize = 1 << 13;

/// Elements of one task, in whole chunks.
const TASK: usize = 1 << 16;

/// How the flat buffers are shared out: the same for any number of threads, so that norms do not depend on it.
#[derive(Debug)]
pub struct Chunks {
    parts: Vec<Part>,
    chunks: Vec<Chunk>,
    /// First chunk of each task, and the number of chunks at the end.
    tasks: Vec<usize>,
    norms: Vec<Norms>,
}

/// A piece of one tensor and the sums of squares of its last update: gradient, change, weight.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    from: usize,
    to: usize,
    part: usize,
    squares: [f32; 3],
}

impl Chunks {
    pub fn new(parts: Vec<Part>) -> Self {
        let (mut chunks, mut tasks, mut from) = (Vec::new(), vec![0], 0);
        let mut task_start = 0;
        for (part, &Part { end, .. }) in parts.iter().enumerate() {
            while from < end {
                if from - task_start >= TASK {
                    tasks.push(chunks.len());
                    task_start = from;
                }
                let to = (from + CHUNK).min(end);
                let squares = [0.0; 3];
                chunks.push(Chunk {
                    from,
                    to,
                    part,
                    squares,
                });
                from = to;
            }
        }
        tasks.push(chunks.len());
        Chunks {
            norms: Vec::with_capacity(parts.len()),
            parts,
            chunks,
            tasks,
        }
    }

    /// Of the last update, one for each part; none before the first, and on devices without the fused form.
    pub fn norms(&self) -> &[Norms] {
        &self.norms
    }

    fn sum_up(&mut self) {
        self.norms.clear();
        self.norms.resize(self.parts.len(), Norms::default());
        for chunk in &self.chunks {
            let norms = &mut self.norms[chunk.part];
            let sums = [&mut norms.grad, &mut norms.update, &mut norms.weight];
            for (sum, squares) in sums.into_iter().zip(chunk.squares) {
                *sum += f64::from(squares);
            }
        }
        for norms in &mut self.norms {
            for norm in [&mut norms.grad, &mut norms.update, &mut norms.weight] {
                *norm = norm.sqrt();
            }
        }
    }
}

/// Updates weights and moments in place, in one pass that also computes the norms.
pub fn update(rule: &Rule, state: &State, chunks: &mut Chunks) -> Result<()> {
    if !state.weights.device().is_cpu() {
        return composite(rule, state, &chunks.parts);
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
    let len = chunks.parts.last().map_or(0, |part| part.end);
    assert_eq!(grads.len(), len, "parts of the flat buffers");
    assert!(
        state.iter().all(|s| s.len() == len),
        "parts of the flat buffers"
    );
    let coefficients = Coefficients::new(rule);
    let state = state.map(|s| Shared(s.as_mut_ptr()));
    let (parts, tasks) = (&chunks.parts, &chunks.tasks);
    let all = threads::SharedSlice::new(&mut chunks.chunks);
    threads::tasks(tasks.len() - 1, TASK, |task| {
        // SAFETY: each task has chunks of its own.
        let own = unsafe { all.range(tasks[task]..tasks[task + 1]) };
        for chunk in own {
            let decays = parts[chunk.part].decays;
            let keep = if decays { coefficients.keep } else { 1.0 };
            let grads = &grads[chunk.from..chunk.to];
            // SAFETY: chunks do not overlap and lie within the slices, whose lengths were checked.
            unsafe {
                let state = state.map(|s| s.at(chunk.from));
                apply(false, coefficients, keep, state, grads, &mut chunk.squares);
            }
        }
    });
    chunks.sum_up();
}

/// Constants of all elements.
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
    /// 1 / √(1 − beta2^t): multiplied, because divisions and square roots dominate this pass.
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
            root_correction: (1.0 / correction(rule.beta2).sqrt()) as f32,
            eps: rule.eps as f32,
        }
    }
}

widest! {
    fn apply(
        pairs,
        c: Coefficients,
        keep: f32,
        state: [*mut f32; 3],
        grads: &[f32],
        squares: &mut [f32; 3],
    ) = apply_with
}

/// `state` is weights, mean and square at the first gradient's place. Products and sums are rounded one by one, so that
/// every machine gives the same bits.
#[inline(always)]
unsafe fn apply_with<V: Vector>(
    c: Coefficients,
    keep: f32,
    [weights, mean, square]: [*mut f32; 3],
    grads: &[f32],
    squares: &mut [f32; 3],
) {
    // SAFETY: the caller's: `state` is as long as `grads`.
    unsafe {
        let mut sums = [Lanes::<V>::all(0.0); 3];
        for at in (0..grads.len()).step_by(V::LANES) {
            let left = grads.len() - at;
            let raw = V::load_first(grads.as_ptr().add(at), left);
            let (w, m, v) = (weights.add(at), mean.add(at), square.add(at));
            let g = raw.times(V::all(c.grad_scale));
            let before = V::load_first(m, left);
            let new_mean = before.plus(g.minus(before).times(V::all(c.mean_gain)));
            let kept = V::load_first(v, left).times(V::all(c.beta2));
            let new_square = kept.plus(g.times(g).times(V::all(c.square_gain)));
            let root = new_square.root().times(V::all(c.root_correction));
            let denominator = root.plus(V::all(c.eps));
            let old = V::load_first(w, left);
            let change = V::all(c.step_size).times(new_mean.over(denominator));
            let new = old.times(V::all(keep)).minus(change);
            new_mean.store_first(m, left);
            new_square.store_first(v, left);
            new.store_first(w, left);
            // Beyond the end the denominator is eps, or 0.
            let moved = new.minus(old).keep_first(left, 0.0);
            for (sum, x) in sums.iter_mut().zip([raw, moved, old]) {
                *sum.at(at) = x.fused(x, *sum.at(at));
            }
        }
        for (squares, sum) in squares.iter_mut().zip(sums) {
            *squares = sum.total();
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
    let update = (mean.div(&denominator)? * (rule.lr / correction(rule.beta1)))?;
    let keep = 1.0 - rule.lr * rule.weight_decay;
    let mut start = 0;
    for &Part { end, decays } in parts {
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

    enum Form {
        Fused,
        Composite,
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
            weight_decay: 0.1,
            grad_scale: 0.5,
            step: 3,
        };
        let ends = [
            (10, true),
            (17_000, false),
            (17_001, true),
            (180_000, false),
        ];
        let parts = ends.map(|(end, decays)| Part { end, decays }).to_vec();
        let mut norms = Vec::new();
        let results = [Form::Fused, Form::Composite].map(|form| {
            let (weights, grads, mean, square) = make();
            let state = State {
                weights: &weights,
                grads: &grads,
                mean: &mean,
                square: &square,
            };
            match form {
                Form::Fused => {
                    let mut chunks = Chunks::new(parts.clone());
                    update(&rule, &state, &mut chunks).unwrap();
                    norms = chunks.norms().to_vec();
                }
                Form::Composite => composite(&rule, &state, &parts).unwrap(),
            }
            [weights, mean, square].map(|t| t.to_vec1::<f32>().unwrap())
        });
        let (before, grads, _, _) = make();
        let (before, grads) = (
            before.to_vec1::<f32>().unwrap(),
            grads.to_vec1::<f32>().unwrap(),
        );
        let mut from = 0;
        for (norms, Part { end, .. }) in norms.iter().zip(&parts) {
            let norm = |f: &dyn Fn(usize) -> f32| {
                let squares = (from..*end).map(|i| f64::from(f(i)).powi(2));
                squares.sum::<f64>().sqrt()
            };
            let after = &results[0][0];
            for (norm, exact) in [
                (norms.grad, norm(&|i| grads[i])),
                (norms.update, norm(&|i| after[i] - before[i])),
                (norms.weight, norm(&|i| before[i])),
            ] {
                assert!((norm - exact).abs() <= 1e-5 * exact, "{norm} {exact}");
            }
            from = *end;
        }
        for (fused, composite) in results[0].iter().zip(&results[1]) {
            for (i, (a, b)) in fused.iter().zip(composite).enumerate() {
                assert!((a - b).abs() <= 2e-6 * (1.0 + b.abs()), "{i}: {a} {b}");
            }
        }
    }
    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let parts = vec![
            Part {
                end: 123,
                decays: true,
            },
            Part {
                end: 200_000,
                decays: false,
            },
        ];
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
                    weight_decay: 0.1,
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
    fn the_first_update_without_decay_moves_every_weight_by_lr() {
        let ones = vec![1.0; 1000];
        let (mut w, mut m, mut v) = (ones.clone(), vec![0.0; 1000], vec![0.0; 1000]);
        let mut chunks = Chunks::new(vec![Part {
            end: 1000,
            decays: true,
        }]);
        let rule = Rule {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            grad_scale: 1.0,
            step: 1,
        };
        fused(&rule, [&mut w, &mut m, &mut v], &ones, &mut chunks);
        assert!((chunks.norms()[0].update_ratio() - 0.01).abs() < 1e-6);
        let norms = Norms {
            grad: 0.0,
            update: 0.005,
            weight: 5.0,
        };
        assert!((norms.update_ratio() - 1e-3).abs() < 1e-9);
    }
}
