//! Software prefetch for compute-heavy passes over long arrays. A processor looks a few hundred instructions ahead: at forty
//! instructions per vector that is two cache lines, where memory needs twenty in flight. The hardware prefetcher does not
//! compensate for it on virtual machines (Sapphire Rapids: GELU's backward took three times as long).
#![allow(unsafe_code)]

/// Numbers computed between two prefetches: four cache lines.
pub const RUN: usize = 64;
/// Prefetch distance in bytes.
pub const AHEAD: usize = 4 << 10;
/// Prefetch distance in rows, where rows are short and far apart.
pub const ROWS_AHEAD: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches for reading what is 4 KiB after `run`: called for each run of an array in turn.
#[inline(always)]
pub fn ahead<T>(run: &[T]) {
    at(run.as_ptr().wrapping_byte_add(AHEAD), run.len());
}

/// The same for memory that is written, or read and written.
#[inline(always)]
pub fn ahead_mut<T>(run: &mut [T]) {
    write(run.as_ptr().wrapping_byte_add(AHEAD), run.len());
}

/// Prefetches `n` values for reading. Nothing is accessed: the pointer may be invalid, here and in [`write()`].
#[inline(always)]
pub fn at<T>(start: *const T, n: usize) {
    lines::<false>(start.cast(), n * size_of::<T>());
}

/// Prefetches `n` numbers that will be written.
#[inline(always)]
pub fn write<T>(start: *const T, n: usize) {
    lines::<true>(start.cast(), n * size_of::<T>());
}

#[inline(always)]
fn lines<const WRITE: bool>(start: *const i8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
        let line = start.wrapping_add(at);
        // SAFETY: a prefetch hint may have any address.
        unsafe {
            match WRITE {
                true => _mm_prefetch::<_MM_HINT_ET0>(line),
                false => _mm_prefetch::<_MM_HINT_T0>(line),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}
