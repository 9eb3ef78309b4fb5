//! Shared by updates that need a whole tensor at once (its norm, its rows and columns, its singular values). Element-wise
//! updates are one pass in `update`.

use super::update::{Norms, Part};

/// The tensors of an update, in order, and the norms of the last update.
#[derive(Debug)]
pub struct Tensors {
    parts: Vec<Part>,
    norms: Vec<Norms>,
    /// Weights of the current tensor before its update.
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
            self.before.clear();
            self.before.extend_from_slice(weights);
            update(number, part, weights, grads);
            let before = &self.before;
            self.norms.push(Norms {
                grad: squares(grads, grads, false).sqrt(),
                update: squares(weights, before, true).sqrt(),
                weight: squares(before, before, false).sqrt(),
            });
        }
    }
}

/// Σ a², or Σ (a − b)². In lanes and panels, so that the order of additions is the same everywhere.
fn squares(a: &[f32], b: &[f32], minus: bool) -> f64 {
    const LANES: usize = 16;
    let keep = if minus { 1.0 } else { 0.0 };
    let mut sum = 0.0;
    for (a, b) in a.chunks(4096).zip(b.chunks(4096)) {
        let mut lanes = [0.0_f32; LANES];
        for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
            for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
                let x = a - keep * b;
                *lane += x * x;
            }
        }
        sum += lanes.iter().map(|x| f64::from(*x)).sum::<f64>();
    }
    sum
}

/// √(mean of squares).
pub fn rms(x: &[f32]) -> f32 {
    (squares(x, x, false) / x.len().max(1) as f64).sqrt() as f32
}

/// The Euclidean norm.
pub fn norm(x: &[f32]) -> f32 {
    squares(x, x, false).sqrt() as f32
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
