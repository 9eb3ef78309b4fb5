//! What the machine's arithmetic units reach at best.

use super::{Arithmetic, Compute, Into, Mat, matmul};
use crate::base::clock::{Clock, SystemClock};

/// The machine's peak in this arithmetic as far as it matters here: the best of repeated 768³ products within `seconds`,
/// in GFLOP/s, on all threads of the pool.
pub fn peak_gflops(arithmetic: Arithmetic, seconds: f64) -> f64 {
    const N: usize = 768;
    let a: Vec<f32> = (0..N * N).map(|i| (i % 13) as f32 * 0.1).collect();
    let mut out = vec![0.0; N * N];
    let clock = SystemClock::new();
    let mut best = f64::INFINITY;
    while clock.elapsed().as_secs_f64() < seconds || best.is_infinite() {
        let start = clock.elapsed();
        let view = Mat::new(&a, N, N);
        let compute = Compute::pool(arithmetic);
        matmul(&mut out, view, view, 1.0, Into::Overwrite, compute);
        best = best.min((clock.elapsed() - start).as_secs_f64());
    }
    2.0 * (N * N * N) as f64 / best / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_a_positive_number() {
        assert!(peak_gflops(Arithmetic::F32, 0.0) > 0.1);
        assert!(peak_gflops(Arithmetic::Bf16, 0.0) > 0.1);
    }
}
