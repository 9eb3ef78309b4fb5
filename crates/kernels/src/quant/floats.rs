//! Matrices of plain floats as stored in a file: f32, f16 and bf16, widened on load in a matmul.

use super::formats::Kind;
use super::half::{from_bf16, from_f16};
use crate::matmul::{Compute, Mat, Plus, Threads, matmul_plus};
use crate::numbers::ValuesMut;
use crate::simd::multiversion;
use crate::threads;

/// Rows of floats, row-major.
#[derive(Debug)]
pub(super) struct Floats {
    cols: usize,
    values: Values,
}

#[derive(Debug)]
enum Values {
    F32(Vec<f32>),
    F16(Vec<u16>),
    Bf16(Vec<u16>),
}

/// Rows of activations up to which sixteen-bit weights are widened in registers. Sums are grouped otherwise beyond that: texts that are
/// written side by side have the same bits as alone up to here.
pub const FEW: usize = 16;
/// Rows of weights widened at once if there are more.
const WIDE_ROWS: usize = 512;

impl Floats {
    /// The bytes of whole rows in a format of plain floats.
    pub fn new(kind: Kind, cols: usize, bytes: &[u8]) -> Floats {
        let values = match kind {
            Kind::F16 => Values::F16(Vec::new()),
            Kind::Bf16 => Values::Bf16(Vec::new()),
            _ => Values::F32(Vec::new()),
        };
        let mut floats = Floats { cols, values };
        floats.extend(kind, bytes);
        floats
    }

    /// Appends rows; false if they have another format.
    pub fn extend(&mut self, kind: Kind, bytes: &[u8]) -> bool {
        match (&mut self.values, kind) {
            (Values::F32(values), Kind::F32) => {
                let words = bytes.as_chunks::<4>().0;
                values.extend(words.iter().map(|b| f32::from_le_bytes(*b)));
            }
            (Values::F16(values), Kind::F16) | (Values::Bf16(values), Kind::Bf16) => {
                let words = bytes.as_chunks::<2>().0;
                values.extend(words.iter().map(|b| u16::from_le_bytes(*b)));
            }
            _ => return false,
        }
        true
    }

    pub fn bytes(&self) -> usize {
        match &self.values {
            Values::F32(values) => size_of_val(values.as_slice()),
            Values::F16(values) | Values::Bf16(values) => size_of_val(values.as_slice()),
        }
    }

    fn rows(&self) -> usize {
        let n = match &self.values {
            Values::F32(values) => values.len(),
            Values::F16(values) | Values::Bf16(values) => values.len(),
        };
        n / self.cols.max(1)
    }

    /// Some rows as f32, one after the other.
    fn widen(&self, first: usize, to: &mut [f32]) {
        self.some_of_row(first, 0, to);
    }

    /// The elements of row `row` from column `column` on, as f32.
    pub fn some_of_row(&self, row: usize, column: usize, to: &mut [f32]) {
        let first = row * self.cols + column;
        let range = first..first + to.len();
        match &self.values {
            Values::F32(values) => to.copy_from_slice(&values[range]),
            Values::F16(values) => widen_f16(&values[range], to),
            Values::Bf16(values) => widen_bf16(&values[range], to),
        }
    }

    pub fn row(&self, row: usize, to: &mut [f32]) {
        self.widen(row, to);
    }

    /// Columns `first`.. of `y`, which has `width` of them.
    pub fn product(
        &self,
        (y, width, first): (&mut [f32], usize, usize),
        x: Mat,
        plus: Plus,
        compute: Compute,
    ) {
        let rows = self.rows();
        match &self.values {
            Values::F32(values) if rows == width => {
                let weights = Mat::new(values, rows, self.cols);
                matmul_plus(ValuesMut::F32(y), x, weights.t(), plus, compute);
            }
            Values::F16(_) | Values::Bf16(_) if x.row_count() <= FEW => {
                self.few_rows((y, width, first), x, plus, compute.threads);
            }
            _ => self.many_rows((y, width, first), x, plus, compute),
        }
    }

    fn few_rows(
        &self,
        (y, width, first): (&mut [f32], usize, usize),
        x: Mat,
        plus: Plus,
        threads: Threads,
    ) {
        let (rows, cols) = (self.rows(), self.cols);
        let tasks = match threads {
            Threads::One => 1,
            Threads::Pool => threads::shares(x.row_count()).min(rows.max(1)),
        };
        let to = threads::Shared(y.as_mut_ptr());
        let bits = match &self.values {
            Values::F16(values) | Values::Bf16(values) => values.as_slice(),
            Values::F32(_) => &[],
        };
        let is_f16 = matches!(self.values, Values::F16(_));
        threads::fan_out(tasks, &|task| {
            for row in rows * task / tasks..rows * (task + 1) / tasks {
                let weights = &bits[row * cols..][..cols];
                let put = |i: usize, sum: f32| {
                    let at = i * width + first + row;
                    let residual = plus.residual.map_or(0.0, |r| r[at]);
                    let bias = plus.bias.map_or(0.0, |b| b[first + row]);
                    // SAFETY: tasks write disjoint columns within the destination.
                    unsafe { *to.at(at) = sum + residual + bias };
                };
                let in_groups = x.row_count() / GROUP * GROUP;
                for i in (0..in_groups).step_by(GROUP) {
                    let group = std::array::from_fn(|k| x.row(i + k));
                    let sums = match is_f16 {
                        true => group_f16(weights, group),
                        false => group_bf16(weights, group),
                    };
                    for (k, sum) in sums.into_iter().enumerate() {
                        put(i + k, sum);
                    }
                }
                for i in in_groups..x.row_count() {
                    let [sum] = match is_f16 {
                        true => dot_f16(weights, [x.row(i)]),
                        false => dot_bf16(weights, [x.row(i)]),
                    };
                    put(i, sum);
                }
            }
        });
    }

    /// Widens a few rows at a time and multiplies by them like any f32 matrix.
    fn many_rows(
        &self,
        (y, width, first): (&mut [f32], usize, usize),
        x: Mat,
        plus: Plus,
        compute: Compute,
    ) {
        let n = x.row_count();
        let wide_rows = WIDE_ROWS.min(self.rows());
        let mut wide = vec![0.0; wide_rows * self.cols];
        let mut sums = vec![0.0; n * wide_rows];
        for from in (0..self.rows()).step_by(WIDE_ROWS) {
            let rows = WIDE_ROWS.min(self.rows() - from);
            let wide = &mut wide[..rows * self.cols];
            threads::rows1(wide, self.cols, self.cols, |row, part| {
                self.widen(from + row, part);
            });
            let sums = &mut sums[..n * rows];
            let weights = Mat::new(wide, rows, self.cols);
            matmul_plus(
                ValuesMut::F32(sums),
                x,
                weights.t(),
                Plus::default(),
                compute,
            );
            for (i, sums) in sums.chunks_exact(rows).enumerate() {
                let at = i * width + first + from;
                for (j, sum) in sums.iter().enumerate() {
                    let residual = plus.residual.map_or(0.0, |r| r[at + j]);
                    let bias = plus.bias.map_or(0.0, |b| b[first + from + j]);
                    y[at + j] = sum + residual + bias;
                }
            }
        }
    }
}

multiversion! {
    fn widen_f16(from: &[u16], to: &mut [f32]) {
        for (x, bits) in to.iter_mut().zip(from) {
            *x = from_f16(*bits);
        }
    }
}

multiversion! {
    fn widen_bf16(from: &[u16], to: &mut [f32]) {
        for (x, bits) in to.iter_mut().zip(from) {
            *x = from_bf16(*bits);
        }
    }
}

/// Lanes of a sum: enough that addition is not the bottleneck.
const LANES: usize = 64;
/// Rows of activations that share one widening of the weights.
const GROUP: usize = 4;
/// Lanes at a time of a group, whose sums stay in registers: two of AVX2 for each row.
const PART: usize = 16;

/// Products of a row of weights and R rows of activations. A lane adds up every 64th element, and lanes are added in halves, so a sum
/// has the same bits for every R and P.
#[inline(always)]
fn dots<const R: usize, const P: usize>(
    weights: &[u16],
    x: [&[f32]; R],
    widen: impl Fn(u16) -> f32 + Copy,
) -> [f32; R] {
    let mut lanes = [[0.0_f32; LANES]; R];
    let (w_blocks, w_rest) = weights.as_chunks::<LANES>();
    let x = x.map(|x| {
        let (blocks, rest) = x.as_chunks::<LANES>();
        (&blocks[..w_blocks.len()], &rest[..w_rest.len()])
    });
    for part in (0..LANES).step_by(P) {
        let mut sums = [[0.0_f32; P]; R];
        for (at, w) in w_blocks.iter().enumerate() {
            let w: [f32; P] = std::array::from_fn(|i| widen(w[part + i]));
            for (sums, (blocks, _)) in sums.iter_mut().zip(&x) {
                let x = &blocks[at][part..part + P];
                for i in 0..P {
                    sums[i] += w[i] * x[i];
                }
            }
        }
        for (lanes, sums) in lanes.iter_mut().zip(&sums) {
            lanes[part..part + P].copy_from_slice(sums);
        }
    }
    for (lanes, (_, rest)) in lanes.iter_mut().zip(&x) {
        for (lane, (w, x)) in lanes.iter_mut().zip(w_rest.iter().zip(*rest)) {
            *lane += widen(*w) * x;
        }
    }
    lanes.map(in_halves)
}

#[inline(always)]
fn in_halves(mut lanes: [f32; LANES]) -> f32 {
    let mut n = LANES / 2;
    while n > 0 {
        for i in 0..n {
            lanes[i] += lanes[i + n];
        }
        n /= 2;
    }
    lanes[0]
}

multiversion! {
    fn dot_f16(weights: &[u16], x: [&[f32]; 1]) -> [f32; 1] {
        dots::<1, LANES>(weights, x, from_f16)
    }
}

multiversion! {
    fn dot_bf16(weights: &[u16], x: [&[f32]; 1]) -> [f32; 1] {
        dots::<1, LANES>(weights, x, from_bf16)
    }
}

multiversion! {
    fn group_f16(weights: &[u16], x: [&[f32]; GROUP]) -> [f32; GROUP] {
        dots::<GROUP, PART>(weights, x, from_f16)
    }
}

multiversion! {
    fn group_bf16(weights: &[u16], x: [&[f32]; GROUP]) -> [f32; GROUP] {
        dots::<GROUP, PART>(weights, x, from_bf16)
    }
}
