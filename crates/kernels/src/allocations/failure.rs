//! A final message when an allocation fails. A failed allocation ends a Rust program by `abort`, without a line in the run's
//! log and with the exit code of a bug. [`install`] keeps a reserve of address space and a waiting thread: when a thread is about
//! to abort over an allocation, it is stopped there, the reserve is released, the actions in [`FailureHook`] run (the end of the
//! log, the terminal's mode), and the process exits with a code.
//!
//! Allocations whose failure the caller handles are not affected: only the abort is caught, by a handler of `SIGABRT`; an
//! abort for another reason proceeds. For aborts that bypass this allocator (the C library, for thread destructors) a test
//! decides: if not even [`PROBE`] can be mapped, or any thread ran short of memory recently, the cause was memory.
//! (Threads that end in between release what the aborting one lacked.)

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Address space that is kept for the final message, the largest size that can be mapped; it uses no physical memory.
const RESERVES: [usize; 3] = [16 << 20, 4 << 20, 1 << 20];
/// Bytes that a process which is not out of memory can map.
const PROBE: usize = 256 << 10;
/// Seconds for which memory counts as short after a failure on any thread.
const RECENT: i64 = 2;
/// Timeout of the final message, in seconds: it may block on locks that the held thread has.
const MESSAGE_TIMEOUT: u32 = 20;

thread_local! {
    /// Size of the first of the recent allocation failures on this thread, and the time of the last: what a program does about a
    /// failure, such as a backtrace, fails again and at other sizes.
    static FAILED: Cell<(usize, i64)> = const { Cell::new((0, i64::MIN)) };
    /// Whether this thread writes the final message.
    static IS_REPORTER: Cell<bool> = const { Cell::new(false) };
}

/// The pipe by which a thread that is about to abort wakes the reporter; -1 until armed.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// Bytes of the allocation whose failure ends the program.
static FATAL: AtomicUsize = AtomicUsize::new(0);
/// When memory was last short on any thread, in seconds of the system's monotonic clock.
static SHORT_AT: AtomicI64 = AtomicI64::new(i64::MIN);
/// Bytes of the last refused allocation.
static REFUSED: AtomicUsize = AtomicUsize::new(0);
static CODE: AtomicI32 = AtomicI32::new(3);
/// Whether the reporter is waiting for a failure. Until it is, there is no one to wake: even starting its thread may lack memory.
static REPORTER_READY: AtomicBool = AtomicBool::new(false);
static ACTIONS: Mutex<Vec<(u64, Action)>> = Mutex::new(Vec::new());

type Action = Box<dyn FnMut(usize) + Send>;

/// Records that an allocation of `bytes` failed on this thread: an abort that follows is about memory. The allocator calls this
/// itself; code that requests memory directly from the system must call it.
pub fn note(bytes: usize) {
    let (first, at) = FAILED.get();
    let now = seconds();
    let first = match first > 0 && now.saturating_sub(at) <= RECENT {
        true => first,
        false => bytes,
    };
    FAILED.set((first, now));
    REFUSED.store(first, Ordering::Relaxed);
    note_short();
}

/// Bytes of the last refused allocation, on any thread and whether or not it was handled; 0 if none was refused.
pub fn refused() -> usize {
    REFUSED.load(Ordering::Relaxed)
}

/// Records that some thread ran short of memory, or that address space for another thread was missing.
pub fn note_short() {
    SHORT_AT.store(seconds(), Ordering::Relaxed);
}

/// The monotonic clock. A plain system call, safe in a signal handler.
fn seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec
}

/// An action to run before the process exits because of a failed allocation; unregistered when dropped.
#[derive(Debug)]
pub struct FailureHook(u64);

impl FailureHook {
    /// Registers `action`, which gets the number of bytes that could not be allocated. The newest is called first. It runs on a
    /// separate thread while others may be suspended at any point: it must not wait for them.
    pub fn new(action: impl FnMut(usize) + Send + 'static) -> FailureHook {
        let mut registered_actions = registered_actions();
        let id = registered_actions.last().map_or(1, |(id, _)| id + 1);
        registered_actions.push((id, Box::new(action)));
        FailureHook(id)
    }
}

impl Drop for FailureHook {
    fn drop(&mut self) {
        // Dropped after the lock is released: an action may own something that locks again.
        let removed: Vec<_> = {
            let mut registered_actions = registered_actions();
            let (removed, kept) = registered_actions
                .drain(..)
                .partition(|(id, _)| *id == self.0);
            *registered_actions = kept;
            removed
        };
        drop(removed);
    }
}

fn registered_actions() -> MutexGuard<'static, Vec<(u64, Action)>> {
    ACTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a failed allocation ends the process with `code`, after the [`FailureHook`]. Once per process.
///
/// # Errors
/// No pipe, no handler or no thread: then a failed allocation aborts without a message.
pub fn install(code: u8) -> io::Result<()> {
    if WAKE.load(Ordering::Relaxed) >= 0 {
        return Ok(());
    }
    CODE.store(i32::from(code), Ordering::Relaxed);
    // First of all: if memory is too short for the rest of this function, the next failure still gets its message and exit code.
    catch_aborts()?;
    let reserve = reserve()?;
    let (mut wait, wake) = io::pipe()?;
    let (mut ready, on_ready) = io::pipe()?;
    use std::os::fd::IntoRawFd;
    WAKE.store(wake.into_raw_fd(), Ordering::Release);
    thread::Builder::new()
        .name("last-words".into())
        .stack_size(1 << 20)
        .spawn(move || {
            IS_REPORTER.set(true);
            REPORTER_READY.store(true, Ordering::Release);
            drop(on_ready);
            let mut byte = [0];
            let woken = io::Read::read_exact(&mut wait, &mut byte);
            if woken.is_ok() {
                report_and_exit(&reserve);
            }
        })?;
    // End of file on this pipe: the reporter has started.
    io::Read::read(&mut ready, &mut [0]).map(drop)
}

fn catch_aborts() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value of this plain C struct; the handler below is async-signal-safe and
    // has the signature that SA_SIGINFO-less actions have.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = aborting as *const () as libc::sighandler_t;
        if libc::sigaction(libc::SIGABRT, &raw const action, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Reserved address space, released for the final message: its address and length.
struct Reserve(usize, usize);

fn reserve() -> io::Result<Reserve> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let mut refused = io::ErrorKind::OutOfMemory.into();
    for bytes in RESERVES {
        // SAFETY: a new private mapping at an address that the kernel chooses; nothing accesses it.
        match unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ, flags) } {
            Ok(place) => return Ok(Reserve(place as usize, bytes)),
            Err(e) => refused = e.into(),
        }
    }
    Err(refused)
}

fn report_and_exit(reserve: &Reserve) {
    // SAFETY: the mapping was made by `reserve` with this length, and nothing refers to it.
    let _ = unsafe { rustix::mm::munmap(reserve.0 as *mut _, reserve.1) };
    // SAFETY: plain system calls; the handler only exits.
    unsafe {
        libc::signal(libc::SIGALRM, timed_out as *const () as libc::sighandler_t);
        libc::alarm(MESSAGE_TIMEOUT);
    }
    let bytes = FATAL.load(Ordering::Acquire);
    let mut actions = std::mem::take(&mut *registered_actions());
    for (_, action) in actions.iter_mut().rev() {
        action(bytes);
    }
    exit_now()
}

/// Whether [`PROBE`] bytes can be mapped. A plain system call, safe in a signal handler.
fn can_map() -> bool {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new private mapping at an address that the kernel chooses, unmapped before anything accesses it.
    unsafe {
        let place = mmap_anonymous(ptr::null_mut(), PROBE, access, flags);
        place.is_ok_and(|place| munmap(place, PROBE).is_ok())
    }
}

/// Exits without the usual exit handlers: they may wait for locks of suspended threads.
fn exit_now() -> ! {
    // SAFETY: async-signal-safe by POSIX.
    unsafe { libc::_exit(CODE.load(Ordering::Relaxed)) }
}

extern "C" fn timed_out(_: libc::c_int) {
    exit_now()
}

/// Handles `SIGABRT`. After a failed allocation, it wakes the reporter and suspends this thread until the process exits. Otherwise
/// it returns, and `abort` proceeds as if there were no handler.
extern "C" fn aborting(_: libc::c_int) {
    let (mut bytes, _) = FAILED.get();
    if bytes == 0 {
        let is_short = seconds().saturating_sub(SHORT_AT.load(Ordering::Relaxed)) <= RECENT;
        if can_map() && !is_short {
            return;
        }
        bytes = PROBE;
    }
    if !REPORTER_READY.load(Ordering::Acquire) {
        const MESSAGE: &[u8] = b"error: out of memory before anything began\n";
        // SAFETY: an async-signal-safe system call on bytes that live.
        unsafe { libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
        exit_now()
    }
    if IS_REPORTER.get() {
        exit_now()
    }
    // The first failure is the one that is reported.
    let _ = FATAL.compare_exchange(0, bytes, Ordering::AcqRel, Ordering::Relaxed);
    let byte = 1u8;
    loop {
        // SAFETY: async-signal-safe system calls on a descriptor that is never closed and a byte that lives.
        unsafe {
            libc::write(WAKE.load(Ordering::Acquire), (&raw const byte).cast(), 1);
            libc::pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A backtrace of the failure fails as well, at another size.
    #[test]
    fn the_first_failure_of_a_thread_is_reported() {
        for bytes in [42_980_352, 131_072, 16] {
            note(bytes);
        }
        assert_eq!(FAILED.get().0, 42_980_352);
        // A failure long ago was handled.
        FAILED.set((42_980_352, seconds() - RECENT - 1));
        note(16);
        assert_eq!(FAILED.get().0, 16);
    }
}
