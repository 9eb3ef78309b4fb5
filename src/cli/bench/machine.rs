//! Properties of the machine and the process: compute peaks, page faults, allocations.

use crate::kernels::allocations;
use crate::kernels::matmul::{ComputeDtype, bf16_available, peak_gflops};
use serde::Serialize;

/// The fastest matmuls of this machine on the same threads, in GFLOP/s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Peaks {
    pub f32: f64,
    /// If the processor supports bf16.
    pub bf16: Option<f64>,
}

impl Peaks {
    /// Measures each for about `seconds`.
    pub fn measure(seconds: f64) -> Peaks {
        Peaks {
            f32: peak_gflops(ComputeDtype::F32, seconds),
            bf16: bf16_available().then(|| peak_gflops(ComputeDtype::Bf16, seconds)),
        }
    }

    /// The peak of one dtype; f32's if the machine has no bf16.
    pub fn of(&self, arithmetic: ComputeDtype) -> f64 {
        match arithmetic {
            ComputeDtype::F32 => self.f32,
            ComputeDtype::Bf16 => self.bf16.unwrap_or(self.f32),
        }
    }
}

/// Counters of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Minor page faults (Linux only).
    pub page_faults: Option<u64>,
    pub allocations: u64,
}

impl Counters {
    pub fn read() -> Counters {
        Counters {
            page_faults: page_faults(),
            allocations: allocations::count(),
        }
    }
}

/// `/proc/self/stat`, field 10: minor faults of all threads.
fn page_faults() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in parentheses and may contain spaces; fields are counted after it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(7)?.parse().ok()
}

/// Peak resident memory of this process (Linux).
pub fn peak_rss() -> Option<u64> {
    crate::hardware::own_memory("VmHWM")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn new_memory_shows_in_the_counters() {
        let before = Counters::read().page_faults.unwrap();
        let pages = 2000;
        let block = vec![1_u8; pages * 4096];
        std::hint::black_box(&block);
        let faults = Counters::read().page_faults.unwrap() - before;
        assert!(faults > 0, "{faults}");
        assert!(peak_rss().unwrap() > block.len() as u64);
    }
}
