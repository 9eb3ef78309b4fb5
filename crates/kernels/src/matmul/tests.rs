//! Matmuls against the plain sum in f64, in both dtypes, and that the thread count does not change a bit.

use super::portable::to_bf16;
use super::*;
use crate::dropout::{self, DROPOUT};
use crate::numbers::{Values, bf16};
use llmtui_base::rng::{Rng, Stream};
use proptest::prelude::*;

const BOTH: [ComputeDtype; 2] = [ComputeDtype::F32, ComputeDtype::Bf16];

/// Numbers in −1..1.
fn values(n: usize, lane: u32) -> Vec<f32> {
    let mut rng = Rng::new(5, Stream::Test, 0, lane);
    (0..n).map(|_| rng.uniform() * 2.0 - 1.0).collect()
}

/// An input (rows, cols) in memory with a gap after each row (or column, if it is transposed).
struct Stored {
    data: Vec<f32>,
    rows: usize,
    cols: usize,
    gap: usize,
    transposed: bool,
}

impl Stored {
    fn new((rows, cols): (usize, usize), gap: usize, transposed: bool, lane: u32) -> Self {
        let (lines, length) = if transposed {
            (cols, rows)
        } else {
            (rows, cols)
        };
        Stored {
            data: values(lines * (length + gap), lane),
            rows,
            cols,
            gap,
            transposed,
        }
    }

    fn view(&self) -> Mat<'_> {
        if self.transposed {
            Mat::strided(&self.data, self.cols, self.rows, self.rows + self.gap).t()
        } else {
            Mat::strided(&self.data, self.rows, self.cols, self.cols + self.gap)
        }
    }

    /// Element (i, j) as the compute dtype rounds it.
    fn at(&self, arithmetic: ComputeDtype, i: usize, j: usize) -> f64 {
        let x = if self.transposed {
            self.data[j * (self.rows + self.gap) + i]
        } else {
            self.data[i * (self.cols + self.gap) + j]
        };
        f64::from(match arithmetic {
            ComputeDtype::F32 => x,
            ComputeDtype::Bf16 => to_bf16(x),
        })
    }
}

/// Checks every element of c (+)= scale · a b, and that nothing outside the destination is written.
fn check(a: &Stored, b: &Stored, scale: f32, into: Accumulation, compute: Compute) {
    let (m, n, k) = (a.rows, b.cols, a.cols);
    let (stride, before) = (n + 3, 7.5);
    each_way(compute, |product| {
        let mut out = vec![before; m * stride + 1];
        let to = Destination {
            start: out.as_mut_ptr(),
            row_stride: stride,
            into,
        };
        product(to, a.view(), b.view(), scale);
        let exact = |i: usize, j: usize| {
            let term = |l| a.at(compute.arithmetic, i, l) * b.at(compute.arithmetic, l, j);
            f64::from(scale) * (0..k).map(term).sum::<f64>()
        };
        let base = match into {
            Accumulation::Overwrite => 0.0,
            Accumulation::Add => f64::from(before),
        };
        for (at, &x) in out.iter().enumerate() {
            let (i, j) = (at / stride, at % stride);
            if i == m || j >= n {
                assert_eq!(x, before, "({i}, {j}) is outside the destination");
                continue;
            }
            let error = (f64::from(x) - base - exact(i, j)).abs();
            let tolerance = 2e-6 * (4.0 + (k as f64).sqrt()) * f64::from(scale.abs()).max(1.0);
            assert!(
                error < tolerance,
                "({m}, {n}, {k}) {compute:?} at ({i}, {j}): {x}"
            );
        }
    });
}

/// A matmul of (destination, a, b, scale) by one of this machine's implementations.
type Product<'a> = &'a dyn Fn(Destination, Mat, Mat, f32);

/// Calls `f` with every matmul implementation of this machine.
fn each_way(compute: Compute, f: impl Fn(Product)) {
    // SAFETY: the tests pass their own destinations, which are large enough.
    f(&|to, a, b, scale| unsafe { portable::product(to, a, b, scale, compute) });
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    for kernel in packed::Kernel::all(compute.arithmetic) {
        f(&|to, a, b, scale| {
            let job = job_into(to, a, b, scale);
            // SAFETY: as above; the machine has the kernel.
            unsafe { packed::product(kernel, &job, compute.threads.count()) };
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn products_equal_the_plain_sum(
        (m, n, k) in (1..70_usize, 1..110_usize, 0..150_usize),
        (left_gap, right_gap) in (0..3_usize, 0..3_usize),
        (left_t, right_t) in any::<(bool, bool)>(),
        scale in prop_oneof![Just(1.0_f32), Just(0.25), Just(-3.0)],
        into in prop_oneof![Just(Accumulation::Overwrite), Just(Accumulation::Add)],
    ) {
        let a = Stored::new((m, k), left_gap, left_t, 1);
        let b = Stored::new((k, n), right_gap, right_t, 2);
        for arithmetic in BOTH {
            for compute in [Compute::one(arithmetic), Compute::pool(arithmetic)] {
                check(&a, &b, scale, into, compute);
            }
        }
    }
}

#[test]
fn products_of_several_blocks_equal_the_plain_sum() {
    for (m, n, k) in [(1, 700, 900), (5, 1, 1600), (250, 35, 801), (3, 2100, 40)] {
        for (left_t, right_t) in [(false, true), (false, false), (true, false), (true, true)] {
            let a = Stored::new((m, k), 0, left_t, 3);
            let b = Stored::new((k, n), 0, right_t, 4);
            for arithmetic in BOTH {
                check(&a, &b, 1.0, Accumulation::Add, Compute::pool(arithmetic));
            }
        }
    }
}

#[test]
fn an_empty_sum_overwrites_with_zeros() {
    for arithmetic in BOTH {
        let mut out = [f32::NAN; 6];
        let (a, b) = (Mat::new(&[], 2, 0), Mat::new(&[], 0, 3));
        let compute = Compute::pool(arithmetic);
        matmul(&mut out, a, b, 1.0, Accumulation::Overwrite, compute);
        assert_eq!(out, [0.0; 6]);
    }
}

#[test]
fn nan_and_infinity_propagate() {
    for arithmetic in BOTH {
        let (mut a, b) = (vec![1.0; 40 * 40], vec![1.0; 40 * 40]);
        (a[3 * 40 + 39], a[5 * 40]) = (f32::NAN, f32::INFINITY);
        let mut out = vec![0.0; 40 * 40];
        let (a, b) = (Mat::new(&a, 40, 40), Mat::new(&b, 40, 40));
        let compute = Compute::one(arithmetic);
        matmul(&mut out, a, b, 1.0, Accumulation::Overwrite, compute);
        assert!(out[3 * 40..4 * 40].iter().all(|x| x.is_nan()));
        assert!(out[5 * 40..6 * 40].iter().all(|&x| x == f32::INFINITY));
        assert_eq!(out[4 * 40], 40.0);
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    for (m, n, k) in [(768, 384, 640), (100, 90, 5000), (20, 3000, 70)] {
        let (a, b) = (values(m * k, 5), values(k * n, 6));
        for arithmetic in BOTH {
            let product = |threads, compute| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                let mut out = vec![0.0; m * n];
                pool.unwrap().install(|| {
                    let (a, b) = (Mat::new(&a, m, k), Mat::new(&b, k, n));
                    matmul(&mut out, a, b, 1.0, Accumulation::Overwrite, compute);
                });
                out
            };
            let alone = product(2, Compute::one(arithmetic));
            for threads in [1, 2, 3, 4] {
                assert!(alone == product(threads, Compute::pool(arithmetic)));
            }
        }
    }
}

#[test]
fn a_residual_and_a_bias_are_added_to_the_product() {
    for (m, n, k) in [(1, 40, 33), (70, 35, 20), (9, 100, 900)] {
        let (a, b) = (values(m * k, 7), values(n * k, 8));
        let (residual, bias) = (values(m * n, 9), values(n, 10));
        let (a, b) = (Mat::new(&a, m, k), Mat::new(&b, n, k).t());
        for compute in BOTH.map(Compute::pool) {
            let mut plain = vec![0.0; m * n];
            matmul(&mut plain, a, b, 1.0, Accumulation::Overwrite, compute);
            for (with_residual, with_bias) in [(true, true), (true, false), (false, true)] {
                let plus = Plus {
                    residual: with_residual.then_some(&residual[..]),
                    bias: with_bias.then_some(&bias[..]),
                    ..Plus::default()
                };
                let mut prepared = vec![f32::NAN; m * n];
                portable::prepare(&mut prepared, n, plus);
                let mut out = vec![f32::NAN; m * n];
                matmul_plus(ValuesMut::F32(&mut out), a, b, plus, compute);
                for (i, x) in out.iter().enumerate() {
                    assert!(
                        (x - plain[i] - prepared[i]).abs() < 1e-5,
                        "{m} {n} {k} at {i}"
                    );
                }
            }
        }
    }
}

/// Two adapters side by side over parts of the columns, and one over all of them with dropout: added to every shape of tile and
/// to few rows, next to a residual or onto the destination, equal to adding them afterwards.
#[test]
fn a_low_rank_term_is_fused_into_the_sums() {
    let sizes = [
        (1, 40, 33, 5),
        (7, 50, 20, 5),
        (70, 35, 20, 70),
        (41, 100, 900, 5),
    ];
    for (m, n, k, ranks) in sizes {
        let (a, b) = (values(m * k, 7), values(n * k, 8));
        let (a, b) = (Mat::new(&a, m, k), Mat::new(&b, n, k).t());
        let middle = n / 2;
        // Numbers that bf16 can represent: rounding makes no difference.
        let [z, mut factor] = [(m * ranks, 9), (ranks * n, 10)].map(|(n, lane)| {
            let values = values(n, lane).into_iter().map(to_bf16);
            values.collect::<Vec<_>>()
        });
        for (r, factor) in factor.chunks_exact_mut(n).enumerate() {
            let unused = if r < 2 { middle..n } else { 0..middle };
            factor[unused].fill(0.0);
        }
        let used: Vec<_> = (0..n)
            .step_by(GROUP)
            .map(|first| {
                let from = if first < middle { 0 } else { 2 };
                let to = if first + GROUP <= middle { 2 } else { ranks };
                (from, to as u16)
            })
            .collect();
        let mut mask = vec![0.0; m * dropout::mask_words(n)];
        dropout::draw_mask(&DROPOUT, n, &mut mask);
        let before = values(m * n, 11);
        for (used, kept, scale) in [
            (&used[..], None, 1.0),
            (&[], None, 0.5),
            (&[], Some(DROPOUT.kept(&mask, n)), 1.0),
        ] {
            let low_rank = LowRank {
                z: &z,
                ranks,
                factor: &factor,
                used,
                kept,
                scale,
            };
            for compute in BOTH.map(Compute::pool) {
                let mut wanted = before.clone();
                matmul(&mut wanted, a, b, 1.0, Accumulation::Add, compute);
                for (at, wanted) in wanted.iter_mut().enumerate() {
                    let (row, col) = (at / n, at % n);
                    let terms = (0..ranks).map(|r| z[row * ranks + r] * factor[r * n + col]);
                    let factor = kept.map_or(1.0, |kept| {
                        let is_kept = kept.bits(row, col / 8 * 8) >> (col % 8) & 1 == 1;
                        if is_kept { kept.scale } else { 0.0 }
                    });
                    *wanted += scale * factor * terms.sum::<f32>();
                }
                let check = |out: &[f32], tolerance: f32| {
                    for (at, (x, wanted)) in out.iter().zip(&wanted).enumerate() {
                        let near = tolerance * wanted.abs().max(1.0);
                        assert!(
                            (x - wanted).abs() < near,
                            "{m} {n} {k} at {at}: {x}, {wanted}"
                        );
                    }
                };
                let low_rank = Some(low_rank);
                let beside = Plus {
                    residual: Some(&before),
                    low_rank,
                    ..Plus::default()
                };
                let mut out = vec![f32::NAN; m * n];
                matmul_plus(ValuesMut::F32(&mut out), a, b, beside, compute);
                check(&out, 1e-5);
                let mut kept = vec![bf16::NAN; m * n];
                matmul_plus(ValuesMut::Bf16(&mut kept), a, b, beside, compute);
                check(&Values::Bf16(&kept).as_f32(), 1.0 / 256.0);
                let mut out = before.clone();
                let onto = Plus {
                    into: Accumulation::Add,
                    low_rank,
                    ..Plus::default()
                };
                matmul_plus(ValuesMut::F32(&mut out), a, b, onto, compute);
                check(&out, 1e-5);
            }
        }
    }
}

fn maybe_transposed(data: Values, (rows, cols): (usize, usize), is_transposed: bool) -> Mat {
    match is_transposed {
        true => Mat::of(data, cols, rows).t(),
        false => Mat::of(data, rows, cols),
    }
}

/// Inputs stored in bf16 are what f32 inputs are rounded to, so every bit is the same; a sum stored in bf16 is rounded once.
#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
#[test]
fn bf16_storage_is_read_and_written_as_bf16() {
    let halves = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    for (m, n, k) in [
        (1, 9, 7),
        (3, 40, 65),
        (70, 35, 900),
        (129, 100, 33),
        (40, 70, 1),
    ] {
        let plus = [values(m * n, 21), values(n, 22)];
        let plus = Plus {
            residual: Some(&plus[0]),
            bias: Some(&plus[1]),
            ..Plus::default()
        };
        for (left_t, right_t) in [(false, true), (false, false), (true, false), (true, true)] {
            let (x, y) = (halves(&values(m * k, 23)), halves(&values(k * n, 24)));
            let wide = [&x, &y].map(|x| Values::Bf16(x).as_f32());
            let (left, right) = ((m, k), (k, n));
            for compute in BOTH.map(Compute::pool) {
                let mut sums = vec![f32::NAN; m * n];
                let (a, b) = (
                    maybe_transposed(Values::F32(&wide[0]), left, left_t),
                    maybe_transposed(Values::F32(&wide[1]), right, right_t),
                );
                matmul_plus(ValuesMut::F32(&mut sums), a, b, plus, compute);
                let mut same = vec![f32::NAN; m * n];
                let (a, b) = (
                    maybe_transposed(Values::Bf16(&x), left, left_t),
                    maybe_transposed(Values::Bf16(&y), right, right_t),
                );
                matmul_plus(ValuesMut::F32(&mut same), a, b, plus, compute);
                // The portable fallback copies what it does not read in place, and sums a copy in another order.
                let is_own = packed::Kernel::best(compute.arithmetic).is_some();
                let near = same.iter().zip(&sums).all(|(a, b)| (a - b).abs() < 1e-4);
                assert!(
                    same == sums || !is_own && near,
                    "{m} {n} {k} {left_t} {right_t} {compute:?}"
                );
                let mut kept = vec![bf16::NAN; m * n];
                matmul_plus(ValuesMut::Bf16(&mut kept), a, b, plus, compute);
                for (kept, sum) in kept.iter().zip(sums) {
                    let error = (kept.to_f32() - sum).abs();
                    assert!(
                        error <= sum.abs() / 256.0 + 1e-5,
                        "{kept} of {sum}, {m} {n} {k}"
                    );
                }
            }
        }
    }
}

/// Texts generated in one batch equal those generated alone. (The portable fallback does not promise this.)
#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
#[test]
fn a_row_has_the_same_bits_for_any_number_of_rows() {
    let (n, max) = (29, 32);
    for k in [1, 40, 64, 577] {
        let (x, weights) = (values(max * k, 11), values(n * k, 12));
        let weights = Mat::new(&weights, n, k).t();
        for kernel in BOTH.into_iter().flat_map(packed::Kernel::all) {
            let rows = |m: usize| {
                let mut out = vec![0.0; m * n];
                let to = Destination {
                    start: out.as_mut_ptr(),
                    row_stride: n,
                    into: Accumulation::Overwrite,
                };
                let job = job_into(to, Mat::new(&x, m, k), weights, 1.0);
                // SAFETY: the machine has the kernel, and the destination m rows of n.
                unsafe { packed::product(kernel, &job, 1) };
                out
            };
            let all = rows(max);
            for m in 1..max {
                assert!(rows(m) == all[..m * n], "{m} rows of {k}, {kernel:?}");
            }
        }
    }
}

/// Products with 2^126, which makes even the smallest numbers visible.
#[test]
fn only_subnormal_inputs_count_as_0() {
    let big = 2_f32.powi(126);
    let tiny = [
        (f32::MIN_POSITIVE, 1.0),
        (-f32::MIN_POSITIVE, -1.0),
        (f32::MIN_POSITIVE.next_down(), 0.0),
        (-f32::MIN_POSITIVE.next_down(), 0.0),
        (1e-40, 0.0),
        (f32::from_bits(1), 0.0),
        (0.0, 0.0),
        (-0.0, 0.0),
        (3.0 * f32::MIN_POSITIVE, 3.0),
        (f32::INFINITY, f32::INFINITY),
        (f32::NEG_INFINITY, f32::NEG_INFINITY),
        (f32::NAN, f32::NAN),
    ];
    // Few rows as well, and sizes that are not a multiple of any register.
    for (m, n, k) in [(50, 70, 37), (33, 33, 1), (3, 45, 33)] {
        for transposed in [false, true] {
            for compute in BOTH.map(Compute::one) {
                each_way(compute, |product| {
                    for (x, expected) in tiny {
                        let stored = |lines: usize, value| {
                            let mut stored = Stored::new((lines, k), 1, transposed, 13);
                            stored.data.fill(value);
                            stored
                        };
                        let (few, many) = (stored(m, x), stored(n, big));
                        let (few_big, many_tiny) = (stored(m, big), stored(n, x));
                        let mut sides = vec![(&few, &many)];
                        if m > 32 {
                            sides.push((&few_big, &many_tiny));
                        }
                        for (a, b) in sides {
                            let mut out = vec![7.0; m * n];
                            let to = Destination {
                                start: out.as_mut_ptr(),
                                row_stride: n,
                                into: Accumulation::Overwrite,
                            };
                            product(to, a.view(), b.view().t(), 1.0);
                            // Bitwise equal, except for the sign of a zero.
                            let sum = expected * k as f32;
                            let is_sum = |y: &f32| *y == sum || y.is_nan() && sum.is_nan();
                            let wrong = out.iter().find(|y| !is_sum(y));
                            assert_eq!(wrong, None, "{x:e} in ({m}, {n}, {k}) {compute:?}");
                        }
                    }
                });
            }
        }
    }
}
