//! Counts allocator calls, so that "a step allocates nothing" is a measurement. A program or a test
//! opts in by declaring [`Counting`] as its global allocator; otherwise the count stays 0.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static CALLS: AtomicU64 = AtomicU64::new(0);

/// The system allocator with a counter. Hot loops do not allocate, so the counter costs nothing.
#[derive(Debug, Clone, Copy)]
pub struct Counting;

/// Allocations of all threads since program start: new blocks and grown blocks, not frees.
pub fn count() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

// SAFETY: every call is handed to `System` unchanged, which keeps the contract of an allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above; the block came from `System` by this allocator.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}
