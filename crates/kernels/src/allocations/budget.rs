//! Calls with a budget of memory and time, for libraries that process untrusted input: a chat template that doubles a string
//! forty times, a tokenizer that expands each letter to a page. Such a library cannot be interrupted, and an allocator can
//! neither unwind nor refuse without ending the program. So the call runs on its own thread: the allocation that would exceed
//! the budget never returns, the thread stays blocked with the memory that it holds, and the caller gets an error. A caller
//! should not repeat such a call: each refusal costs a thread and up to one budget of memory.
//!
//! The allocator must be [`super::Counting`]; under another one only time is bounded.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of address space for the stack of a helper.
const STACK: usize = 8 << 20;
/// The clock of a wait: a process that was suspended loses one tick, not the whole time.
const TICK: Duration = Duration::from_secs(1);

/// What a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that are allocated and not freed, at any time.
    pub bytes: usize,
    /// Rounded up to seconds.
    pub time: Duration,
}

/// Why a call came to no end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overdrawn {
    /// It needs more than so many bytes.
    Memory(usize),
    /// It takes longer.
    Time(Duration),
    /// It panicked, with these words.
    Panicked(String),
    /// No thread could be started for it.
    NoThread(String),
}

impl fmt::Display for Overdrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Overdrawn::Memory(bytes) => {
                let bytes = llmtui_base::human::bytes(*bytes as u64);
                write!(f, "it takes more than {bytes} of memory")
            }
            Overdrawn::Time(time) => write!(f, "it takes longer than {} s", time.as_secs()),
            Overdrawn::Panicked(words) => write!(f, "its library crashed: {words}"),
            Overdrawn::NoThread(why) => write!(
                f,
                "no thread can be started for it: {why}; raise the limit on processes or address space (ulimit -u, ulimit -v)"
            ),
        }
    }
}

impl std::error::Error for Overdrawn {}

/// How far the call of a helper is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Working,
    Done,
    Overdrawn,
    /// The caller gave up.
    Abandoned,
}

type Job = Box<dyn FnOnce() + Send>;

/// One thread and what it may still take. Leaked: a thread may stay for ever.
struct Helper {
    left: AtomicI64,
    abandoned: AtomicBool,
    state: Mutex<(State, Option<Job>)>,
    changed: Condvar,
}

thread_local! {
    /// The helper that this thread is, while it has a call.
    static HERE: Cell<Option<&'static Helper>> = const { Cell::new(None) };
}

static IDLE: Mutex<Vec<&'static Helper>> = Mutex::new(Vec::new());

/// Whether this thread works on a budget: a panic here is about the input, not a bug.
pub fn is_active() -> bool {
    HERE.get().is_some()
}

/// Books `bytes` that are about to be allocated. Never returns where the budget does not hold them.
pub(super) fn take(bytes: usize) {
    let Some(helper) = HERE.get() else { return };
    // A panic hook works with locks of the standard library held: it must come to its end.
    if std::thread::panicking() {
        return;
    }
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let left = helper.left.fetch_sub(bytes, Ordering::Relaxed);
    if left < bytes || helper.abandoned.load(Ordering::Relaxed) {
        // From here on nothing is booked, and nothing is allocated.
        HERE.set(None);
        helper.rest_for_ever();
    }
}

pub(super) fn give_back(bytes: usize) {
    if let Some(helper) = HERE.get() {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        helper.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Runs `call` within a budget. It owns what it works on: it may outlive the caller's patience.
///
/// # Errors
/// What it ran out of, or that it panicked.
pub fn within<T: Send + 'static>(
    budget: Budget,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Overdrawn> {
    if is_active() {
        return Ok(call());
    }
    let result = Arc::new(Mutex::new(None));
    let job = {
        let result = Arc::clone(&result);
        Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(call));
            *lock(&result) = Some(outcome);
        })
    };
    let helper = Helper::any().map_err(|e| Overdrawn::NoThread(e.to_string()))?;
    helper.work(budget, job)?;
    let outcome = lock(&result).take();
    match outcome {
        Some(Ok(value)) => Ok(value),
        Some(Err(panic)) => Err(Overdrawn::Panicked(words(&*panic))),
        None => Err(Overdrawn::Panicked("it ended without a result".into())),
    }
}

impl Helper {
    /// One that waits for work, or a new one.
    fn any() -> std::io::Result<&'static Helper> {
        if let Some(helper) = lock(&IDLE).pop() {
            return Ok(helper);
        }
        let helper: &'static Helper = Box::leak(Box::new(Helper {
            left: AtomicI64::new(0),
            abandoned: AtomicBool::new(false),
            state: Mutex::new((State::Idle, None)),
            changed: Condvar::new(),
        }));
        std::thread::Builder::new()
            .name("budgeted".into())
            .stack_size(STACK)
            .spawn(move || helper.serve())?;
        Ok(helper)
    }

    /// The caller's side.
    fn work(&'static self, budget: Budget, job: Job) -> Result<(), Overdrawn> {
        let bytes = i64::try_from(budget.bytes).unwrap_or(i64::MAX);
        self.left.store(bytes, Ordering::Relaxed);
        let mut state = lock(&self.state);
        *state = (State::Working, Some(job));
        self.changed.notify_all();
        let mut patience = budget.time;
        loop {
            let waited = self.changed.wait_timeout(state, TICK);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            match state.0 {
                State::Done => break,
                State::Overdrawn => return Err(Overdrawn::Memory(budget.bytes)),
                _ if timeout.timed_out() && patience <= TICK => {
                    state.0 = State::Abandoned;
                    self.abandoned.store(true, Ordering::Relaxed);
                    return Err(Overdrawn::Time(budget.time));
                }
                _ if timeout.timed_out() => patience -= TICK,
                _ => {}
            }
        }
        state.0 = State::Idle;
        drop(state);
        lock(&IDLE).push(self);
        Ok(())
    }

    /// The thread's side: one call after another.
    fn serve(&'static self) {
        loop {
            let mut state = lock(&self.state);
            let job = loop {
                match state.1.take() {
                    Some(job) => break job,
                    None => state = self.wait(state),
                }
            };
            drop(state);
            HERE.set(Some(self));
            job();
            HERE.set(None);
            let mut state = lock(&self.state);
            if state.0 == State::Abandoned {
                return;
            }
            state.0 = State::Done;
            self.changed.notify_all();
        }
    }

    /// The end of a thread that may take no more: it holds whatever it holds.
    fn rest_for_ever(&self) -> ! {
        let mut state = lock(&self.state);
        if state.0 == State::Working {
            state.0 = State::Overdrawn;
            self.changed.notify_all();
        }
        loop {
            state = self.wait(state);
        }
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, (State, Option<Job>)>,
    ) -> MutexGuard<'a, (State, Option<Job>)> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
    llmtui_base::text::one_line(words.unwrap_or("a panic without a message"))
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    const SMALL: Budget = Budget {
        bytes: 1 << 20,
        time: Duration::from_secs(60),
    };

    #[test]
    fn what_keeps_to_its_budget_returns_and_its_thread_is_used_again() {
        for n in 0..1000usize {
            // Half a budget each time: what is freed may be taken again.
            let sum = within(SMALL, move || {
                let some = black_box(vec![1u8; 500_000]);
                some.iter().map(|b| usize::from(*b)).sum::<usize>() + n
            });
            assert_eq!(sum, Ok(500_000 + n));
        }
    }

    // Without `black_box` the compiler may leave out a block that nobody reads.
    #[test]
    fn one_large_block_and_many_small_ones_end_the_call_and_nothing_else() {
        let large = within(SMALL, || black_box(vec![0u8; 2 << 20]).len());
        assert_eq!(large, Err(Overdrawn::Memory(1 << 20)));
        let doubled = within(SMALL, || {
            let mut text = "x".to_string();
            for _ in 0..40 {
                text = format!("{text}{text}");
            }
            text.len()
        });
        assert_eq!(doubled, Err(Overdrawn::Memory(1 << 20)));
        let many = within(SMALL, || {
            let boxes = (0..1_000_000u64).map(|n| black_box(Box::new(n)));
            boxes.collect::<Vec<_>>().len()
        });
        assert_eq!(many, Err(Overdrawn::Memory(1 << 20)));
        assert_eq!(within(SMALL, || 7), Ok(7), "the next call has its own");
    }

    #[test]
    fn a_panic_is_an_error_with_its_words_and_a_call_within_a_call_shares_its_budget() {
        let broken = within(SMALL, || -> u8 { panic!("index 7 out of 3") });
        assert_eq!(broken, Err(Overdrawn::Panicked("index 7 out of 3".into())));
        let inner = within(SMALL, || {
            within(SMALL, || black_box(vec![0u8; 2 << 20]).len())
        });
        assert_eq!(inner, Err(Overdrawn::Memory(1 << 20)));
    }

    #[test]
    fn a_call_without_end_is_given_up() {
        let short = Budget {
            time: Duration::from_secs(1),
            ..SMALL
        };
        let endless = within(short, || {
            let mut n = 0u64;
            while black_box(n) < u64::MAX {
                n = String::from_utf8_lossy(&n.to_le_bytes()).len() as u64;
            }
            n
        });
        assert_eq!(endless, Err(Overdrawn::Time(Duration::from_secs(1))));
    }
}
