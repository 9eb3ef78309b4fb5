//! How fast this machine reads memory.

use llmtui_base::clock::{Clock, SystemClock};
use rayon::prelude::*;

/// Sustained read bandwidth on all threads of the pool, in GB/s: the upper bound for decode.
pub fn read_bandwidth(seconds: f64) -> f64 {
    /// Larger than a server's last-level cache.
    const BYTES: usize = 1 << 30;
    let values = vec![1.0_f32; BYTES / size_of::<f32>()];
    let clock = SystemClock::new();
    let mut best = f64::INFINITY;
    while clock.elapsed().as_secs_f64() < seconds || best.is_infinite() {
        let begun = clock.elapsed();
        let sum: f32 = values.par_chunks(1 << 16).map(sum).sum();
        std::hint::black_box(sum);
        best = best.min((clock.elapsed() - begun).as_secs_f64());
    }
    BYTES as f64 / best / 1e9
}

/// In lanes, so that additions are not the bottleneck.
fn sum(values: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 64];
    let (blocks, rest) = values.as_chunks::<64>();
    for block in blocks {
        for (lane, x) in lanes.iter_mut().zip(block) {
            *lane += x;
        }
    }
    lanes.iter().chain(rest).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_a_plausible_number() {
        let gb = read_bandwidth(0.0);
        assert!((0.05..10_000.0).contains(&gb), "{gb}");
        assert_eq!(sum(&[1.0; 1000]), 1000.0);
    }
}
