//! Peak throughput of the machine's arithmetic units.

use super::{Accumulation, Compute, ComputeDtype, Mat, matmul};
use llmtui_base::clock::{Clock, SystemClock};

/// The machine's peak for this dtype: the best of repeated trials within `seconds`, in GFLOP/s, on all pool
/// threads. A trial is the innermost loop alone, on inputs in the L1 cache; on a machine without a kernel of
/// ours, it is a 768³ matmul.
pub fn peak_gflops(arithmetic: ComputeDtype, seconds: f64) -> f64 {
    best_gflops(seconds, || trial(arithmetic))
}

/// Throughput of whole matmuls of training size, packing and memory included: the best of repeated 768³
/// matmuls within `seconds`, in GFLOP/s, on all pool threads.
pub fn matmul_gflops(arithmetic: ComputeDtype, seconds: f64) -> f64 {
    best_gflops(seconds, || timed(|| product(arithmetic)))
}

/// The best of repeated trials, which return FLOP/s.
fn best_gflops(seconds: f64, trial: impl Fn() -> f64) -> f64 {
    let clock = SystemClock::new();
    let mut best = 0.0_f64;
    while clock.elapsed().as_secs_f64() < seconds || best == 0.0 {
        best = best.max(trial());
    }
    best / 1e9
}

/// FLOP/s of work that returns its FLOPs.
fn timed(work: impl Fn() -> f64) -> f64 {
    let clock = SystemClock::new();
    let operations = work();
    operations / clock.elapsed().as_secs_f64().max(1e-9)
}

/// FLOP/s of a moment's work.
fn trial(arithmetic: ComputeDtype) -> f64 {
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    if let Some(kernel) = super::packed::Kernel::best(arithmetic) {
        // SAFETY: the machine has the kernel.
        return unsafe { super::packed::peak_trial(kernel) };
    }
    timed(|| product(arithmetic))
}

/// A matmul; returns its FLOPs.
fn product(arithmetic: ComputeDtype) -> f64 {
    const N: usize = 768;
    let x = vec![0.5; N * N];
    let mut out = vec![0.0; N * N];
    let view = Mat::new(&x, N, N);
    let compute = Compute::pool(arithmetic);
    matmul(&mut out, view, view, 1.0, Accumulation::Overwrite, compute);
    2.0 * (N * N * N) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_a_positive_number() {
        assert!(peak_gflops(ComputeDtype::F32, 0.0) > 0.1);
        assert!(matmul_gflops(ComputeDtype::F32, 0.0) > 0.01);
        assert!(product(ComputeDtype::Bf16) > 0.1);
    }
}
