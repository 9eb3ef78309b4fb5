//! One Muon update of one matrix (Jordan et al. 2024, kellerjordan.github.io/posts/muon): its momentum, approximately
//! orthogonalized by five Newton–Schulz iterations, for which bf16 suffices.

use super::matmul::{Accumulation, Compute, ComputeDtype, Mat, matmul, matmul_symmetric};
use super::tensors::norm;
use super::update::Part;

/// The hyperparameters of one update.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub lr: f64,
    pub momentum: f64,
    /// Nesterov momentum: the gradient is added on top of the momentum.
    pub nesterov: bool,
    /// Iterations of [`orthogonalize`].
    pub iterations: usize,
    /// The dtype of the matmuls' inputs; sums and intermediate results are f32.
    pub arithmetic: ComputeDtype,
    /// Scale of every gradient (clipping).
    pub grad_scale: f64,
    pub scale: Scale,
}

/// The factor on the orthogonalized matrix (rows, cols), before the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// √max(1, rows / cols): Jordan's.
    Original,
    /// 0.2 · √max(rows, cols): an update as large as AdamW's (Liu et al. 2025, arXiv 2502.16982).
    MatchRms,
}

impl Scale {
    fn of(self, rows: usize, cols: usize) -> f64 {
        let (rows, cols) = (rows as f64, cols as f64);
        match self {
            Scale::Original => (rows / cols).max(1.0).sqrt(),
            Scale::MatchRms => 0.2 * rows.max(cols).sqrt(),
        }
    }
}

/// Reusable memory for updates.
#[derive(Debug, Default)]
pub struct Scratch {
    direction: Vec<f32>,
    next: Vec<f32>,
    gram: Vec<f32>,
    polynomial: Vec<f32>,
}

/// A tensor (rows, cols) of `blocks` stacked matrices, each orthogonalized on its own: queries, keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub rows: usize,
    pub cols: usize,
    pub blocks: usize,
}

/// Updates weights and momentum (`mean`) in place; all are (rows, cols).
pub fn update(
    rule: &Rule,
    (part, shape): (&Part, Shape),
    weights: &mut [f32],
    grads: &[f32],
    mean: &mut [f32],
    scratch: &mut Scratch,
) {
    let rows = shape.rows / shape.blocks;
    let size = rows * shape.cols;
    let (gain, scale) = ((1.0 - rule.momentum) as f32, rule.grad_scale as f32);
    let keep = part.keep(rule.lr) as f32;
    let lr = (part.lr(rule.lr) * rule.scale.of(rows, shape.cols)) as f32;
    let blocks = weights.chunks_mut(size).zip(grads.chunks(size));
    for ((weights, grads), mean) in blocks.zip(mean.chunks_mut(size)) {
        scratch.direction.clear();
        scratch
            .direction
            .extend(grads.iter().zip(&mut *mean).map(|(g, m)| {
                let g = g * scale;
                *m += gain * (g - *m);
                match rule.nesterov {
                    true => *m - (*m - g) * gain,
                    false => *m,
                }
            }));
        let compute = Compute::pool(rule.arithmetic);
        orthogonalize((rows, shape.cols), rule.iterations, compute, scratch);
        for (w, d) in weights.iter_mut().zip(&scratch.direction) {
            *w = *w * keep - lr * d;
        }
    }
}

/// Newton–Schulz: `scratch.direction` (rows, cols) towards the nearest orthogonal matrix; singular values end up between
/// about 0.7 and 1.2. Jordan's coefficients.
fn orthogonalize(
    (rows, cols): (usize, usize),
    iterations: usize,
    compute: Compute,
    scratch: &mut Scratch,
) {
    const A: f32 = 3.4445;
    const B: f32 = -4.775;
    const C: f32 = 2.0315;
    let Scratch {
        direction: x,
        next,
        gram,
        polynomial,
    } = scratch;
    let length = norm(x).max(1e-7);
    x.iter_mut().for_each(|x| *x /= length);
    let n = rows.min(cols);
    gram.resize(n * n, 0.0);
    for _ in 0..iterations {
        let view = Mat::new(x, rows, cols);
        // The smaller of X Xᵀ and Xᵀ X.
        let side = if rows <= cols { view } else { view.t() };
        let gram = &mut gram[..n * n];
        matmul_symmetric(gram, side, 1.0, Accumulation::Overwrite, compute);
        polynomial.clear();
        polynomial.extend(gram.iter().map(|g| B * g));
        let g = Mat::new(gram, n, n);
        matmul_symmetric(polynomial, g, C, Accumulation::Add, compute);
        // A X + (B G + C G²) X as one matmul.
        polynomial.iter_mut().step_by(n + 1).for_each(|p| *p += A);
        let p = Mat::new(polynomial, n, n);
        let (a, b) = if rows <= cols { (p, view) } else { (view, p) };
        next.resize(rows * cols, 0.0);
        matmul(next, a, b, 1.0, Accumulation::Overwrite, compute);
        std::mem::swap(x, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orthogonal(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
        orthogonal_in(ComputeDtype::F32, values, rows, cols)
    }

    fn orthogonal_in(
        arithmetic: ComputeDtype,
        values: &[f32],
        rows: usize,
        cols: usize,
    ) -> Vec<f32> {
        let mut scratch = Scratch {
            direction: values.to_vec(),
            ..Scratch::default()
        };
        let compute = Compute::one(arithmetic);
        orthogonalize((rows, cols), 5, compute, &mut scratch);
        scratch.direction
    }

    /// Five iterations of the scalar map on 3/√14, 2/√14 and 1/√14.
    #[test]
    fn a_diagonal_matrix_follows_its_singular_values() {
        let found = orthogonal(&[3.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0], 3, 3);
        let exact = [1.121_969, 0.684_580, 0.698_262];
        for i in 0..3 {
            assert!((found[4 * i] - exact[i]).abs() < 1e-5, "{found:?}");
        }
        assert!(found[1].abs() < 1e-7);
    }

    #[test]
    fn a_tall_matrix_is_the_transpose_of_a_wide_one() {
        let at = |i: usize, j: usize| ((i * 7 + j * 13) as f32).sin();
        let wide: Vec<f32> = (0..15).map(|k| at(k / 5, k % 5)).collect();
        let tall: Vec<f32> = (0..15).map(|k| at(k % 3, k / 3)).collect();
        let (wide, tall) = (orthogonal(&wide, 3, 5), orthogonal(&tall, 5, 3));
        for (i, j) in (0..15).map(|k| (k / 5, k % 5)) {
            assert!((wide[i * 5 + j] - tall[j * 3 + i]).abs() < 1e-5);
        }
        let zero = orthogonal(&[0.0; 6], 2, 3);
        assert!(zero.iter().all(|x| *x == 0.0));
    }

    /// Newton–Schulz tolerates rounding: directions differ by no more than about bf16's 2⁻⁸, at every singular value.
    #[test]
    fn bf16_gives_nearly_the_same_direction() {
        let (rows, cols) = (40, 96);
        let values: Vec<f32> = (0..rows * cols)
            .map(|k| ((k * k % 977) as f32 * 0.37).sin())
            .collect();
        let exact = orthogonal(&values, rows, cols);
        let found = orthogonal_in(ComputeDtype::Bf16, &values, rows, cols);
        let (dot, length) = (
            found.iter().zip(&exact).map(|(a, b)| a * b).sum::<f32>(),
            norm(&found) * norm(&exact),
        );
        assert_ne!(found, exact);
        assert!(dot / length > 0.9995, "{}", dot / length);
        assert!((norm(&found) / norm(&exact) - 1.0).abs() < 0.02);
    }
}
