//! Estimators of health metrics: pure functions in f64, each tested on known values. The measurements are in `probes`; the
//! definitions are listed in docs/metrics.md.

pub mod alpha;
pub mod collapse;
pub mod dispersion;
pub mod entropy;
pub mod memory;
pub mod noise;
pub mod outlier;
pub mod spectrum;
pub mod spikes;

/// A number of the known values in tests.
#[cfg(test)]
fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance, "{a} is not {b} ± {tolerance}");
}
