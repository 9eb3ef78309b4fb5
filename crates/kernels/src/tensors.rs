//! Shared by updates that need a whole tensor at once (its norm, its rows and columns, its singular values). Element-wise
//! updates are one pass in `update`.

use super::threads;
use super::update::{Norms, Part};

/// Elements that are summed in f32 lanes before they are added to the f64 sum.
const PANEL: usize = 4096;

/// The tensors of an update, in order, and the norms of the last update.
#[derive(Debug)]
pub struct Tensors {
    parts: Vec<Part>,
    norms: Vec<Norms>,
    /// Weights of the current tensor before its update: as long as the largest tensor so far.
    before: Vec<f32>,
}

impl Tensors {
    pub fn new(parts: Vec<Part>) -> Self {
        Tensors {
            parts,
            norms: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Norms of the last update, one per part; empty before the first.
    pub fn norms(&self) -> &[Norms] {
        &self.norms
    }

    /// Calls `update` for every part with its index, its weights and its gradients.
    pub fn update(
        &mut self,
        weights: &mut [f32],
        grads: &[f32],
        mut update: impl FnMut(usize, &Part, &mut [f32], &[f32]),
    ) {
        self.norms.clear();
        for (number, part) in self.parts.iter().enumerate() {
            let weights = &mut weights[part.weights..part.weights + part.len];
            let grads = &grads[part.grads..part.grads + part.len];
            if self.before.len() < part.len {
                self.before.resize(part.len, 0.0);
            }
            let before = &mut self.before[..part.len];
            copy(before, weights);
            update(number, part, weights, grads);
            self.norms.push(Norms {
                grad: squares(grads, grads, |x, _| x).sqrt(),
                update: squares(weights, before, |x, before| x - before).sqrt(),
                weight: squares(before, before, |x, _| x).sqrt(),
            });
        }
    }
}

/// Copies on all threads.
fn copy(to: &mut [f32], from: &[f32]) {
    threads::rows1(to, 1, 1, |first, to| {
        to.copy_from_slice(&from[first..first + to.len()]);
    });
}

/// Σ f(a, b)², on all threads. In lanes and panels whose sums are added in order, so that the result is the same for any
/// number of threads.
fn squares(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32 + Sync) -> f64 {
    const LANES: usize = 16;
    let panel = |a: &[f32], b: &[f32]| {
        let mut lanes = [0.0_f32; LANES];
        for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
            for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
                let x = f(*a, *b);
                *lane += x * x;
            }
        }
        lanes.iter().map(|x| f64::from(*x)).sum::<f64>()
    };
    let mut sums = vec![0.0; a.len().div_ceil(PANEL)];
    threads::rows1(&mut sums, 1, 2 * PANEL, |first, sums| {
        let from = first * PANEL;
        let panels = a[from..].chunks(PANEL).zip(b[from..].chunks(PANEL));
        for (sum, (a, b)) in sums.iter_mut().zip(panels) {
            *sum = panel(a, b);
        }
    });
    sums.iter().sum()
}

/// √(mean of squares).
pub fn rms(x: &[f32]) -> f32 {
    (squares(x, x, |x, _| x) / x.len().max(1) as f64).sqrt() as f32
}

/// The Euclidean norm.
pub fn norm(x: &[f32]) -> f32 {
    squares(x, x, |x, _| x).sqrt() as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::Part;

    #[test]
    fn norms_are_those_of_each_tensor_and_its_change() {
        let part = |weights, grads, len| Part {
            weights,
            grads,
            len,
            lr_scale: 1.0,
            weight_decay: 0.0,
        };
        let mut tensors = Tensors::new(vec![part(1, 0, 2), part(4, 2, 5000)]);
        let mut weights = vec![2.0; 6000];
        let grads = vec![3.0; 5002];
        tensors.update(&mut weights, &grads, |number, _, weights, grads| {
            assert_eq!(weights.len(), grads.len());
            weights.fill(2.5 + number as f32);
        });
        assert_eq!(
            (weights[0], weights[1], weights[3], weights[4]),
            (2.0, 2.5, 2.0, 3.5)
        );
        for (norms, (change, n)) in tensors.norms().iter().zip([(0.5, 2.0), (1.5, 5000.0_f64)]) {
            let root = n.sqrt();
            for (found, exact) in [
                (norms.grad, 3.0 * root),
                (norms.update, change * root),
                (norms.weight, 2.0 * root),
            ] {
                assert!((found - exact).abs() < 1e-6 * exact, "{found} for {exact}");
            }
        }
        assert!((rms(&[3.0, 4.0]) - 12.5_f32.sqrt()).abs() < 1e-6);
        assert!((norm(&[3.0, 4.0]) - 5.0).abs() < 1e-6);
    }
}
