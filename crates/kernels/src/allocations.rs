//! Counts calls of the memory allocator, so that "a step allocates nothing" is a number and no hope. A program or a test
//! that wants to know declares [`Counting`] as its global allocator; without that the count stays 0.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static CALLS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with one counter. Hot loops do not allocate, so the counter costs them nothing.
#[derive(Debug, Clone, Copy)]
pub struct Counting;

/// Allocations of all threads since the program began: new blocks and blocks that grew, not those given back.
pub fn count() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

// SAFETY: every call is handed to `System` unchanged, which keeps the contract of an allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that `System` asks for.
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
