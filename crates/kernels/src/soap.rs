//! One SOAP update of one matrix (Vyas et al. 2024, arXiv 2409.11321): Adam in the eigenbases of Shampoo's two Gram matrices.
//! A basis is computed once, from the first gradient, and then tracked by one power iteration with Gram–Schmidt. In f32.

mod bases;

use super::matmul::{Accumulation, Compute, ComputeDtype, Mat, matmul, matmul_symmetric};
use super::update::Part;
use bases::{complete, eigenvectors, power};

/// The hyperparameters of one update.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    /// Decay of the Gram matrices.
    pub shampoo_beta: f64,
    pub eps: f64,
    /// Updates between eigenbasis refreshes.
    pub every: u64,
    /// Scale of every gradient (clipping).
    pub grad_scale: f64,
    /// Number of the update; the first, 1, only finds the bases.
    pub step: u64,
}

/// An update is at most √MAX_RATIO times as large as any that Adam makes.
const MAX_RATIO: f64 = 100.0;

impl Rule {
    /// The least mean of squares that is consistent with a mean of 1: Σ a gᵢ ≤ √(Σ a² / b) √(Σ b gᵢ²), with both means' weights a
    /// and b (Cauchy–Schwarz).
    ///
    /// A rotation of the bases rotates the mean exactly, but the mean of squares only follows its eigenvectors. If gradients span
    /// fewer directions than the matrix has (few tokens a step), a new direction gets a mean but no square, and one update along it
    /// is thousands of times the learning rate. Raising the square brings it closer to what the new basis would have had. Only
    /// squares [`MAX_RATIO`] below the bound are raised: elsewhere the paper's rule applies, whose squares are often slightly below.
    fn least_square(&self) -> f32 {
        let (a, b) = (1.0 - self.beta1, 1.0 - self.beta2);
        let series = 1.0 / (1.0 - (self.beta1 * self.beta1 / self.beta2).min(1.0 - 1e-3));
        (b / (a * a * series) / MAX_RATIO) as f32
    }
}

/// A tensor (rows, cols) of `blocks` stacked matrices, each updated on its own: queries, keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub rows: usize,
    pub cols: usize,
    pub blocks: usize,
    /// Whether each side has a basis: rows, columns.
    pub sides: [bool; 2],
}

impl Shape {
    /// The shape of a tensor updated by plain Adam: a vector.
    pub fn plain(len: usize) -> Shape {
        Shape {
            rows: 1,
            cols: len,
            blocks: 1,
            sides: [false; 2],
        }
    }

    fn block_rows(&self) -> usize {
        self.rows / self.blocks
    }

    /// Lengths of the sides that have a basis, 0 for the others.
    fn lengths(&self) -> [usize; 2] {
        let of = |has: bool, len: usize| if has { len } else { 0 };
        [
            of(self.sides[0], self.block_rows()),
            of(self.sides[1], self.cols),
        ]
    }

    /// Elements of the Gram matrices, and of the bases.
    pub fn basis_len(&self) -> usize {
        let squares = self.lengths().map(|n| n * n);
        self.blocks * (squares[0] + squares[1])
    }
}

/// Optimizer state of one tensor. Means are expressed in the bases.
pub struct State<'a> {
    /// As long as the tensor.
    pub mean: &'a mut [f32],
    pub square: &'a mut [f32],
    /// [`Shape::basis_len`]: for each block the rows' and the columns' Gram matrix; eigenvectors are rows.
    pub gram: &'a mut [f32],
    pub basis: &'a mut [f32],
}

/// Reusable memory for updates.
#[derive(Debug, Default)]
pub struct Scratch {
    grad: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
}

/// Updates weights and state in place.
pub fn update(
    rule: &Rule,
    (part, shape): (&Part, Shape),
    weights: &mut [f32],
    grads: &[f32],
    state: State,
    scratch: &mut Scratch,
) {
    let size = shape.block_rows() * shape.cols;
    let sides = shape.basis_len() / shape.blocks;
    for block in 0..shape.blocks {
        let (own, of_sides) = (
            block * size..(block + 1) * size,
            block * sides..(block + 1) * sides,
        );
        let matrix = Matrix {
            rows: shape.block_rows(),
            cols: shape.cols,
            lengths: shape.lengths(),
        };
        let state = State {
            mean: &mut state.mean[own.clone()],
            square: &mut state.square[own.clone()],
            gram: &mut state.gram[of_sides.clone()],
            basis: &mut state.basis[of_sides],
        };
        let scale = rule.grad_scale as f32;
        scratch.grad.clear();
        scratch
            .grad
            .extend(grads[own.clone()].iter().map(|g| g * scale));
        matrix.update(rule, part, &mut weights[own], state, scratch);
    }
}

/// out (rows, cols) = a b.
fn product(out: &mut [f32], a: Mat, b: Mat) {
    let compute = Compute::pool(ComputeDtype::F32);
    matmul(out, a, b, 1.0, Accumulation::Overwrite, compute);
}

#[derive(Clone, Copy)]
struct Matrix {
    rows: usize,
    cols: usize,
    /// Of the sides with a basis; 0 without.
    lengths: [usize; 2],
}

impl Matrix {
    fn update(
        self,
        rule: &Rule,
        part: &Part,
        weights: &mut [f32],
        state: State,
        scratch: &mut Scratch,
    ) {
        let State {
            mean,
            square,
            gram,
            basis,
        } = state;
        if rule.step <= 1 {
            self.accumulate_gram(rule, gram, &scratch.grad);
            self.first_bases(&scratch.grad, gram, basis);
            return;
        }
        let taken = (rule.step - 1) as i32;
        self.into_basis(basis, &scratch.grad, &mut scratch.a, &mut scratch.b);
        let (gain1, gain2) = ((1.0 - rule.beta1) as f32, (1.0 - rule.beta2) as f32);
        let eps = rule.eps as f32;
        let moments = mean.iter_mut().zip(&mut *square);
        for (g, (m, v)) in scratch.a.iter_mut().zip(moments) {
            *m += gain1 * (*g - *m);
            *v += gain2 * (*g * *g - *v);
            *g = *m / (v.sqrt() + eps);
        }
        std::mem::swap(&mut scratch.a, &mut scratch.b);
        let (from, to) = (&mut scratch.b, &mut scratch.a);
        self.out_of_basis(basis, from, to);
        let corrections = (1.0 - rule.beta2.powi(taken)).sqrt() / (1.0 - rule.beta1.powi(taken));
        let (lr, keep) = (
            (part.lr(rule.lr) * corrections) as f32,
            part.keep(rule.lr) as f32,
        );
        for (w, direction) in weights.iter_mut().zip(&*to) {
            *w = (*w - lr * direction) * keep;
        }
        self.accumulate_gram(rule, gram, &scratch.grad);
        if (rule.step - 1).is_multiple_of(rule.every.max(1)) && self.lengths != [0, 0] {
            scratch.b.clear();
            scratch.b.extend_from_slice(mean);
            self.out_of_basis(basis, &mut scratch.b, &mut scratch.a);
            self.rotate(gram, basis, square);
            let Scratch { grad, a, b } = scratch;
            grad.clear();
            grad.extend_from_slice(a);
            self.into_basis(basis, grad, a, b);
            mean.copy_from_slice(a);
            let least = rule.least_square();
            for (v, m) in square.iter_mut().zip(&*mean) {
                *v = v.max(least * m * m);
            }
        }
    }

    /// The halves of a buffer that belong to the two sides.
    fn halves(self, buffer: &[f32]) -> (&[f32], &[f32]) {
        buffer.split_at(self.lengths[0] * self.lengths[0])
    }

    /// `to` = L x Rᵀ with the bases as rows; `other` is overwritten.
    fn into_basis(self, basis: &[f32], x: &[f32], to: &mut Vec<f32>, other: &mut Vec<f32>) {
        let [m, n] = self.lengths;
        let (left, right) = self.halves(basis);
        to.clear();
        to.extend_from_slice(x);
        other.resize(x.len(), 0.0);
        if m > 0 {
            product(other, Mat::new(left, m, m), Mat::new(to, m, self.cols));
            std::mem::swap(to, other);
        }
        if n > 0 {
            product(other, Mat::new(to, self.rows, n), Mat::new(right, n, n).t());
            std::mem::swap(to, other);
        }
    }

    /// `to` = Lᵀ x R; `x` is overwritten.
    fn out_of_basis(self, basis: &[f32], x: &mut Vec<f32>, to: &mut Vec<f32>) {
        let [m, n] = self.lengths;
        let (left, right) = self.halves(basis);
        to.resize(x.len(), 0.0);
        if m > 0 {
            product(to, Mat::new(left, m, m).t(), Mat::new(x, m, self.cols));
            std::mem::swap(to, x);
        }
        if n > 0 {
            product(to, Mat::new(x, self.rows, n), Mat::new(right, n, n));
            std::mem::swap(to, x);
        }
        std::mem::swap(to, x);
    }

    /// Accumulates a gradient into the running Gram matrices.
    fn accumulate_gram(self, rule: &Rule, gram: &mut [f32], grad: &[f32]) {
        let [m, n] = self.lengths;
        let (keep, gain) = (rule.shampoo_beta as f32, (1.0 - rule.shampoo_beta) as f32);
        gram.iter_mut().for_each(|x| *x *= keep);
        let (left, right) = gram.split_at_mut(m * m);
        let g = Mat::new(grad, self.rows, self.cols);
        let compute = Compute::pool(ComputeDtype::F32);
        if m > 0 {
            matmul_symmetric(left, g, gain, Accumulation::Add, compute);
        }
        if n > 0 {
            matmul_symmetric(right, g.t(), gain, Accumulation::Add, compute);
        }
    }

    /// Eigenvectors of the first gradient's Gram matrices, largest first. Those of the shorter side are computed; those of the
    /// longer side follow from them through the gradient, completed by arbitrary orthogonal vectors.
    fn first_bases(self, grad: &[f32], gram: &[f32], basis: &mut [f32]) {
        let [m, n] = self.lengths;
        let (left_gram, right_gram) = self.halves(gram);
        let (left, right) = basis.split_at_mut(m * m);
        let g = Mat::new(grad, self.rows, self.cols);
        if m > 0 && (n == 0 || m <= n) {
            eigenvectors(left_gram, m, left);
            if n > 0 {
                product(&mut right[..m * n], Mat::new(left, m, m), g);
                complete(right, n, m);
            }
        } else if n > 0 {
            eigenvectors(right_gram, n, right);
            if m > 0 {
                product(&mut left[..n * m], Mat::new(right, n, n), g.t());
                complete(left, m, n);
            }
        }
    }

    /// Moves both bases one step of power iteration closer to the eigenvectors of the current Gram matrices. `square`
    /// is permuted with its eigenvectors.
    fn rotate(self, gram: &[f32], basis: &mut [f32], square: &mut [f32]) {
        let [m, n] = self.lengths;
        let (left_gram, right_gram) = self.halves(gram);
        let (left, right) = basis.split_at_mut(m * m);
        let before = square.to_vec();
        if m > 0 {
            let order = power(left_gram, left, m);
            for (to, from) in order.into_iter().enumerate() {
                let from = from * self.cols..(from + 1) * self.cols;
                square[to * self.cols..(to + 1) * self.cols].copy_from_slice(&before[from]);
            }
        }
        if n > 0 {
            let order = power(right_gram, right, n);
            let mut row = vec![0.0; n];
            for own in square.chunks_mut(n) {
                for (to, from) in row.iter_mut().zip(&order) {
                    *to = own[*from];
                }
                own.copy_from_slice(&row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bases::orthonormalize;
    use super::bases::tests::made_up;
    use super::*;

    fn rule(step: u64) -> Rule {
        Rule {
            lr: 0.01,
            beta1: 0.95,
            beta2: 0.95,
            shampoo_beta: 0.95,
            eps: 1e-8,
            every: 3,
            grad_scale: 1.0,
            step,
        }
    }

    fn run(shape: Shape, gradient: impl Fn(u64) -> Vec<f32>) -> Vec<f32> {
        run_for(10, shape, gradient)
    }

    fn run_for(steps: u64, shape: Shape, gradient: impl Fn(u64) -> Vec<f32>) -> Vec<f32> {
        let len = shape.rows * shape.cols;
        let part = Part {
            weights: 0,
            grads: 0,
            len,
            lr_scale: 1.0,
            weight_decay: 0.0,
        };
        let (mut mean, mut square) = (vec![0.0; len], vec![0.0; len]);
        let (mut gram, mut basis) = (vec![0.0; shape.basis_len()], vec![0.0; shape.basis_len()]);
        let (mut weights, mut scratch) = (vec![0.0; len], Scratch::default());
        for step in 1..=steps {
            let state = State {
                mean: &mut mean,
                square: &mut square,
                gram: &mut gram,
                basis: &mut basis,
            };
            let grads = gradient(step);
            update(
                &rule(step),
                (&part, shape),
                &mut weights,
                &grads,
                state,
                &mut scratch,
            );
        }
        weights
    }

    /// With axis-aligned bases it equals Adam.
    #[test]
    fn on_diagonal_gradients_it_is_adam() {
        let n = 4;
        let diagonal = |step: u64| {
            let at = |k: usize| match k / n == k % n {
                true => (k as f32 + 2.0) * (1.0 + 0.3 * (step as f32).sin()),
                false => 0.0,
            };
            (0..n * n).map(at).collect::<Vec<_>>()
        };
        let shape = |sides| Shape {
            rows: n,
            cols: n,
            blocks: 1,
            sides,
        };
        let (soap, adam) = (
            run(shape([true; 2]), diagonal),
            run(shape([false; 2]), diagonal),
        );
        for (a, b) in soap.iter().zip(&adam) {
            assert!((a - b).abs() < 1e-5, "{a} for {b}");
        }
        assert!(adam[0] < -0.05);
    }

    /// Gradients of few directions, different every time, with a large one before every other rotation: its mean enters directions
    /// that have no square. Adam would move a weight by 1.2 in total at most; without a bound it is 25.
    #[test]
    fn unseen_directions_get_no_giant_updates() {
        let (rows, cols, steps) = (64, 128, 120);
        let shape = Shape {
            rows,
            cols,
            blocks: 1,
            sides: [true; 2],
        };
        let mut state = 1_u64;
        let mut number = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        let gradients: Vec<Vec<f32>> = (0..steps)
            .map(|step| {
                let size = if step % 6 == 0 { 1e-3 } else { 1e-6 };
                let mut gradient = vec![0.0; rows * cols];
                for _ in 0..4 {
                    let a: Vec<f32> = (0..rows).map(|_| number()).collect();
                    let b: Vec<f32> = (0..cols).map(|_| number()).collect();
                    for (k, g) in gradient.iter_mut().enumerate() {
                        *g += size * a[k / cols] * b[k % cols];
                    }
                }
                gradient
            })
            .collect();
        let weights = run_for(steps, shape, |step| gradients[step as usize - 1].clone());
        let most = weights.iter().fold(0.0_f32, |most, w| most.max(w.abs()));
        assert!(most < 12.0, "{most}");
    }

    /// Rotated gradients give rotated updates.
    #[test]
    fn updates_rotate_with_their_gradients() {
        let n = 6;
        let mut rotate = made_up(n * n, 0.7);
        orthonormalize(&mut rotate, n);
        let rotated = |x: &[f32]| {
            let mut out = vec![0.0; n * n];
            product(&mut out, Mat::new(&rotate, n, n), Mat::new(x, n, n));
            out
        };
        let gradient = |step: u64| made_up(n * n, step as f32);
        let shape = Shape {
            rows: n,
            cols: n,
            blocks: 1,
            sides: [true; 2],
        };
        let plain = run(shape, gradient);
        let other = run(shape, |step| rotated(&gradient(step)));
        for (a, b) in rotated(&plain).iter().zip(&other) {
            assert!((a - b).abs() < 2e-4, "{a} for {b}");
        }
    }
}
