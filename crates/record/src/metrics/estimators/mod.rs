//! How health metrics are computed from what was measured: pure functions in f64, each with the values that are known of it.
//! Who measures stands in `probes`; the table of definitions is docs/metrics.md.

pub mod alpha;
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
