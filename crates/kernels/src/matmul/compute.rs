//! Compute settings of a matmul: dtype and thread count.

/// The dtype of the inputs. Destinations and accumulation are f32 in both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ComputeDtype {
    /// f32 matmuls.
    #[default]
    F32,
    /// f32 in memory, inputs rounded to bf16 (to nearest, ties to even) on load, accumulated in f32.
    Bf16,
}

/// Whether a matmul may use the whole pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    One,
    Pool,
}

#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
impl Threads {
    pub(super) fn count(self) -> usize {
        match self {
            Threads::One => 1,
            Threads::Pool => rayon::current_num_threads(),
        }
    }
}

/// How a matmul is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compute {
    pub arithmetic: ComputeDtype,
    pub threads: Threads,
}

impl Compute {
    /// On the calling thread alone.
    pub const fn one(arithmetic: ComputeDtype) -> Self {
        Compute {
            arithmetic,
            threads: Threads::One,
        }
    }

    /// On all threads of the current pool.
    pub const fn pool(arithmetic: ComputeDtype) -> Self {
        Compute {
            arithmetic,
            threads: Threads::Pool,
        }
    }
}

/// Whether this machine multiplies bf16 faster than f32. Without it [`ComputeDtype::Bf16`] still gives the same
/// numbers up to summation order, only slower than f32: a policy should not choose it.
pub fn bf16_available() -> bool {
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    {
        use crate::simd::{Level, has_bf16, is_by_amd, level};
        match level() {
            Level::Amx => true,
            Level::Avx512 => has_bf16() && is_by_amd(),
            Level::Avx2 | Level::Baseline => false,
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(llmtui_portable))))]
    false
}
