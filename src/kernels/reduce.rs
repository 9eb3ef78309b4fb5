//! Sums over long slices with a fixed partition, so that the result does not depend on the number of threads.

use rayon::prelude::*;

/// Elements per partial sum.
const CHUNK: usize = 1 << 15;

/// √(Σ x²) with f64 accumulation.
pub fn l2_norm(values: &[f32]) -> f64 {
    let partial = |chunk: &[f32]| -> f64 {
        let mut lanes = [0.0_f64; 8];
        let (blocks, rest) = chunk.as_chunks::<8>();
        for block in blocks {
            for (lane, &x) in lanes.iter_mut().zip(block) {
                *lane += f64::from(x) * f64::from(x);
            }
        }
        let tail: f64 = rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        lanes.iter().sum::<f64>() + tail
    };
    let sums: Vec<f64> = values.par_chunks(CHUNK).map(partial).collect();
    sums.iter().sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l2_norm_equals_the_plain_sum_and_shows_nan() {
        let values: Vec<f32> = (0..100_003).map(|i| (i % 17) as f32 - 8.0).collect();
        let plain: f64 = values.iter().map(|&x| f64::from(x).powi(2)).sum();
        assert!((l2_norm(&values) - plain.sqrt()).abs() < 1e-9 * plain.sqrt());
        assert!(l2_norm(&[1.0, f32::NAN]).is_nan());
        assert_eq!(l2_norm(&[]), 0.0);
    }
}
