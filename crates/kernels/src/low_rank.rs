//! Low-rank adapter matmuls: y[:, part] += scale · z Bᵀ with z = x Aᵀ, forward and backward. Several adapters over the same x
//! keep their z side by side.
#![allow(unsafe_code)]

use super::matmul::{
    Accumulation, Compute, ComputeDtype, GROUP, LowRank, Mat, matmul, matmul_into,
};
use super::matrix::Matrix;
use super::numbers::Values;
use super::skinny::{self, View};
use super::{reduce, threads};
use std::cell::Cell;

/// Ranks up to which skinny matmuls beat packed ones, B's transpose included.
const SKINNY: usize = 8;
/// Rows of a matrix that are merged at once to measure their norms.
const PANEL: usize = 256;

/// One adapter's place in z and in y.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// (rows, rank).
    pub z: View,
    /// (rows, d_out).
    pub y: View,
    pub scale: f32,
}

impl Part {
    fn rank(&self) -> usize {
        self.z.cols
    }

    fn b<'a>(&self, b: &'a [f32]) -> Mat<'a> {
        Mat::new(b, self.y.cols, self.rank())
    }
}

/// The part of `y` += scale · the part of `z` · `b` (d_out, rank)ᵀ.
pub fn forward(arithmetic: ComputeDtype, part: Part, z: &[f32], b: &[f32], y: &mut [f32]) {
    if part.rank() <= SKINNY {
        let transposed = transposed(b, part.rank());
        skinny::expand((z, part.z), &transposed, part.scale, None, (y, part.y));
        return TRANSPOSED.set(transposed);
    }
    let to = part.y.destination(y, Accumulation::Add);
    let (z, b) = (part.z.mat(Values::F32(z)), part.b(b).t());
    // SAFETY: y is borrowed exclusively, and the part's columns lie within its rows.
    unsafe { matmul_into(to, z, b, part.scale, Compute::pool(arithmetic)) }
}

/// The part of `dz` = scale · the part of `dy` · `b` (d_out, rank).
pub fn backward_input(arithmetic: ComputeDtype, part: Part, dy: Values, b: &[f32], dz: &mut [f32]) {
    if part.rank() <= SKINNY {
        let transposed = transposed(b, part.rank());
        skinny::project((dy, part.y), None, &transposed, part.scale, (dz, part.z));
        return TRANSPOSED.set(transposed);
    }
    let to = part.z.destination(dz, Accumulation::Overwrite);
    let (dy, b) = (part.y.mat(dy), part.b(b));
    // SAFETY: as in `forward`.
    unsafe { matmul_into(to, dy, b, part.scale, Compute::pool(arithmetic)) }
}

/// `db` (d_out, rank) = (or +=) scale · `dy`ᵀ · `z`, of the part's columns.
pub fn backward_weight(
    arithmetic: ComputeDtype,
    part: Part,
    (dy, z): (Values, &[f32]),
    db: &mut [f32],
    into: Accumulation,
) {
    if part.rank() <= SKINNY {
        let (z, dy) = ((z, part.z), (dy, part.y));
        let mut transposed = transposed(db, part.rank());
        skinny::factor_gradient(z, dy, None, part.scale, &mut transposed, into);
        skinny::transpose(&transposed, part.y.cols, db);
        return TRANSPOSED.set(transposed);
    }
    let (dy, z) = (part.y.mat(dy).t(), part.z.mat(Values::F32(z)));
    matmul(db, dy, z, part.scale, into, Compute::pool(arithmetic));
}

/// Ranks per column up to which an adapter's matmul is fused into the epilogue of the layer's matmul.
const MAX_FUSED_RANK: usize = 32;

/// Whether the low-rank term of an adapter of this rank is fused into a matmul.
pub fn joins(rank: usize) -> bool {
    rank <= MAX_FUSED_RANK
}

/// The factors of all adapters of one output, side by side and scaled: a matmul adds them in its epilogue.
#[derive(Debug, Default)]
pub struct Factors {
    /// (ranks, cols); 0 where a rank belongs to other columns.
    values: Vec<f32>,
    used: Vec<(u16, u16)>,
    ranks: usize,
}

thread_local! {
    /// Reusable memory for factors.
    static FACTORS: Cell<Factors> = Cell::default();
}

impl Factors {
    /// Calls `f` with Bᵀ of each part, scaled and placed at its columns in an output of `cols` columns.
    pub fn with<'a>(
        (ranks, cols): (usize, usize),
        parts: impl Iterator<Item = (Part, &'a [f32])>,
        f: impl FnOnce(&Factors),
    ) {
        let mut factors = FACTORS.take();
        factors.ranks = ranks;
        factors.values.clear();
        factors.values.resize(ranks * cols, 0.0);
        factors.used.clear();
        factors.used.resize(cols.div_ceil(GROUP), (u16::MAX, 0));
        for (part, b) in parts {
            let (rank, first) = (part.rank(), part.z.first);
            for (j, b) in (part.y.first..).zip(b.chunks_exact(rank)) {
                for (r, x) in (first..).zip(b) {
                    factors.values[r * cols + j] = part.scale * x;
                }
            }
            let groups = part.y.first / GROUP..(part.y.first + part.y.cols).div_ceil(GROUP);
            for used in &mut factors.used[groups] {
                used.0 = used.0.min(first as u16);
                used.1 = used.1.max((first + rank) as u16);
            }
        }
        f(&factors);
        FACTORS.set(factors);
    }

    /// The low-rank term of these factors for `z`.
    pub fn times<'a>(&'a self, z: &'a [f32]) -> LowRank<'a> {
        LowRank {
            z,
            ranks: self.ranks,
            factor: &self.values,
            used: &self.used,
            kept: None,
            scale: 1.0,
        }
    }
}

thread_local! {
    /// B transposed, the factor of a skinny matmul. Moved out while in use: a waiting thread may be given other work.
    static TRANSPOSED: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// `b` (d_out, rank) transposed, in memory that is reused once it is put back into `TRANSPOSED`.
fn transposed(b: &[f32], rank: usize) -> Vec<f32> {
    let mut transposed = TRANSPOSED.take();
    transposed.resize(b.len(), 0.0);
    skinny::transpose(b, rank, &mut transposed);
    transposed
}

/// Euclidean norms of the rows of W + scale · `b` (rows, rank) · `a` (rank, d_in), where W is the rows of `weight` from number
/// `first` on. A packed matrix is dequantized some rows at a time.
pub fn row_norms(
    (weight, first): (Matrix, usize),
    scale: f32,
    (b, a): (&[f32], &[f32]),
    d_in: usize,
    norms: &mut [f32],
) {
    let rank = a.len() / d_in.max(1);
    let mut panel = vec![0.0; PANEL.min(norms.len()) * d_in];
    for (at, norms) in (0..).step_by(PANEL).zip(norms.chunks_mut(PANEL)) {
        let rows = norms.len();
        let panel = &mut panel[..rows * d_in];
        for (i, row) in panel.chunks_exact_mut(d_in).enumerate() {
            weight.row(first + at + i, row);
        }
        merge(
            scale,
            (&b[at * rank..][..rows * rank], a),
            (rows, d_in),
            panel,
        );
        threads::rows1(norms, 1, 2 * d_in, |from, norms| {
            for (i, norm) in norms.iter_mut().enumerate() {
                let row = &panel[(from + i) * d_in..][..d_in];
                *norm = reduce::row_norm(row) as f32;
            }
        });
    }
}

/// `y` (rows, d_out) = `product` (rows, d_out) with every column times its factor of `scales`, + `bias`, + `residual`.
pub fn scale_columns(
    scales: &[f32],
    product: &[f32],
    (bias, residual): (Option<&[f32]>, Option<&[f32]>),
    y: &mut [f32],
) {
    let width = scales.len();
    threads::rows1(y, width, 2 * width, |first, y| {
        let part = first * width..first * width + y.len();
        let product = product[part.clone()].chunks_exact(width);
        for (i, (y, product)) in y.chunks_exact_mut(width).zip(product).enumerate() {
            for ((y, x), scale) in y.iter_mut().zip(product).zip(scales) {
                *y = x * scale;
            }
            if let Some(bias) = bias {
                y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
            }
            if let Some(residual) = residual {
                let row = &residual[part.start + i * width..][..width];
                y.iter_mut().zip(row).for_each(|(y, r)| *y += r);
            }
        }
    });
}

/// `dm` (count) = (or +=) Σ over rows of `dy` · `product`, both (rows, width), over `norms`, for the columns from `first` on.
pub fn magnitude_gradient(
    (dy, product): (&[f32], &[f32]),
    (width, first): (usize, usize),
    norms: &[f32],
    dm: &mut [f32],
    into: Accumulation,
) {
    let count = dm.len();
    let mut sums = vec![0.0f32; count];
    for (dy, product) in dy.chunks_exact(width).zip(product.chunks_exact(width)) {
        let columns = dy[first..][..count].iter().zip(&product[first..][..count]);
        for (sum, (dy, x)) in sums.iter_mut().zip(columns) {
            *sum += dy * x;
        }
    }
    for ((dm, sum), norm) in dm.iter_mut().zip(&sums).zip(norms) {
        let one = sum / norm;
        *dm = match into {
            Accumulation::Overwrite => one,
            Accumulation::Add => *dm + one,
        };
    }
}

/// Scales the rows of `weight` (rows, d_in) to these norms.
pub fn rescale(lengths: &[f32], d_in: usize, weight: &mut [f32]) {
    for (row, length) in weight.chunks_exact_mut(d_in).zip(lengths) {
        let norm = (reduce::row_norm(row) as f32).max(f32::MIN_POSITIVE);
        let scale = length / norm;
        row.iter_mut().for_each(|x| *x *= scale);
    }
}

/// `weight` (d_out, d_in) += scale · `b` (d_out, rank) · `a` (rank, d_in), in f32.
pub fn merge(
    scale: f32,
    (b, a): (&[f32], &[f32]),
    (d_out, d_in): (usize, usize),
    weight: &mut [f32],
) {
    let rank = a.len() / d_in.max(1);
    let (b, a) = (Mat::new(b, d_out, rank), Mat::new(a, rank, d_in));
    let compute = Compute::pool(ComputeDtype::F32);
    matmul(weight, b, a, scale, Accumulation::Add, compute);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_of_a_part_agree_with_candle_in_f64() {
        for (rows, rank, d_out) in [(1, 1, 1), (5, 3, 7), (70, 8, 40), (70, 12, 40)] {
            let view = |first, cols, width| View {
                rows,
                first,
                cols,
                width,
            };
            let part = Part {
                z: view(2, rank, rank + 2),
                y: view(1, d_out, d_out + 3),
                scale: 0.5,
            };
            let z = normal(rows * part.z.width, 0);
            let b = normal(d_out * rank, 1);
            let before = normal(rows * part.y.width, 2);
            let dy = normal(rows * part.y.width, 3);
            let (lz, lb) = (leaf(&z, &[rows, rank + 2]), leaf(&b, &[d_out, rank]));
            let (exact, grads) = oracle(&[&lz, &lb], &dy, || {
                let added = lz.narrow(1, 2, rank)?.matmul(&lb.t()?)?;
                let added = (added * 0.5)?.pad_with_zeros(1, 1, 2)?;
                added + leaf(&before, &[rows, part.y.width]).as_tensor()
            });
            let mut y = before.clone();
            forward(ComputeDtype::F32, part, &z, &b, &mut y);
            assert_close("y", &y, &exact, 1e-6);
            let mut dz = vec![0.0; z.len()];
            backward_input(ComputeDtype::F32, part, Values::F32(&dy), &b, &mut dz);
            assert_close("dz", &dz, &grads[0], 1e-6);
            let mut db = vec![f32::NAN; b.len()];
            for (times, into) in [(1.0, Accumulation::Overwrite), (2.0, Accumulation::Add)] {
                let dy = Values::F32(&dy);
                backward_weight(ComputeDtype::F32, part, (dy, &z), &mut db, into);
                let exact: Vec<f64> = grads[1].iter().map(|x| times * x).collect();
                assert_close("db", &db, &exact, 1e-6);
            }
        }
    }
}
