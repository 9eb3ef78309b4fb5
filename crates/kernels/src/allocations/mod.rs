//! The program's allocator: the system's, with a counter, so that "a step allocates nothing" can be measured; with budgets
//! for code that processes untrusted input ([`budget`]); and with a final message when an allocation fails ([`failure`]). A
//! program or a test opts in by declaring [`Counting`] as its global allocator; otherwise the count stays 0, no budget is
//! ever exceeded and no failure is caught.
#![allow(unsafe_code)]

mod arenas;
pub mod budget;
pub mod failure;

pub use arenas::limit_arenas;

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

/// Counts an allocation and charges `bytes` to the budget, before the system is called.
fn charge(bytes: usize) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    budget::take(bytes);
}

/// Passes on the system's result, and records a failure.
fn checked(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() {
        failure::note(bytes);
    }
    block
}

// SAFETY: every call is forwarded to `System` unchanged, which upholds the contract of an allocator. The additions never
// unwind: counters, and blocking for ever when a budget is used up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: the caller's obligations are those of `System`.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        charge(new_size.saturating_sub(layout.size()));
        budget::give_back(layout.size().saturating_sub(new_size));
        // SAFETY: as above; the block came from `System` by this allocator.
        checked(unsafe { System.realloc(block, layout, new_size) }, new_size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        budget::give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}
