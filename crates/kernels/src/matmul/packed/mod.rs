//! Our own matmul kernels: inputs are packed into the order in which the innermost loop reads them, rounded to bf16 if
//! requested, and multiplied tile by tile. The loops are written once (`blocked`, `pack`, `tile`, `rows`); an instruction set
//! is one file with the primitives.
//!
//! The scheme is that of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).

mod added;
mod ahead;
mod amx;
mod avx2;
mod avx512;
mod blocked;
mod factor;
mod instructions;
mod job;
mod pack;
mod peak;
mod rows;
mod shared;
mod tile;

use super::ComputeDtype;
pub(super) use crate::pointers::{ReadPtr, WritePtr};
use crate::simd::{Level, has_bf16, level};
pub(super) use added::Added;
pub(super) use factor::Factor;
use instructions::{Instructions, Tiles};
pub(super) use job::{Job, Write};

/// The instruction sets with a matmul kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    Amx,
    Avx512Bf16,
    Avx512,
    Avx2,
}

impl Kernel {
    /// The fastest one this machine supports.
    pub fn best(arithmetic: ComputeDtype) -> Option<Kernel> {
        Kernel::all(arithmetic).next()
    }

    /// Its instructions, for comparisons and messages.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Amx => "AMX",
            Kernel::Avx512Bf16 => "AVX-512 bf16",
            Kernel::Avx512 => "AVX-512",
            Kernel::Avx2 => "AVX2",
        }
    }

    /// All that this machine supports, fastest first.
    pub fn all(arithmetic: ComputeDtype) -> impl Iterator<Item = Kernel> {
        [
            Kernel::Amx,
            Kernel::Avx512Bf16,
            Kernel::Avx512,
            Kernel::Avx2,
        ]
        .into_iter()
        .filter(move |kernel| match (arithmetic, kernel) {
            (ComputeDtype::Bf16, Kernel::Amx) => level() == Level::Amx,
            (ComputeDtype::Bf16, Kernel::Avx512Bf16) => level() >= Level::Avx512 && has_bf16(),
            (ComputeDtype::F32, Kernel::Avx512) => level() >= Level::Avx512,
            (ComputeDtype::F32, Kernel::Avx2) => level() >= Level::Avx2,
            _ => false,
        })
    }
}

/// Computes the job on up to `threads` pool threads. The split depends on the dimensions of the job and, across rows
/// and columns only, on the number of threads, which does not change the bits.
///
/// # Safety
/// The machine must have the kernel; the inputs must be readable and the destination exclusively writable.
pub(super) unsafe fn product(kernel: Kernel, job: &Job, threads: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match kernel {
            Kernel::Amx => with::<avx512::Bf16, amx::Bf16>(job, threads),
            Kernel::Avx512Bf16 => with::<avx512::Bf16, avx512::Bf16>(job, threads),
            Kernel::Avx512 => with::<avx512::F32, avx512::F32>(job, threads),
            Kernel::Avx2 => with::<avx2::F32, avx2::F32>(job, threads),
        }
    }
}

unsafe fn with<I: Instructions, T: Tiles>(job: &Job, threads: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if rows::fits(job) {
            rows::product::<I>(job, threads);
        } else {
            blocked::product::<T>(job, threads);
        }
    }
}

/// Keeps all pool threads busy with the innermost loop alone and returns their FLOP/s.
///
/// # Safety
/// The machine must have the kernel.
pub(super) unsafe fn peak_trial(kernel: Kernel) -> f64 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match kernel {
            Kernel::Amx => peak::trial::<amx::Bf16>(),
            Kernel::Avx512Bf16 => peak::trial::<avx512::Bf16>(),
            Kernel::Avx512 => peak::trial::<avx512::F32>(),
            Kernel::Avx2 => peak::trial::<avx2::F32>(),
        }
    }
}
