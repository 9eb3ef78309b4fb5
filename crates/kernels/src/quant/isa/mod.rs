//! What a quantized matmul needs of an instruction set: sixteen rows of weights side by side. An ISA is one file; the
//! loops are written once, in `tile`. All ISAs give the same bits: integer sums are exact, and floats are
//! multiplied and added one by one, in one order.

#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
pub(super) mod avx2;
#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
pub(super) mod avx512;
pub(super) mod portable;

use super::tile::Job;

/// Rows of weights multiplied at once.
pub(super) const ROWS: usize = 16;

/// The instructions of one ISA.
///
/// # Safety
/// Methods need the instructions of the implementing type; pointers must be valid for what is said.
pub(super) trait Lanes {
    /// Four bytes of each row.
    type Bytes: Copy;
    /// One integer per row.
    type Ints: Copy;
    /// One float per row.
    type Floats: Copy;

    /// 64 bytes.
    unsafe fn bytes(from: *const u8) -> Self::Bytes;
    /// The low four bits of each byte.
    unsafe fn low(x: Self::Bytes) -> Self::Bytes;
    /// The high four bits.
    unsafe fn high(x: Self::Bytes) -> Self::Bytes;
    /// Bits from `shift` on, as many as `mask` (1 or 3) has, moved up to bit 4.
    unsafe fn upper(x: Self::Bytes, shift: i32, mask: u8) -> Self::Bytes;
    unsafe fn or(x: Self::Bytes, y: Self::Bytes) -> Self::Bytes;
    unsafe fn all(x: i32) -> Self::Ints;
    /// sum + Σ over four bytes of weight (unsigned) · x (signed); `x` is the same for all rows.
    unsafe fn dot(sum: Self::Ints, weights: Self::Bytes, x: *const i8) -> Self::Ints;
    unsafe fn to_floats(x: Self::Ints) -> Self::Floats;
    /// Sixteen f16.
    unsafe fn halves(from: *const u8) -> Self::Floats;
    /// Sixteen bytes as numbers.
    unsafe fn unsigned(from: *const u8) -> Self::Floats;
    unsafe fn signed(from: *const u8) -> Self::Floats;
    unsafe fn splat(x: f32) -> Self::Floats;
    unsafe fn mul(x: Self::Floats, y: Self::Floats) -> Self::Floats;
    unsafe fn add(x: Self::Floats, y: Self::Floats) -> Self::Floats;
    unsafe fn store(to: *mut f32, x: Self::Floats);
}

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
    /// The machine must support the ISA; the job's pointers must be valid for what it says.
    pub unsafe fn run(self, job: &Job) {
        // SAFETY: passed on to the caller.
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
