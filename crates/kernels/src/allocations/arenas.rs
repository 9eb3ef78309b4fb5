//! Malloc arenas of the C library. It reserves 64 MiB of address space for each of a dozen threads, which uses no memory; but
//! with limited address space (`ulimit -v`, cluster schedulers) a run of 80 MiB does not fit into 700 MiB.

use rustix::process::{Resource, getrlimit};

/// Makes all threads share one heap where the address space is limited. Call before the first thread starts. Hot loops, which
/// would gain from a heap per thread, do not allocate.
pub fn limit_arenas() {
    if getrlimit(Resource::As).current.is_some() {
        share_one();
    }
}

#[cfg(target_env = "gnu")]
fn share_one() {
    // SAFETY: sets a parameter of the allocator; other threads, if any, read it when they next need a heap.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Other C libraries have a single heap anyway.
#[cfg(not(target_env = "gnu"))]
fn share_one() {}
