//! A final message when an allocation fails. A failed allocation ends a Rust program by `abort`, without a line in the run's
//! log and with the exit code of a bug. [`arm`] keeps a reserve of address space and a waiting thread: when a thread is about
//! to abort over an allocation, it is stopped there, the reserve is released, the actions in [`Words`] run (the end of the
//! log, the terminal's mode), and the process exits with a code.
//!
//! Allocations whose failure the caller handles are not affected: only the abort is caught, by a handler of `SIGABRT`; an
//! abort for another reason proceeds. For aborts that bypass this allocator (the C library, for thread destructors) a test
//! decides: if not even [`LITTLE`] can be mapped, or any thread ran short of memory a moment ago, the cause was memory.
//! (Threads that end in between release what the aborting one lacked.)

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Address space that is kept for the final message, less where there is less; it takes no memory until then.
const RESERVES: [usize; 3] = [16 << 20, 4 << 20, 1 << 20];
/// Bytes that a process which is not out of memory can map.
const LITTLE: usize = 256 << 10;
/// Seconds for which memory counts as short after a failure on any thread.
const MOMENT: i64 = 2;
/// Seconds that the final message may take: they may wait for what the held thread has locked.
const PATIENCE: u32 = 20;

thread_local! {
    /// Size of the first of the allocations that failed on this thread a moment ago, and when the last of them did: what a
    /// program does about a failure, such as a backtrace, fails again and at other sizes.
    static FAILED: Cell<(usize, i64)> = const { Cell::new((0, i64::MIN)) };
    /// This thread writes the final message.
    static SPEAKER: Cell<bool> = const { Cell::new(false) };
}

/// The pipe by which a thread that is about to abort wakes the speaker; -1 until armed.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// Bytes of the allocation that the program ends over.
static FATAL: AtomicUsize = AtomicUsize::new(0);
/// When memory was last short on any thread, in seconds of the system's monotonic clock.
static SHORT_AT: AtomicI64 = AtomicI64::new(i64::MIN);
/// Bytes that were refused last.
static REFUSED: AtomicUsize = AtomicUsize::new(0);
static CODE: AtomicI32 = AtomicI32::new(3);
/// The speaker listens. Before, nobody would hear: even the start of its thread may lack memory.
static LISTENS: AtomicBool = AtomicBool::new(false);
static SAID: Mutex<Vec<(u64, Speech)>> = Mutex::new(Vec::new());

type Speech = Box<dyn FnMut(usize) + Send>;

/// On this thread `bytes` were not to be had: an abort that follows is about memory. The allocator says so by itself; who
/// asked the system for memory past it must.
pub fn note(bytes: usize) {
    let (first, at) = FAILED.get();
    let now = seconds();
    let first = match first > 0 && now.saturating_sub(at) <= MOMENT {
        true => first,
        false => bytes,
    };
    FAILED.set((first, now));
    REFUSED.store(first, Ordering::Relaxed);
    note_short();
}

/// Bytes that were refused last, on any thread and whatever came of it; 0 while nothing was.
pub fn refused() -> usize {
    REFUSED.load(Ordering::Relaxed)
}

/// Memory is short on some thread, or address space for another one.
pub fn note_short() {
    SHORT_AT.store(seconds(), Ordering::Relaxed);
}

/// The monotonic clock. A plain system call, for use in a signal handler.
fn seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec
}

/// Something to say or do before the process exits over an allocation; taken back when dropped.
#[derive(Debug)]
pub struct Words(u64);

impl Words {
    /// Registers `speech`, which gets the number of bytes that could not be allocated. The newest is called first. It runs on a thread
    /// of its own while others may be held in the middle of anything: it must not wait for them.
    pub fn new(speech: impl FnMut(usize) + Send + 'static) -> Words {
        let mut said = said();
        let id = said.last().map_or(1, |(id, _)| id + 1);
        said.push((id, Box::new(speech)));
        Words(id)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // Dropped after the lock is released: a speech may own something that locks again.
        let gone: Vec<_> = {
            let mut said = said();
            let (gone, kept) = said.drain(..).partition(|(id, _)| *id == self.0);
            *said = kept;
            gone
        };
        drop(gone);
    }
}

fn said() -> MutexGuard<'static, Vec<(u64, Speech)>> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a failed allocation ends the process with `code`, after the [`Words`]. Once for a process.
///
/// # Errors
/// No pipe, no handler or no thread: then such an end goes unsaid.
pub fn arm(code: u8) -> io::Result<()> {
    if WAKE.load(Ordering::Relaxed) >= 0 {
        return Ok(());
    }
    CODE.store(i32::from(code), Ordering::Relaxed);
    // Before all else: where there is no room even for what follows, the next failure has its words and its code.
    catch_aborts()?;
    let reserve = reserve()?;
    let (mut wait, wake) = io::pipe()?;
    let (mut heard, hears) = io::pipe()?;
    use std::os::fd::IntoRawFd;
    WAKE.store(wake.into_raw_fd(), Ordering::Release);
    thread::Builder::new()
        .name("last-words".into())
        .stack_size(1 << 20)
        .spawn(move || {
            SPEAKER.set(true);
            LISTENS.store(true, Ordering::Release);
            drop(hears);
            let mut byte = [0];
            let woken = io::Read::read_exact(&mut wait, &mut byte);
            if woken.is_ok() {
                speak(&reserve);
            }
        })?;
    // The end of the pipe, once the speaker has dropped its side.
    io::Read::read(&mut heard, &mut [0]).map(drop)
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

/// Address space that nobody else can take, so that the final message has some: its place and length.
struct Reserve(usize, usize);

fn reserve() -> io::Result<Reserve> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let mut refused = io::ErrorKind::OutOfMemory.into();
    for bytes in RESERVES {
        // SAFETY: a new private mapping at a place that the kernel chooses; nobody touches it.
        match unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ, flags) } {
            Ok(place) => return Ok(Reserve(place as usize, bytes)),
            Err(e) => refused = e.into(),
        }
    }
    Err(refused)
}

fn speak(reserve: &Reserve) {
    // SAFETY: the mapping was made by `reserve` with this length, and nothing refers to it.
    let _ = unsafe { rustix::mm::munmap(reserve.0 as *mut _, reserve.1) };
    // SAFETY: plain system calls; the handler only exits.
    unsafe {
        libc::signal(libc::SIGALRM, too_late as *const () as libc::sighandler_t);
        libc::alarm(PATIENCE);
    }
    let bytes = FATAL.load(Ordering::Acquire);
    let mut speeches = std::mem::take(&mut *said());
    for (_, speech) in speeches.iter_mut().rev() {
        speech(bytes);
    }
    exit_now()
}

/// Whether [`LITTLE`] can be mapped. A plain system call, for use in a signal handler.
fn is_room() -> bool {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new private mapping at a place that the kernel chooses, unmapped before anybody touches it.
    unsafe {
        let place = mmap_anonymous(ptr::null_mut(), LITTLE, access, flags);
        place.is_ok_and(|place| munmap(place, LITTLE).is_ok())
    }
}

/// Exits without the handlers of a usual end: they may wait for locks of held threads.
fn exit_now() -> ! {
    // SAFETY: async-signal-safe by POSIX.
    unsafe { libc::_exit(CODE.load(Ordering::Relaxed)) }
}

extern "C" fn too_late(_: libc::c_int) {
    exit_now()
}

/// `abort` was called on this thread. Over an allocation: the speaker is woken, and this thread waits for the end. Otherwise
/// it returns, and `abort` goes on as if there were no handler.
extern "C" fn aborting(_: libc::c_int) {
    let (mut bytes, _) = FAILED.get();
    if bytes == 0 {
        let is_short = seconds().saturating_sub(SHORT_AT.load(Ordering::Relaxed)) <= MOMENT;
        if is_room() && !is_short {
            return;
        }
        bytes = LITTLE;
    }
    if !LISTENS.load(Ordering::Acquire) {
        const WORDS: &[u8] = b"error: out of memory before anything began\n";
        // SAFETY: an async-signal-safe system call on bytes that live.
        unsafe { libc::write(2, WORDS.as_ptr().cast(), WORDS.len()) };
        exit_now()
    }
    if SPEAKER.get() {
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
    fn the_first_failure_of_a_thread_is_the_one_that_is_told() {
        for bytes in [42_980_352, 131_072, 16] {
            note(bytes);
        }
        assert_eq!(FAILED.get().0, 42_980_352);
        // What failed long ago was handled.
        FAILED.set((42_980_352, seconds() - MOMENT - 1));
        note(16);
        assert_eq!(FAILED.get().0, 16);
    }
}
