//! Our own products: the factors are packed into the order in which the innermost loop reads them, rounded to bf16 where
//! asked, and multiplied tile by tile. The loops are written once (`blocked`, `pack`, `tile`, `rows`); an instruction set
//! is one file that says what they are made of.
//!
//! The scheme is that of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).

mod ahead;
mod avx2;
mod avx512;
mod blocked;
mod instructions;
mod pack;
mod peak;
mod rows;
mod tile;

use super::{ComputeDtype, bf16_available};
use crate::simd::{Level, level};
pub(super) use blocked::{Factor, Job};
use instructions::Instructions;
pub(super) use tile::Write;

/// The instruction sets that products are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    Avx512Bf16,
    Avx512,
    Avx2,
}

impl Kernel {
    /// The fastest that this machine has.
    pub fn best(arithmetic: ComputeDtype) -> Option<Kernel> {
        Kernel::all(arithmetic).next()
    }

    /// All that this machine has, the fastest first.
    pub fn all(arithmetic: ComputeDtype) -> impl Iterator<Item = Kernel> {
        [Kernel::Avx512Bf16, Kernel::Avx512, Kernel::Avx2]
            .into_iter()
            .filter(move |kernel| match (arithmetic, kernel) {
                (ComputeDtype::Bf16, Kernel::Avx512Bf16) => bf16_available(),
                (ComputeDtype::F32, Kernel::Avx512) => level() == Level::Avx512,
                (ComputeDtype::F32, Kernel::Avx2) => level() >= Level::Avx2,
                _ => false,
            })
    }
}

/// Computes the job on up to `threads` threads of the pool. How it is cut depends on the sizes of the job and, across rows
/// and columns only, on the number of threads, which changes no bit.
///
/// # Safety
/// The machine must have the kernel; the factors must be readable and the destination writable, by nobody else.
pub(super) unsafe fn product(kernel: Kernel, job: &Job, threads: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match kernel {
            Kernel::Avx512Bf16 => with::<avx512::Bf16>(job, threads),
            Kernel::Avx512 => with::<avx512::F32>(job, threads),
            Kernel::Avx2 => with::<avx2::F32>(job, threads),
        }
    }
}

unsafe fn with<I: Instructions>(job: &Job, threads: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        if rows::fits(job) {
            rows::product::<I>(job, threads);
        } else {
            blocked::product::<I>(job, threads);
        }
    }
}

/// Keeps all threads of the pool busy with the innermost loop alone and tells how many operations it took.
///
/// # Safety
/// The machine must have the kernel.
pub(super) unsafe fn peak_trial(kernel: Kernel) -> f64 {
    // SAFETY: passed on to the caller.
    unsafe {
        match kernel {
            Kernel::Avx512Bf16 => peak::trial::<avx512::Bf16>(),
            Kernel::Avx512 => peak::trial::<avx512::F32>(),
            Kernel::Avx2 => peak::trial::<avx2::F32>(),
        }
    }
}
