//! Products against the plain sum in f64, in both arithmetics, and that threads do not change a bit.

use super::portable::to_bf16;
use super::*;

const BOTH: [Arithmetic; 2] = [Arithmetic::F32, Arithmetic::Bf16];

fn values(n: usize, step: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * step).sin()).collect()
}

fn transposed(x: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..rows * cols)
        .map(|i| x[(i % rows) * cols + i / rows])
        .collect()
}

/// The factor as the arithmetic takes it.
fn taken(arithmetic: Arithmetic, x: f32) -> f64 {
    f64::from(match arithmetic {
        Arithmetic::F32 => x,
        Arithmetic::Bf16 => to_bf16(x),
    })
}

fn exact(
    arithmetic: Arithmetic,
    (m, n, k): (usize, usize, usize),
    a: &[f32],
    b: &[f32],
) -> Vec<f64> {
    let term = |i: usize, j: usize, l: usize| {
        taken(arithmetic, a[i * k + l]) * taken(arithmetic, b[l * n + j])
    };
    (0..m * n)
        .map(|at| (0..k).map(|l| term(at / n, at % n, l)).sum())
        .collect()
}

#[test]
fn products_equal_the_plain_sum_for_odd_shapes_and_transposes() {
    for (m, n, k) in [
        (1, 1, 1),
        (1, 33, 17),
        (7, 5, 3),
        (65, 31, 130),
        (2, 200, 1),
    ] {
        let (a, b) = (values(m * k, 0.7), values(k * n, 0.3));
        let (at, bt) = (transposed(&a, m, k), transposed(&b, k, n));
        let lefts = [Mat::new(&a, m, k), Mat::new(&at, k, m).t()];
        let rights = [Mat::new(&b, k, n), Mat::new(&bt, n, k).t()];
        for arithmetic in BOTH {
            let exact = exact(arithmetic, (m, n, k), &a, &b);
            for (left, right) in lefts
                .iter()
                .flat_map(|l| rights.iter().map(move |r| (*l, *r)))
            {
                let mut out = vec![1.0; m * n];
                let compute = Compute::pool(arithmetic);
                matmul(&mut out, left, right, 2.0, Into::Accumulate, compute);
                for (x, e) in out.iter().zip(&exact) {
                    assert!((f64::from(*x) - 1.0 - 2.0 * e).abs() < 1e-4, "{m} {n} {k}");
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let (m, n, k) = (768, 384, 640);
    let (a, b) = (values(m * k, 0.7), values(k * n, 0.3));
    for arithmetic in BOTH {
        let product = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let mut out = vec![0.0; m * n];
            pool.unwrap().install(|| {
                let (a, b) = (Mat::new(&a, m, k), Mat::new(&b, k, n));
                let compute = Compute::pool(arithmetic);
                matmul(&mut out, a, b, 1.0, Into::Overwrite, compute);
            });
            out
        };
        let one = product(1);
        assert!(one == product(2) && one == product(3));
    }
}
