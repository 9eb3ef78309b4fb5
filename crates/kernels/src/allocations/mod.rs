//! The program's allocator: the system's, with a counter, so that "a step allocates nothing" can be measured; with budgets
//! for code that processes untrusted input ([`budget`]); and with a final message when an allocation fails ([`failure`]). A
//! program or a test opts in by declaring [`Counting`] as its global allocator; otherwise the count stays 0, no budget is
//! ever exceeded and no failure is caught.
#![allow(unsafe_code)]

mod arenas;
pub mod budget;
pub mod failure;

pub use arenas::keep_few;

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

/// Before `bytes` more are asked of the system.
fn ask(bytes: usize) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    budget::take(bytes);
}

/// What the system gave.
fn given(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() {
        failure::note(bytes);
    }
    block
}

// SAFETY: every call is handed to `System` unchanged, which keeps the contract of an allocator. What happens besides never
// unwinds: counters, and a wait without end where a budget is used up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ask(layout.size());
        // SAFETY: the caller's obligations are those of `System`.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ask(layout.size());
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ask(new_size.saturating_sub(layout.size()));
        budget::give_back(layout.size().saturating_sub(new_size));
        // SAFETY: as above; the block came from `System` by this allocator.
        given(unsafe { System.realloc(block, layout, new_size) }, new_size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        budget::give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}
