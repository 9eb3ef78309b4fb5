//! Malloc arenas of the C library. It reserves 64 MiB of address space for each of a dozen threads, which uses no memory; but
//! with limited address space (`ulimit -v`, cluster schedulers) a run of 80 MiB does not fit into 700 MiB.

use rustix::process::{Resource, getrlimit};

/// Lets all threads share one heap where the address space is limited. Before the first thread starts; loops that are worth
/// a heap for each thread do not allocate.
pub fn keep_few() {
    if getrlimit(Resource::As).current.is_some() {
        share_one();
    }
}

#[cfg(target_env = "gnu")]
fn share_one() {
    // SAFETY: sets a number of the allocator; other threads, if there are any, see it at their next heap.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Other C libraries have one heap as it is.
#[cfg(not(target_env = "gnu"))]
fn share_one() {}
