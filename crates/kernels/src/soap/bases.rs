//! Orthonormal bases, stored as row vectors: computed from a Gram matrix, and updated as it changes.

use super::product;
use crate::matmul::{Accumulation, Compute, ComputeDtype, Mat, matmul};

/// One step of power iteration on `basis` (rows), sorted by estimated eigenvalue, largest first. Returns the order of the old
/// vectors.
pub(super) fn power(gram: &[f32], basis: &mut [f32], n: usize) -> Vec<usize> {
    let mut next = vec![0.0; n * n];
    product(&mut next, Mat::new(basis, n, n), Mat::new(gram, n, n));
    let pairs = next.chunks(n).zip(basis.chunks(n));
    let values: Vec<f64> = pairs.map(|(a, b)| dot(a, b)).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    for (to, from) in order.iter().enumerate() {
        basis[to * n..(to + 1) * n].copy_from_slice(&next[from * n..(from + 1) * n]);
    }
    orthonormalize(basis, n);
    order
}

/// Fills the rows after the first `known` of a basis with unit vectors, and makes all orthonormal.
pub(super) fn complete(basis: &mut [f32], n: usize, known: usize) {
    for (i, row) in basis.chunks_mut(n).enumerate().skip(known) {
        row.fill(0.0);
        row[i] = 1.0;
    }
    orthonormalize(basis, n);
}

pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| f64::from(*a) * f64::from(*b))
        .sum()
}

/// Subtracts from `row` its projection onto `others`, which are orthonormal rows.
fn project_out(row: &mut [f32], others: &[f32]) {
    for other in others.chunks(row.len()) {
        let along = dot(row, other) as f32;
        row.iter_mut().zip(other).for_each(|(x, o)| *x -= along * o);
    }
}

/// Gram–Schmidt on the n rows of `basis`, in blocks. A row that depends on earlier ones becomes the remainder of a unit vector.
///
/// A row that loses most of its length keeps its rounding errors, and normalizing it magnifies them: its block is orthogonalized
/// again until no row loses more than half (Daniel, Gragg, Kaufman and Stewart 1976, Math. Comp. 30). With Gram matrices of few
/// tokens most rows are of that kind.
pub(super) fn orthonormalize(basis: &mut [f32], n: usize) {
    const BLOCK: usize = 32;
    /// Always two ("twice is enough"), and a bound: three or four do.
    const PASSES: std::ops::Range<usize> = 2..8;
    let mut along = Vec::new();
    for first in (0..n).step_by(BLOCK) {
        let (done, rest) = basis.split_at_mut(first * n);
        let block = &mut rest[..BLOCK.min(n - first) * n];
        let rows = block.len() / n;
        for pass in 1..=PASSES.end {
            let before: Vec<f64> = block.chunks(n).map(|row| dot(row, row).sqrt()).collect();
            if first > 0 {
                along.resize(rows * first, 0.0);
                let q = Mat::new(done, first, n);
                product(&mut along, Mat::new(block, rows, n), q.t());
                let compute = Compute::pool(ComputeDtype::F32);
                let shares = Mat::new(&along, rows, first);
                matmul(block, shares, q, -1.0, Accumulation::Add, compute);
            }
            let kept = normalize(block, done, n, &before);
            if pass >= PASSES.start && kept >= 0.5 {
                break;
            }
        }
    }
}

/// Gram–Schmidt inside a block of rows whose lengths were `before`, after the rows `done`; returns the smallest fraction of its
/// length that a row kept.
fn normalize(block: &mut [f32], done: &[f32], n: usize, before: &[f64]) -> f64 {
    /// Below this fraction only rounding errors are left of a row.
    const REST: f64 = 1e-6;
    /// Squared length of rows from gradients below 1e-15: their lengths may have no reciprocal in f32.
    const NOTHING: f64 = 1e-30;
    let mut smallest = 1.0_f64;
    for (i, before) in before.iter().enumerate() {
        let (ready, rest) = block.split_at_mut(i * n);
        let row = &mut rest[..n];
        project_out(row, ready);
        let mut length = dot(row, row).sqrt();
        let mut kept = length / before;
        let mut unit = done.len() / n + i;
        let mut least = (REST * before).max(NOTHING);
        while length <= least || length == 0.0 {
            row.fill(0.0);
            row[unit % n] = 1.0;
            project_out(row, done);
            project_out(row, ready);
            length = dot(row, row).sqrt();
            kept = length;
            // Of all unit vectors at least one keeps this much.
            least = 0.5 / (n as f64).sqrt();
            unit += 1;
        }
        let factor = (1.0 / length) as f32;
        row.iter_mut().for_each(|x| *x *= factor);
        smallest = smallest.min(kept);
    }
    smallest
}

/// Eigenvectors of a symmetric matrix without negative eigenvalues, as rows, largest first: one-sided Jacobi rotations in f64.
pub(super) fn eigenvectors(gram: &[f32], n: usize, out: &mut [f32]) {
    const SWEEPS: usize = 30;
    const TOLERANCE: f64 = 1e-12;
    let mut turned: Vec<f64> = gram.iter().map(|x| f64::from(*x)).collect();
    let mut vectors = vec![0.0_f64; n * n];
    (0..n).for_each(|i| vectors[i * n + i] = 1.0);
    let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let rotate = |rows: &mut [f64], (p, q): (usize, usize), (c, s): (f64, f64)| {
        let (head, tail) = rows.split_at_mut(q * n);
        let pairs = head[p * n..(p + 1) * n].iter_mut().zip(&mut tail[..n]);
        pairs.for_each(|(a, b)| (*a, *b) = (c * *a - s * *b, s * *a + c * *b));
    };
    for _ in 0..SWEEPS {
        let mut moved = false;
        for p in 0..n {
            for q in p + 1..n {
                let (a, b) = (&turned[p * n..(p + 1) * n], &turned[q * n..(q + 1) * n]);
                let (aa, bb, ab) = (inner(a, a), inner(b, b), inner(a, b));
                if ab.abs() <= TOLERANCE * (aa * bb).sqrt() || ab == 0.0 {
                    continue;
                }
                moved = true;
                let zeta = (bb - aa) / (2.0 * ab);
                let t = zeta.signum() / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
                let c = 1.0 / (1.0 + t * t).sqrt();
                rotate(&mut turned, (p, q), (c, c * t));
                rotate(&mut vectors, (p, q), (c, c * t));
            }
        }
        if !moved {
            break;
        }
    }
    let sizes: Vec<f64> = turned.chunks(n).map(|row| inner(row, row)).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| sizes[*b].total_cmp(&sizes[*a]));
    for (to, from) in out.chunks_mut(n).zip(order) {
        let from = &vectors[from * n..(from + 1) * n];
        to.iter_mut().zip(from).for_each(|(to, x)| *to = *x as f32);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::soap) fn made_up(n: usize, salt: f32) -> Vec<f32> {
        (0..n)
            .map(|i| ((i * i) as f32 * 0.37 + salt).sin())
            .collect()
    }

    fn off_identity(basis: &[f32], n: usize) -> f64 {
        let mut worst = 0.0_f64;
        for i in 0..n {
            for j in 0..n {
                let exact = f64::from(u8::from(i == j));
                let (a, b) = (&basis[i * n..(i + 1) * n], &basis[j * n..(j + 1) * n]);
                worst = worst.max((dot(a, b) - exact).abs());
            }
        }
        worst
    }

    #[test]
    fn rows_become_orthonormal_also_where_they_depend_on_each_other() {
        let n = 70;
        let mut basis = made_up(n * n, 0.1);
        orthonormalize(&mut basis, n);
        assert!(off_identity(&basis, n) < 1e-5);
        // Rows whose lengths have no reciprocal in f32.
        let mut tiny: Vec<f32> = made_up(n * n, 0.1).iter().map(|x| x * 1e-41).collect();
        tiny[..n].copy_from_slice(&made_up(n, 0.4));
        orthonormalize(&mut tiny, n);
        assert!(off_identity(&tiny, n) < 1e-5);
        // Rank three, with a row of zeros.
        let mut poor: Vec<f32> = (0..n * n)
            .map(|k| (k % n) as f32 * (k / n % 3) as f32)
            .collect();
        orthonormalize(&mut poor, n);
        assert!(off_identity(&poor, n) < 1e-5);
    }

    #[test]
    fn bases_of_few_tokens_a_step_stay_orthonormal() {
        // Like a wide layer: 40 gradient directions in 300, different each step, the old ones decaying.
        let (n, tokens) = (300, 40);
        let mut gram = vec![0.0_f32; n * n];
        let mut basis = vec![0.0; n * n];
        complete(&mut basis, n, 0);
        let mut seed = 7_u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        for step in 0..12 {
            // Directions from large to small: eigenvalues over six orders of magnitude.
            let g: Vec<f32> = (0..tokens * n)
                .map(|i| noise() * 1e-3 * 0.7_f32.powi((i / n) as i32))
                .collect();
            let mut new = vec![0.0; n * n];
            let g = Mat::new(&g, tokens, n);
            product(&mut new, g.t(), g);
            gram.iter_mut()
                .zip(&new)
                .for_each(|(old, new)| *old += 0.05 * (new - *old));
            power(&gram, &mut basis, n);
            let off = off_identity(&basis, n);
            assert!(off < 1e-5, "step {step}: {off}");
        }
    }

    #[test]
    fn eigenvectors_make_the_matrix_diagonal_largest_first() {
        let (m, n) = (9, 12);
        let g = made_up(m * n, 0.3);
        let mut gram = vec![0.0; m * m];
        product(&mut gram, Mat::new(&g, m, n), Mat::new(&g, m, n).t());
        let mut basis = vec![0.0; m * m];
        eigenvectors(&gram, m, &mut basis);
        assert!(off_identity(&basis, m) < 1e-5);
        let (mut half, mut diagonal) = (vec![0.0; m * m], vec![0.0; m * m]);
        product(&mut half, Mat::new(&basis, m, m), Mat::new(&gram, m, m));
        product(
            &mut diagonal,
            Mat::new(&half, m, m),
            Mat::new(&basis, m, m).t(),
        );
        for i in 0..m {
            for j in 0..m {
                let x = diagonal[i * m + j];
                assert!(i == j || x.abs() < 1e-4, "{i} {j}: {x}");
            }
            assert!(i == 0 || diagonal[i * m + i] <= diagonal[(i - 1) * (m + 1)] + 1e-4);
        }
    }
}
