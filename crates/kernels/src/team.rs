//! Pool threads that spin while waiting, for many small jobs: decoding a token takes two hundred matmuls of some twenty
//! microseconds each, and waking a sleeping thread takes as long as one of them. While [`team`] runs, the other threads of
//! the pool spin; handing over a job takes less than a microsecond.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::thread::ThreadId;

/// Spins before a waiting thread yields.
const SPINS: u32 = 4096;
/// Bit width of the share count and of the next free share; the job number is in the bits above.
const FIELD: u32 = 16;
const MASK: u64 = (1 << FIELD) - 1;
/// Most shares of one job: threads that find none left keep counting, and must not reach the share count's bits.
const MAX_SHARES: usize = MASK as usize / 2;

type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// Threads that work on one job after another. The shares of a job are fixed; which thread takes which is not.
struct Team {
    leader: ThreadId,
    /// Job number, share count, next share.
    state: AtomicU64,
    /// The job: a pointer to a `&Work` on the leader's stack.
    work: AtomicPtr<()>,
    done: AtomicUsize,
    over: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

thread_local! {
    /// The team led by this thread, while it is free for a job.
    static LED: Cell<Option<*const Team>> = const { Cell::new(None) };
}

/// Runs `work` on a pool thread, with all other pool threads spinning for [`fan_out`] calls inside it.
pub fn team<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let others = rayon::current_num_threads() - 1;
    if others == 0 || LED.get().is_some() {
        return work();
    }
    rayon::scope(|scope| {
        let team = std::sync::Arc::new(Team {
            leader: std::thread::current().id(),
            state: AtomicU64::new(0),
            work: AtomicPtr::new(std::ptr::null_mut()),
            done: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        for _ in 0..others {
            let team = team.clone();
            scope.spawn(move |_| team.serve());
        }
        let _leading = Leading::new(&team);
        work()
    })
}

/// Calls `f` for 0..shares on the team led by this thread; false if there is none.
pub(super) fn fan_out(shares: usize, f: &Work) -> bool {
    let Some(team) = LED.take() else {
        return false;
    };
    let _free_again = ReleaseGuard(team);
    // SAFETY: a team lives as long as it is led.
    let team = unsafe { &*team };
    for first in (0..shares).step_by(MAX_SHARES) {
        let most = MAX_SHARES.min(shares - first);
        match first {
            0 => team.run(most, f),
            _ => team.run(most, &|share| f(first + share)),
        }
    }
    true
}

/// Whether this thread leads an idle team.
#[cfg(test)]
fn is_led() -> bool {
    LED.get().is_some()
}

struct ReleaseGuard(*const Team);

impl Drop for ReleaseGuard {
    fn drop(&mut self) {
        LED.set(Some(self.0));
    }
}

/// Ends the team when the leader is done, or panics.
struct Leading<'a>(&'a Team);

impl<'a> Leading<'a> {
    fn new(team: &'a Team) -> Self {
        LED.set(Some(team));
        Leading(team)
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        LED.set(None);
        self.0.over.store(true, Ordering::Release);
    }
}

impl Team {
    /// Publishes a job of at most [`MAX_SHARES`] shares, works on them, and waits for the last one.
    fn run(&self, shares: usize, f: &Work) {
        debug_assert!(shares <= MAX_SHARES, "as many as the state counts");
        self.done.store(0, Ordering::Relaxed);
        let mut job = f;
        self.work
            .store((&raw mut job).cast::<()>(), Ordering::Relaxed);
        let number = (self.state.load(Ordering::Relaxed) >> (2 * FIELD)).wrapping_add(1);
        let state = number << (2 * FIELD) | (shares as u64) << FIELD;
        self.state.store(state, Ordering::Release);
        while self.take_share() {}
        wait_until(|| self.done.load(Ordering::Acquire) >= shares);
        if let Some(panic) = self.taken_panic() {
            resume_unwind(panic);
        }
    }

    fn taken_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic.lock().map_or(None, |mut panic| panic.take())
    }

    /// Works on the next share of the job, if any.
    fn take_share(&self) -> bool {
        let free = |state: u64| state & MASK < state >> FIELD & MASK;
        if !free(self.state.load(Ordering::Relaxed)) {
            return false;
        }
        let state = self.state.fetch_add(1, Ordering::AcqRel);
        if !free(state) {
            return false;
        }
        // SAFETY: the share just taken keeps its job alive: the leader waits for it. `run` stored the pointer
        // before the state read here.
        let work: &Work = unsafe { *self.work.load(Ordering::Relaxed).cast::<&Work>() };
        let share = (state & MASK) as usize;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(share)))
            && let Ok(mut kept) = self.panic.lock()
        {
            kept.get_or_insert(panic);
        }
        self.done.fetch_add(1, Ordering::Release);
        true
    }

    /// The loop of the other threads until the team ends. The leader may also enter it while waiting for something else
    /// in the pool: it must return at once.
    fn serve(&self) {
        if std::thread::current().id() == self.leader {
            return;
        }
        let mut spins = 0;
        while !self.over.load(Ordering::Acquire) {
            if self.take_share() {
                spins = 0;
            } else {
                spin(&mut spins);
            }
        }
    }
}

/// Spins until `is_over` returns true, for what other threads are about to finish.
pub fn wait_until(is_over: impl Fn() -> bool) {
    let mut spins = 0;
    while !is_over() {
        spin(&mut spins);
    }
}

fn spin(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(SPINS) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads;

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
    }

    #[test]
    fn every_share_of_every_job_is_done_once() {
        for n_threads in [1, 2, 5] {
            pool(n_threads).install(|| {
                team(|| {
                    for round in 0..2000_usize {
                        let shares = round % 7;
                        let counts: Vec<AtomicUsize> =
                            (0..shares).map(|_| AtomicUsize::new(0)).collect();
                        threads::fan_out(shares, &|share| {
                            counts[share].fetch_add(round, Ordering::Relaxed);
                        });
                        assert!(counts.iter().all(|n| n.load(Ordering::Relaxed) == round));
                    }
                });
            });
        }
    }

    #[test]
    fn jobs_beyond_the_share_limit_are_done_completely() {
        for n_threads in [2, 5] {
            pool(n_threads).install(|| {
                team(|| {
                    for shares in [MAX_SHARES, MAX_SHARES + 1, 40_000, 3 * MAX_SHARES + 7] {
                        let counts: Vec<AtomicUsize> =
                            (0..shares).map(|_| AtomicUsize::new(0)).collect();
                        threads::fan_out(shares, &|share| {
                            counts[share].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(counts.iter().all(|n| n.load(Ordering::Relaxed) == 1));
                    }
                });
            });
        }
    }

    #[test]
    fn pool_loops_work_inside_a_team() {
        use rayon::prelude::*;
        let sum = pool(3).install(|| {
            team(|| {
                let outer: usize = (0..1000_usize).into_par_iter().sum();
                let inner = AtomicUsize::new(0);
                threads::fan_out(4, &|_| {
                    // A share may fan out itself.
                    threads::fan_out(3, &|i| {
                        inner.fetch_add(i, Ordering::Relaxed);
                    });
                });
                outer + inner.into_inner()
            })
        });
        assert_eq!(sum, 499_500 + 12);
        assert!(!is_led());
    }

    #[test]
    fn a_panic_of_any_share_reaches_the_leader() {
        for share in 0..3 {
            let caught = catch_unwind(|| {
                pool(2).install(|| {
                    team(|| threads::fan_out(3, &|i| assert!(i != share, "share {i}")));
                });
            });
            assert!(caught.is_err());
        }
    }
}
