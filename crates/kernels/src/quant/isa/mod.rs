//! The instruction sets of quantized matmuls: an ISA is one file, and the loops are written once, in `tile`.

#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
pub(super) mod avx2;
#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
pub(super) mod avx512;
pub(super) mod portable;

use super::tile::Job;

/// The ISAs, fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isa {
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    Avx512,
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    Avx2,
    Portable,
}

impl Isa {
    /// The fastest one this machine supports, detected once.
    pub fn best() -> Isa {
        static BEST: std::sync::OnceLock<Isa> = std::sync::OnceLock::new();
        *BEST.get_or_init(|| Isa::all().next().unwrap_or(Isa::Portable))
    }

    /// All that this machine supports.
    pub fn all() -> impl Iterator<Item = Isa> {
        #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
        let wide = {
            use crate::simd::{Level, level};
            let avx512 = level() >= Level::Avx512 && is_x86_feature_detected!("avx512vnni");
            let avx2 = level() >= Level::Avx2 && is_x86_feature_detected!("f16c");
            let avx512 = avx512.then_some(Isa::Avx512);
            avx512.into_iter().chain(avx2.then_some(Isa::Avx2))
        };
        #[cfg(not(all(target_arch = "x86_64", not(llmtui_portable))))]
        let wide = std::iter::empty();
        wide.chain([Isa::Portable])
    }

    /// Rows of activations multiplied at once.
    pub fn rows(self) -> usize {
        match self {
            #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
            Isa::Avx512 => 8,
            #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
            Isa::Avx2 => 2,
            Isa::Portable => 1,
        }
    }

    /// Computes a job.
    ///
    /// # Safety
    /// The machine must support the ISA; the job's pointers must be valid for its sizes.
    pub unsafe fn run(self, job: &Job) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
                Isa::Avx512 => avx512::run(job),
                #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
                Isa::Avx2 => avx2::run(job),
                Isa::Portable => portable::run(job),
            }
        }
    }
}
