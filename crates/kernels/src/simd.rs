//! Dispatches to the machine's widest vector instructions at run time, so that one binary is fast everywhere.
//!
//! A body is compiled once per level and vectorized by the compiler. Bodies must not call libm
//! or use fused multiply-add, so that every level gives the same bits.

use std::sync::OnceLock;

/// The vector instruction level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The architecture's baseline.
    Baseline,
    Avx2,
    Avx512,
    /// AVX-512 with bf16, and AMX: matrices of bf16 in tile registers.
    Amx,
}

/// This machine's level, detected once. The environment variable [`CAP`] lowers it.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| detect().min(cap()))
}

/// The widest level to use, `baseline`, `avx2`, `avx512` or `amx`: to measure and test as on an older processor. Other
/// values change nothing.
pub const CAP: &str = "LLMTUI_SIMD";

/// The widest instructions in use, for display: measured speeds depend on them.
pub fn instructions() -> &'static str {
    match level() {
        Level::Amx => "AVX-512 with bf16 and AMX",
        Level::Avx512 if bf16_available() => "AVX-512 with bf16",
        Level::Avx512 => "AVX-512",
        Level::Avx2 => "AVX2",
        Level::Baseline => "baseline instructions",
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "kernels know no `Env`, and their own tests obey it too"
)]
fn cap() -> Level {
    match std::env::var(CAP).as_deref() {
        Ok("baseline") => Level::Baseline,
        Ok("avx2") => Level::Avx2,
        Ok("avx512") => Level::Avx512,
        _ => Level::Amx,
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    match (avx2, avx512) {
        (true, true) if has_bf16() && crate::amx::permitted() => Level::Amx,
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        (false, _) => Level::Baseline,
    }
}

/// Whether the processor has AVX-512's instructions for pairs of bf16. AMD processors multiply them at twice the speed of f32;
/// Intel's at 0.6 of it (Sapphire Rapids: 227 against 393 GFLOP/s), and have AMX for bf16.
#[cfg(target_arch = "x86_64")]
pub fn has_bf16() -> bool {
    is_x86_feature_detected!("avx512bf16")
}

/// Whether the processor is AMD's, by its vendor name; queried once, which takes tens of microseconds on a virtual machine.
#[cfg(target_arch = "x86_64")]
pub fn is_amd() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        let id = std::arch::x86_64::__cpuid(0);
        [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
    })
}

/// Whether this machine multiplies bf16 faster than f32. Without it matmuls in bf16 still give the same numbers up to summation
/// order, but slower than in f32: a policy should not choose them.
pub fn bf16_available() -> bool {
    #[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
    {
        match level() {
            Level::Amx => true,
            Level::Avx512 => has_bf16() && is_amd(),
            Level::Avx2 | Level::Baseline => false,
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(llmtui_portable))))]
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Baseline
}

/// Declares a function whose body is compiled for every [`Level`] and dispatched at run time.
macro_rules! multiversion {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$number:ident: $bound:path>)?($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$meta])*
        $vis fn $name$(<$number: $bound>)?($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body$(<$number: $bound>)?($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                fn avx512$(<$number: $bound>)?($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2$(<$number: $bound>)?($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                match $crate::simd::level() {
                    // SAFETY: the level guarantees that this machine has the instructions.
                    $crate::simd::Level::Avx512 | $crate::simd::Level::Amx => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Baseline => {}
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use multiversion;
