//! Quantized matmuls against dequantize-then-f32, ISA against ISA, and malformed bytes.

use super::*;
use crate::check::normal;
use crate::matmul::ComputeDtype;
use crate::quant::formats::tests::sample_rows;

const QUANTIZED: [Kind; 13] = [
    Kind::Q8_0,
    Kind::Q4_0,
    Kind::Q4_1,
    Kind::Q5_0,
    Kind::Q5_1,
    Kind::Q4K,
    Kind::Q5K,
    Kind::Q6K,
    Kind::Q2K,
    Kind::Q3K,
    Kind::Iq4Nl,
    Kind::Iq4Xs,
    Kind::Mxfp4,
];

fn packed(kinds: &[(Kind, usize)], cols: usize) -> Packed {
    let mut packed = Packed::new(cols);
    for (i, (kind, rows)) in kinds.iter().enumerate() {
        packed
            .push(*kind, *rows, &sample_rows(*kind, *rows, cols, i as u32))
            .unwrap();
    }
    packed
}

/// All rows in f32.
fn dense(packed: &Packed) -> Vec<f32> {
    let mut all = vec![0.0; packed.rows() * packed.cols()];
    for (row, to) in all.chunks_exact_mut(packed.cols()).enumerate() {
        packed.row(row, to);
    }
    all
}

fn pool() -> Compute {
    Compute::pool(ComputeDtype::F32)
}

#[test]
fn rows_of_panels_are_the_rows_of_the_file() {
    for kind in QUANTIZED {
        for (rows, cols) in [(16, 256), (5, 512), (37, 256)] {
            let bytes = sample_rows(kind, rows, cols, 7);
            let mut packed = Packed::new(cols);
            packed.push(kind, rows, &bytes).unwrap();
            let mut expected = vec![0.0; rows * cols];
            kind.decode(&bytes, &mut expected);
            assert_eq!(dense(&packed), expected, "{} {rows}", kind.name());
        }
    }
}

#[test]
fn products_are_those_of_the_values_in_f32_up_to_eight_bit_rounding() {
    for kind in QUANTIZED {
        for (rows, cols, n) in [(16, 256, 1), (40, 512, 3), (100, 256, 21)] {
            let packed = packed(&[(kind, rows)], cols);
            let weights = dense(&packed);
            let x = normal(n * cols, 50);
            let (bias, residual) = (normal(rows, 51), normal(n * rows, 52));
            let plus = Plus {
                residual: Some(&residual),
                bias: Some(&bias),
                ..Plus::default()
            };
            let mut y = vec![f32::NAN; n * rows];
            packed.product(&mut y, Mat::new(&x, n, cols), plus, pool());
            let norm = |v: &[f32]| v.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
            for i in 0..n {
                for j in 0..rows {
                    let (x, w) = (&x[i * cols..][..cols], &weights[j * cols..][..cols]);
                    let dot: f64 = x.iter().zip(w).map(|(x, w)| f64::from(x * w)).sum();
                    let exact = dot + f64::from(residual[i * rows + j] + bias[j]);
                    let off = (f64::from(y[i * rows + j]) - exact).abs();
                    // Half a step of 1/127 of a block's largest value, as independent errors.
                    let allowed = 0.012 * norm(w) * norm(x) / (cols as f64).sqrt() * 4.0;
                    assert!(off < allowed, "{} ({i}, {j}): {off}", kind.name());
                }
            }
        }
    }
}

#[test]
fn every_isa_gives_the_same_bits() {
    for kind in QUANTIZED {
        let (rows, cols) = (50, 512);
        let packed = packed(&[(kind, rows)], cols);
        for n in [1, 2, 3, 7, 8, 11] {
            let x = normal(n * cols, 60);
            let through = |isa: Isa| {
                let mut y = vec![f32::NAN; n * rows];
                packed.product_through(isa, &mut y, Mat::new(&x, n, cols), Plus::default(), pool());
                y
            };
            let expected = through(Isa::Portable);
            for isa in Isa::all() {
                assert_eq!(through(isa), expected, "{} {n} {isa:?}", kind.name());
            }
        }
    }
}

#[test]
fn threads_and_other_rows_do_not_change_a_bit() {
    let (rows, cols, n) = (200, 256, 9);
    let packed = packed(&[(Kind::Q4_1, rows)], cols);
    let x = normal(n * cols, 61);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let mut y = vec![f32::NAN; n * rows];
        pool.unwrap().install(|| {
            threads::team(|| {
                packed.product(&mut y, Mat::new(&x, n, cols), Plus::default(), self::pool());
            });
        });
        y
    };
    let one = run(1);
    assert_eq!(run(3), one);
    for i in 0..n {
        let mut alone = vec![f32::NAN; rows];
        let row = Mat::new(&x[i * cols..][..cols], 1, cols);
        packed.product(&mut alone, row, Plus::default(), pool());
        assert_eq!(alone, one[i * rows..][..rows]);
    }
}

#[test]
fn parts_of_several_formats_are_one_matrix() {
    let kinds = [
        (Kind::Q4_0, 33),
        (Kind::F16, 7),
        (Kind::Q6K, 16),
        (Kind::F32, 3),
        (Kind::F32, 2),
        (Kind::Bf16, 5),
    ];
    let packed = packed(&kinds, 256);
    assert_eq!((packed.rows(), packed.parts.len()), (66, 5));
    let weights = dense(&packed);
    for n in [1, 6] {
        let x = normal(n * 256, 62);
        let mut y = vec![f32::NAN; n * 66];
        packed.product(&mut y, Mat::new(&x, n, 256), Plus::default(), pool());
        for (at, y) in y.iter().enumerate() {
            let (x, w) = (&x[at / 66 * 256..][..256], &weights[at % 66 * 256..][..256]);
            let exact: f32 = x.iter().zip(w).map(|(x, w)| x * w).sum();
            assert!((y - exact).abs() < 0.5, "{at}: {y} {exact}");
            if (33..40).contains(&(at % 66)) || at % 66 >= 56 {
                assert!(
                    (y - exact).abs() < 1e-3,
                    "floats are exact, {at}: {y} {exact}"
                );
            }
        }
    }
}

#[test]
fn invalid_bytes_for_a_format_are_rejected() {
    let mut packed = Packed::new(64);
    assert!(matches!(
        packed.push(Kind::Q4K, 1, &[0; 144]),
        Err(PackError::Cols { .. })
    ));
    assert!(matches!(
        packed.push(Kind::Q8_0, 2, &[0; 67]),
        Err(PackError::Bytes { expected: 136, .. })
    ));
    let mut bytes = vec![0; 2 * 68];
    bytes[68 + 35] = 0x7e;
    assert_eq!(
        packed.push(Kind::Q8_0, 2, &bytes),
        Err(PackError::NotFinite { row: 1 })
    );
    let mut floats = vec![0; 2 * 64 * 4];
    floats[255..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    floats[252..][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    assert_eq!(
        packed.push(Kind::F32, 2, &floats),
        Err(PackError::NotFinite { row: 0 })
    );
    assert_eq!(packed.rows(), 0);
}
