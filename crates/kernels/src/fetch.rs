//! Software prefetch for compute-heavy passes over long arrays. A processor looks a few hundred instructions ahead: at forty
//! instructions per vector that is two cache lines, where memory needs twenty in flight. The hardware prefetcher does not
//! compensate for it on virtual machines (Sapphire Rapids: GELU's backward took three times as long).
#![allow(unsafe_code)]

/// Numbers computed between two calls: four cache lines.
pub const RUN: usize = 64;
/// How far ahead lines are fetched, in bytes.
pub const AHEAD: usize = 4 << 10;
/// Rows ahead, where they are short and far from each other.
pub const ROWS_AHEAD: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Fetches what lies 4 KiB after `run`, for reading: called for each run of an array in turn.
#[inline(always)]
pub fn ahead<T>(run: &[T]) {
    at(run.as_ptr().wrapping_byte_add(AHEAD), run.len());
}

/// The same for what is written, or read and written.
#[inline(always)]
pub fn ahead_mut<T>(run: &mut [T]) {
    write(run.as_ptr().wrapping_byte_add(AHEAD), run.len());
}

/// Fetches `n` values for reading. Nothing is accessed: the pointer may be any, here and in [`write()`].
#[inline(always)]
pub fn at<T>(start: *const T, n: usize) {
    lines::<false>(start.cast(), n * size_of::<T>());
}

/// Fetches `n` numbers that will be written.
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
        // SAFETY: a hint may name any address.
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
