//! Products with a skinny matrix of a few dozen rows, as those of adapters: packing would take longer than the products. Inputs
//! are read once, where they lie; dropout is a mask of bits over what is read or written.
//!
//! A factor is (rank, d), row-major, and beside it stand x (rows, d) and z (rows, rank). Sums run in the same order for any number
//! of threads.
#![allow(unsafe_code)]

use super::dropout::Kept;
use super::fetch;
use super::lanes::{Buffer, InLanes, LINE, Vector, widest};
use super::matmul::{Accumulation, Destination, Mat};
use super::numbers::{Number, Values, bf16};
use super::simd::has_bf16;
use super::threads::{self, Shared};
use std::cell::{Cell, RefCell};

/// Whether these beat packed matmuls at a rank, of A's side of an adapter with dropout in front: level at 24 on processors with AMX.
pub fn pays(rank: usize) -> bool {
    rank <= 24
}

/// Rows of a task.
const ROWS: usize = 32;
/// Columns of a task of [`factor_gradient`], and of a pass over its rows: its sums stay in the L1 cache.
const COLUMNS: usize = 128;

/// A matrix within a larger one.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub rows: usize,
    /// Columns from `first` on, of `width` in all.
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
    /// `values` are not the larger matrix.
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
    // Numbers that are bf16 in any case are multiplied in pairs, which must begin at whole words.
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
            x: (Source::of(x), at),
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

/// `x` += `scale` · `z` · `factor`, where it is kept.
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
            x: (Source::F32(x.0), at),
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
        x: (Source::of(x), at),
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

/// `turned` (cols, rows) = `matrix` (rows, cols) transposed.
pub fn transpose(matrix: &[f32], cols: usize, turned: &mut [f32]) {
    let rows = matrix.len() / cols.max(1);
    for (i, row) in matrix.chunks_exact(cols).enumerate() {
        for (j, x) in row.iter().enumerate() {
            turned[j * rows + i] = *x;
        }
    }
}

thread_local! {
    static SUMS: RefCell<Buffer> = RefCell::default();
    /// A factor in bf16. Taken out while in use: a waiting thread may be given other work.
    static ROUNDED: Cell<Vec<bf16>> = const { Cell::new(Vec::new()) };
}

/// Numbers of a register of pairs.
const PAIRS: usize = 2 * LINE;

/// Numbers from a row of a factor in bf16 to the next: whole registers.
fn pair_stride(cols: usize) -> usize {
    cols.next_multiple_of(PAIRS)
}

fn each_rows(rows: usize, cost: usize, work: impl Fn(usize, usize) + Sync + Send) {
    threads::tasks(rows.div_ceil(ROWS), ROWS * cost, |task| {
        let first = task * ROWS;
        work(first, ROWS.min(rows - first));
    });
}

/// Where numbers lie that tasks read.
#[derive(Clone, Copy)]
enum Source {
    F32(*const f32),
    Bf16(*const bf16),
}

impl Source {
    fn of(values: Values) -> Source {
        match values {
            Values::F32(x) => Source::F32(x.as_ptr()),
            Values::Bf16(x) => Source::Bf16(x.as_ptr()),
        }
    }
}

/// The body for what numbers lie there; a closure would not have the instructions.
macro_rules! of_numbers {
    ($source:expr, |$x:ident| $body:expr) => {
        match $source {
            Source::F32($x) => $body,
            Source::Bf16($x) => $body,
        }
    };
}

/// What a task reads.
struct Job<'a> {
    x: (Source, View),
    z: (*const f32, View),
    kept: Option<Kept<'a>>,
    factor: &'a [f32],
    /// The factor in bf16, rows [`pair_stride`] apart.
    rounded: &'a [bf16],
    scale: f32,
}

// SAFETY: tasks read it.
unsafe impl Sync for Job<'_> {}
// SAFETY: as above.
unsafe impl Send for Job<'_> {}

impl Job<'_> {
    /// `n` features of a row from `column` on, 0 where they are dropped.
    #[inline(always)]
    unsafe fn features<V: Vector>(
        &self,
        x: *const impl InLanes,
        (row, column): (usize, usize),
        n: usize,
    ) -> V {
        // SAFETY: the caller names a place within x.
        unsafe {
            let x: V = InLanes::load_first(x.add(self.x.1.start(row) + column), n);
            match self.kept {
                Some(kept) => x.keep_bits(kept.bits(row, column)),
                None => x,
            }
        }
    }
}

/// The body for each register of `n` numbers, with its first number and their count; only the last may be shorter. A closure would
/// not have the instructions.
macro_rules! registers {
    ($V:ident, $n:expr, |$at:ident, $count:ident| $body:block) => {{
        let whole = $n / $V::LANES * $V::LANES;
        for $at in (0..whole).step_by($V::LANES) {
            let $count = $V::LANES;
            $body
        }
        if whole < $n {
            let ($at, $count) = (whole, $n - whole);
            $body
        }
    }};
}

/// Calls `f::<V, M, R>(job, out, row, rank)` for blocks of M rows and R ranks that cover all of them: 2 rows or 1, and 8, 4, 2 or 1
/// ranks.
macro_rules! in_blocks {
    ($f:ident::<$V:ident>($job:ident, $out:ident), ($first:ident, $rows:ident)) => {{
        let (ranks, end) = ($job.z.1.cols, $first + $rows);
        let mut row = $first;
        while row + 1 < end {
            in_blocks!(@ $f, $V, 2, $job, $out, row, ranks);
            row += 2;
        }
        if row < end {
            in_blocks!(@ $f, $V, 1, $job, $out, row, ranks);
        }
    }};
    (@ $f:ident, $V:ident, $M:literal, $job:ident, $out:ident, $row:ident, $ranks:ident) => {{
        let mut rank = 0;
        while rank < $ranks {
            rank += match $ranks - rank {
                8.. => in_blocks!(@ $f::<$V, $M, 8>($job, $out, $row, rank)),
                4.. => in_blocks!(@ $f::<$V, $M, 4>($job, $out, $row, rank)),
                2.. => in_blocks!(@ $f::<$V, $M, 2>($job, $out, $row, rank)),
                _ => in_blocks!(@ $f::<$V, $M, 1>($job, $out, $row, rank)),
            };
        }
    }};
    (@ $f:ident::<$V:ident, $M:literal, $R:literal>$arguments:tt) => {{
        $f::<$V, $M, $R> $arguments;
        $R
    }};
}

widest! { fn project_rows(pairs, job: &Job<'_>, z: Shared, first: usize, rows: usize) = project_with }

#[inline(always)]
unsafe fn project_with<V: Vector>(job: &Job<'_>, z: Shared, first: usize, rows: usize) {
    // SAFETY: the caller's.
    unsafe {
        if V::NUMBERS == 2
            && let Source::Bf16(x) = job.x.0
        {
            let at = (x, z);
            return in_blocks!(project_pairs_at::<V>(job, at), (first, rows));
        }
        of_numbers!(job.x.0, |x| {
            let at = (x, z);
            in_blocks!(project_at::<V>(job, at), (first, rows));
        });
    }
}

#[inline(always)]
unsafe fn project_at<V: Vector, const M: usize, const R: usize>(
    job: &Job<'_>,
    (from, z): (*const impl InLanes, Shared),
    row: usize,
    rank: usize,
) {
    let (d, to) = (job.x.1.cols, job.z.1);
    let factor = job.factor[rank * d..(rank + R) * d].as_ptr();
    // SAFETY: rows of x and z, ranks of the factor.
    unsafe {
        let mut sums = [[V::zero(); R]; M];
        registers!(V, d, |at, n| {
            let mut x = [V::zero(); M];
            for (i, x) in x.iter_mut().enumerate() {
                *x = job.features::<V>(from, (row + i, at), n);
            }
            for r in 0..R {
                let f = V::load_first(factor.add(r * d + at), n);
                for (sums, x) in sums.iter_mut().zip(x) {
                    sums[r] = f.fused(x, sums[r]);
                }
            }
        });
        for (i, sums) in sums.into_iter().enumerate() {
            for (r, sum) in sums.into_iter().enumerate() {
                *z.at(to.start(row + i) + rank + r) = sum.total() * job.scale;
            }
        }
    }
}

/// The same of pairs.
#[inline(always)]
unsafe fn project_pairs_at<V: Vector, const M: usize, const R: usize>(
    job: &Job<'_>,
    (from, z): (*const bf16, Shared),
    row: usize,
    rank: usize,
) {
    let (at, to) = (job.x.1, job.z.1);
    let stride = pair_stride(at.cols);
    let factor = job.rounded[rank * stride..(rank + R) * stride].as_ptr();
    // SAFETY: rows of x and z, ranks of the factor.
    unsafe {
        let mut sums = [[V::zero(); R]; M];
        for column in (0..at.cols).step_by(PAIRS) {
            let mut x = [V::zero(); M];
            for (i, x) in x.iter_mut().enumerate() {
                let from = from.add(at.start(row + i) + column);
                let words = pairs_of::<V>(from, at.cols - column);
                *x = match job.kept {
                    Some(kept) => words.keep_numbers(kept.bits(row + i, column)),
                    None => words,
                };
            }
            for r in 0..R {
                let f = V::load(factor.add(r * stride + column).cast());
                for (sums, x) in sums.iter_mut().zip(x) {
                    sums[r] = f.multiply_add(x, sums[r]);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (r, sum) in sums.into_iter().enumerate() {
                *z.at(to.start(row + i) + rank + r) = sum.total() * job.scale;
            }
        }
    }
}

/// Up to `n` numbers as pairs, and 0.
#[inline(always)]
unsafe fn pairs_of<V: Vector>(from: *const bf16, n: usize) -> V {
    #[repr(align(64))]
    struct Line([bf16; PAIRS]);
    // SAFETY: the caller's, for n numbers.
    unsafe {
        if n >= PAIRS {
            return V::load(from.cast());
        }
        let mut line = Line([bf16::ZERO; PAIRS]);
        std::ptr::copy_nonoverlapping(from, line.0.as_mut_ptr(), n);
        V::load(line.0.as_ptr().cast())
    }
}

widest! { fn expand_rows(pairs, job: &Job<'_>, x: Shared, first: usize, rows: usize) = expand_with }

#[inline(always)]
unsafe fn expand_with<V: Vector>(job: &Job<'_>, x: Shared, first: usize, rows: usize) {
    // SAFETY: the caller's.
    unsafe { in_blocks!(expand_at::<V>(job, x), (first, rows)) }
}

#[inline(always)]
unsafe fn expand_at<V: Vector, const M: usize, const R: usize>(
    job: &Job<'_>,
    x: Shared,
    row: usize,
    rank: usize,
) {
    let ((z, from), at) = (job.z, job.x.1);
    let d = at.cols;
    let factor = job.factor[rank * d..(rank + R) * d].as_ptr();
    // SAFETY: rows of x and z, ranks of the factor.
    unsafe {
        let mut weights = [[V::zero(); R]; M];
        for (i, weights) in weights.iter_mut().enumerate() {
            for (r, weight) in weights.iter_mut().enumerate() {
                *weight = V::all(*z.add(from.start(row + i) + rank + r) * job.scale);
            }
        }
        registers!(V, d, |column, n| {
            let mut sums = [V::zero(); M];
            for r in 0..R {
                let f = V::load_first(factor.add(r * d + column), n);
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = weights[r].fused(f, *sum);
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                let sum = match job.kept {
                    Some(kept) => sum.keep_bits(kept.bits(row + i, column)),
                    None => sum,
                };
                let to = x.at(at.start(row + i) + column);
                V::load_first(to, n).plus(sum).store_first(to, n);
            }
        });
    }
}

widest! { fn sum_columns(pairs, job: &Job<'_>, cols: (usize, usize), sums: &mut [f32]) = sum_columns_with }

#[inline(always)]
unsafe fn sum_columns_with<V: Vector>(job: &Job<'_>, cols: (usize, usize), sums: &mut [f32]) {
    sums.fill(0.0);
    // SAFETY: the caller's.
    unsafe { of_numbers!(job.x.0, |x| sum_all::<V>(job, x, cols, sums)) }
}

#[inline(always)]
unsafe fn sum_all<V: Vector>(
    job: &Job<'_>,
    x: *const impl InLanes,
    cols: (usize, usize),
    sums: &mut [f32],
) {
    const TOGETHER: usize = 8;
    let at = job.x.1;
    let whole = at.rows / TOGETHER * TOGETHER;
    // SAFETY: the caller's.
    unsafe {
        for row in (0..whole).step_by(TOGETHER) {
            let next = x.wrapping_add(at.start(row + TOGETHER) + cols.0);
            for i in 0..TOGETHER {
                fetch::at(next.wrapping_add(i * at.width), cols.1);
            }
            sum_rows::<V, TOGETHER>(job, x, (row, cols), sums);
        }
        for row in whole..at.rows {
            sum_rows::<V, 1>(job, x, (row, cols), sums);
        }
    }
}

#[inline(always)]
unsafe fn sum_rows<V: Vector, const M: usize>(
    job: &Job<'_>,
    from: *const impl InLanes,
    (row, (first, cols)): (usize, (usize, usize)),
    sums: &mut [f32],
) {
    let (z, of) = job.z;
    // SAFETY: rows of x and z, columns of x; sums are whole lines.
    unsafe {
        registers!(V, cols, |at, n| {
            let mut x = [V::zero(); M];
            for (i, x) in x.iter_mut().enumerate() {
                *x = job.features::<V>(from, (row + i, first + at), n);
            }
            for r in 0..of.cols {
                let to = sums.as_mut_ptr().add(r * COLUMNS + at);
                let mut sum = V::load(to);
                for (i, x) in x.into_iter().enumerate() {
                    sum = V::splat(z.add(of.start(row + i) + r)).fused(x, sum);
                }
                sum.store(to);
            }
        });
    }
}

const _: () = assert!(COLUMNS.is_multiple_of(LINE));

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
        // Masks are of whole rows.
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
        let (mut turned, mut back) = (vec![0.0; 35], vec![0.0; 35]);
        transpose(&matrix, 7, &mut turned);
        assert_eq!((turned[1], turned[5]), (matrix[7], matrix[1]));
        transpose(&turned, 5, &mut back);
        assert_eq!(back, matrix);
    }
}
