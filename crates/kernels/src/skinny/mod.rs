//! Matmuls with a skinny factor of a few dozen rows (LoRA ranks): packing would take longer than the matmul. Inputs are read
//! once, in place; dropout is a bit mask over what is read or written.
//!
//! A factor is (rank, d), row-major, applied to x (rows, d) and z (rows, rank). Sums run in the same order for any number
//! of threads.
#![allow(unsafe_code)]

mod kernels;

use super::dropout::Kept;
use super::lanes::{Buffer, LINE};
use super::matmul::{Accumulation, Destination, Mat};
use super::numbers::{Number, Values, bf16};
use super::pointers::ReadPtr;
use super::simd::has_bf16;
use super::threads::{self, Shared};
use kernels::{Job, expand_rows, project_rows, sum_columns};
use std::cell::{Cell, RefCell};

/// Whether these beat packed matmuls at a rank, for A's side of an adapter with dropout before it: break-even at 24 with AMX.
pub fn is_profitable(rank: usize) -> bool {
    rank <= 24
}

/// Rows of a task.
const ROWS: usize = 32;
/// Columns per task of [`factor_gradient`], and per pass over its rows: its sums stay in the L1 cache.
const COLUMNS: usize = 128;

/// A matrix within a larger one.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub rows: usize,
    /// Columns from `first` on, of `width` in total.
    pub first: usize,
    pub cols: usize,
    pub width: usize,
}

impl View {
    pub fn whole(rows: usize, cols: usize) -> View {
        View {
            rows,
            first: 0,
            cols,
            width: cols,
        }
    }

    /// # Panics
    /// If `values` does not have the size of the larger matrix.
    pub fn mat<'a>(&self, values: Values<'a>) -> Mat<'a> {
        self.check(values.len());
        Mat::of(values, self.rows, self.width).columns(self.first, self.cols)
    }

    /// # Panics
    /// As for [`View::mat`].
    pub fn destination(&self, values: &mut [f32], into: Accumulation) -> Destination {
        self.check(values.len());
        Destination {
            start: values[self.first..].as_mut_ptr(),
            row_stride: self.width,
            into,
        }
    }

    fn check(&self, len: usize) {
        assert_eq!(len, self.rows * self.width, "a skinny product");
        assert!(self.first + self.cols <= self.width, "its columns");
    }

    fn start(&self, row: usize) -> usize {
        row * self.width + self.first
    }
}

/// `z` (rows, rank) = `scale` · `x` · `factor`ᵀ.
pub fn project(
    (x, at): (Values, View),
    kept: Option<Kept>,
    factor: &[f32],
    scale: f32,
    (z, to): (&mut [f32], View),
) {
    at.check(x.len());
    to.check(z.len());
    assert_eq!(factor.len(), to.cols * at.cols, "a factor");
    // Numbers that are rounded to bf16 anyway are multiplied in pairs, which must begin at whole words.
    let is_even = at.first.is_multiple_of(2) && at.width.is_multiple_of(2);
    let pairs = is_even && has_bf16() && matches!(x, Values::Bf16(_));
    let mut rounded = ROUNDED.take();
    if pairs {
        rounded.clear();
        for row in factor.chunks_exact(at.cols) {
            let start = rounded.len();
            rounded.extend(row.iter().map(|&x| bf16::narrow(x)));
            rounded.resize(start + pair_stride(at.cols), bf16::ZERO);
        }
    }
    let z = Shared(z.as_mut_ptr());
    each_rows(at.rows, 2 * to.cols * at.cols, |first, rows| {
        let job = Job {
            x: (ReadPtr::of(x), at),
            z: (z.0.cast_const(), to),
            kept,
            factor,
            rounded: &rounded,
            scale: scale * kept.map_or(1.0, |kept| kept.scale),
        };
        // SAFETY: all sizes were checked, and each task writes its rows.
        unsafe { project_rows(pairs, &job, z, first, rows) }
    });
    ROUNDED.set(rounded);
}

/// `x` += `scale` · `z` · `factor`, where the mask keeps it.
pub fn expand(
    (z, from): (&[f32], View),
    factor: &[f32],
    scale: f32,
    kept: Option<Kept>,
    (x, at): (&mut [f32], View),
) {
    at.check(x.len());
    from.check(z.len());
    assert_eq!(factor.len(), from.cols * at.cols, "a factor");
    let x = Shared(x.as_mut_ptr());
    each_rows(at.rows, 2 * from.cols * at.cols, |first, rows| {
        let job = Job {
            x: (ReadPtr::F32(x.0), at),
            z: (z.as_ptr(), from),
            kept,
            factor,
            rounded: &[],
            scale: scale * kept.map_or(1.0, |kept| kept.scale),
        };
        // SAFETY: as above.
        unsafe { expand_rows(false, &job, x, first, rows) }
    });
}

/// `dfactor` (rank, d) = (or +=) `scale` · `z`ᵀ · `x`.
pub fn factor_gradient(
    (z, from): (&[f32], View),
    (x, at): (Values, View),
    kept: Option<Kept>,
    scale: f32,
    dfactor: &mut [f32],
    into: Accumulation,
) {
    at.check(x.len());
    from.check(z.len());
    assert_eq!(dfactor.len(), from.cols * at.cols, "a factor's gradient");
    let job = Job {
        x: (ReadPtr::of(x), at),
        z: (z.as_ptr(), from),
        kept,
        factor: &[],
        rounded: &[],
        scale: scale * kept.map_or(1.0, |kept| kept.scale),
    };
    let to = Shared(dfactor.as_mut_ptr());
    let tasks = at.cols.div_ceil(COLUMNS);
    let cost = 2 * at.rows * from.cols * COLUMNS;
    threads::tasks(tasks, cost, |task| {
        let first = task * COLUMNS;
        let cols = COLUMNS.min(at.cols - first);
        SUMS.with_borrow_mut(|sums| {
            let sums = &mut sums.get(from.cols * COLUMNS)[..from.cols * COLUMNS];
            // SAFETY: as above, for columns.
            unsafe {
                sum_columns(false, &job, (first, cols), sums);
                for (r, sums) in sums.chunks_exact(COLUMNS).enumerate() {
                    let start = to.at(r * at.cols + first);
                    let to = std::slice::from_raw_parts_mut(start, cols);
                    for (to, sum) in to.iter_mut().zip(sums) {
                        let sum = sum * job.scale;
                        *to = match into {
                            Accumulation::Overwrite => sum,
                            Accumulation::Add => *to + sum,
                        };
                    }
                }
            }
        });
    });
}

/// `transposed` (cols, rows) = `matrix` (rows, cols) transposed.
pub fn transpose(matrix: &[f32], cols: usize, transposed: &mut [f32]) {
    let rows = matrix.len() / cols.max(1);
    for (i, row) in matrix.chunks_exact(cols).enumerate() {
        for (j, x) in row.iter().enumerate() {
            transposed[j * rows + i] = *x;
        }
    }
}

thread_local! {
    static SUMS: RefCell<Buffer> = RefCell::default();
    /// A factor in bf16. Moved out while in use: a waiting thread may be given other work.
    static ROUNDED: Cell<Vec<bf16>> = const { Cell::new(Vec::new()) };
}

/// Numbers per register of pairs.
const PAIRS: usize = 2 * LINE;

/// Row stride of a factor in bf16: whole registers.
fn pair_stride(cols: usize) -> usize {
    cols.next_multiple_of(PAIRS)
}

fn each_rows(rows: usize, cost: usize, work: impl Fn(usize, usize) + Sync + Send) {
    threads::tasks(rows.div_ceil(ROWS), ROWS * cost, |task| {
        let first = task * ROWS;
        work(first, ROWS.min(rows - first));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};
    use crate::dropout::{self, DROPOUT};

    /// z = 0.5 · dropout(x) · factorᵀ and its gradients, within wider matrices, against candle in f64.
    #[test]
    fn gradients_agree_with_candle_in_f64() {
        for (rows, rank, d) in [
            (1, 1, 1),
            (5, 3, 7),
            (34, 8, 48),
            (70, 15, 300),
            (9, 24, 130),
        ] {
            for dropped in [false, true] {
                check(rows, rank, d, dropped);
            }
        }
    }

    fn check(rows: usize, rank: usize, d: usize, dropped: bool) {
        // Masks cover whole rows.
        let beside = if dropped { 0 } else { 3 };
        let at = View {
            first: beside / 2,
            width: d + beside,
            ..View::whole(rows, d)
        };
        let to = View {
            first: 2,
            width: rank + 5,
            ..View::whole(rows, rank)
        };
        let (x, factor) = (normal(rows * at.width, 0), normal(rank * d, 1));
        let dz = normal(rows * to.width, 2);
        let mut mask = vec![0.0; rows * dropout::mask_words(d)];
        dropout::draw_mask(&DROPOUT, d, &mut mask);
        let kept = dropped.then(|| DROPOUT.kept(&mask, d));
        let (lx, lf) = (leaf(&x, &[rows, at.width]), leaf(&factor, &[rank, d]));
        let (exact, grads) = oracle(&[&lx, &lf], &dz, || {
            let part = lx.narrow(1, at.first, d)?;
            let part = match dropped {
                true => dropout::composite(&DROPOUT, &part)?,
                false => part,
            };
            let z = (part.matmul(&lf.t()?)? * 0.5)?;
            z.pad_with_zeros(1, to.first, 3)
        });
        let mut z = vec![0.0; dz.len()];
        project((Values::F32(&x), at), kept, &factor, 0.5, (&mut z, to));
        assert_close("z", &z, &exact, 1e-6);
        let halves: Vec<bf16> = x.iter().map(|&x| bf16::narrow(x)).collect();
        let (wide, near) = (Values::Bf16(&halves).as_f32(), rounded(&factor));
        let (mut kept_f32, mut kept_bf16) = (z.clone(), z.clone());
        project(
            (Values::F32(&wide), at),
            kept,
            &near,
            0.5,
            (&mut kept_f32, to),
        );
        project(
            (Values::Bf16(&halves), at),
            kept,
            &near,
            0.5,
            (&mut kept_bf16, to),
        );
        let exact_f32: Vec<f64> = kept_f32.iter().map(|&x| f64::from(x)).collect();
        assert_close("z of bf16", &kept_bf16, &exact_f32, 1e-5);
        let mut dx = vec![0.0; x.len()];
        expand((&dz, to), &factor, 0.5, kept, (&mut dx, at));
        assert_close("dx", &dx, &grads[0], 1e-6);
        expand((&dz, to), &factor, 0.5, kept, (&mut dx, at));
        let twice: Vec<f64> = grads[0].iter().map(|x| 2.0 * x).collect();
        assert_close("dx, added", &dx, &twice, 1e-6);
        let mut sums = [vec![f32::NAN; factor.len()], vec![f32::NAN; factor.len()]];
        for (x, sums) in [Values::F32(&wide), Values::Bf16(&halves)]
            .into_iter()
            .zip(&mut sums)
        {
            factor_gradient((&dz, to), (x, at), kept, 0.5, sums, Accumulation::Overwrite);
        }
        assert!(sums[0] == sums[1], "dfactor of bf16");
        let mut dfactor = vec![f32::NAN; factor.len()];
        for (times, into) in [(1.0, Accumulation::Overwrite), (2.0, Accumulation::Add)] {
            factor_gradient(
                (&dz, to),
                (Values::F32(&x), at),
                kept,
                0.5,
                &mut dfactor,
                into,
            );
            let exact: Vec<f64> = grads[1].iter().map(|x| times * x).collect();
            assert_close("dfactor", &dfactor, &exact, 1e-6);
        }
    }

    fn rounded(x: &[f32]) -> Vec<f32> {
        x.iter().map(|&x| bf16::narrow(x).wide()).collect()
    }

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        let (rows, rank, d) = (300, 12, 400);
        let (x, factor) = (normal(rows * d, 0), normal(rank * d, 1));
        let at = View::whole(rows, d);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.unwrap().install(|| {
                let (mut z, mut dfactor) = (vec![0.0; rows * rank], vec![0.0; rank * d]);
                let of = View::whole(rows, rank);
                project((Values::F32(&x), at), None, &factor, 1.0, (&mut z, of));
                let overwrite = Accumulation::Overwrite;
                factor_gradient(
                    (&z, of),
                    (Values::F32(&x), at),
                    None,
                    1.0,
                    &mut dfactor,
                    overwrite,
                );
                let mut y = x.clone();
                expand((&z, of), &factor, 1.0, None, (&mut y, at));
                [z, dfactor, y]
            })
        };
        assert!(run(1) == run(3));
    }

    #[test]
    fn a_transpose_of_a_transpose_is_the_matrix() {
        let matrix = normal(35, 0);
        let (mut transposed, mut back) = (vec![0.0; 35], vec![0.0; 35]);
        transpose(&matrix, 7, &mut transposed);
        assert_eq!((transposed[1], transposed[5]), (matrix[7], matrix[1]));
        transpose(&transposed, 5, &mut back);
        assert_eq!(back, matrix);
    }
}
