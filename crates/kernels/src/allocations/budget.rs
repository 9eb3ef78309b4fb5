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
/// Granularity of waiting: a process that was suspended loses one tick, not the whole time.
const TICK: Duration = Duration::from_secs(1);

/// Limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that are allocated and not freed, at any time.
    pub bytes: usize,
    /// Rounded up to seconds.
    pub time: Duration,
}

/// Why a call did not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetExceeded {
    /// It needs more than this many bytes.
    Memory(usize),
    /// It takes longer.
    Time(Duration),
    /// It panicked, with this message.
    Panicked(String),
    /// No thread could be started for it.
    NoThread(String),
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BudgetExceeded::Memory(bytes) => {
                let bytes = llmtui_base::human::bytes(*bytes as u64);
                write!(f, "it takes more than {bytes} of memory")
            }
            BudgetExceeded::Time(time) => write!(f, "it takes longer than {} s", time.as_secs()),
            BudgetExceeded::Panicked(panic_message) => {
                write!(f, "its library crashed: {panic_message}")
            }
            BudgetExceeded::NoThread(why) => write!(
                f,
                "no thread can be started for it: {why}; raise the limit on processes or address space (ulimit -u, ulimit -v)"
            ),
        }
    }
}

impl std::error::Error for BudgetExceeded {}

/// The state of a worker's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Working,
    Done,
    BudgetExceeded,
    /// The caller timed out.
    Abandoned,
}

type Job = Box<dyn FnOnce() + Send>;

/// One thread and its remaining budget. Leaked, because the thread may block for ever.
struct Worker {
    left: AtomicI64,
    abandoned: AtomicBool,
    state: Mutex<(State, Option<Job>)>,
    changed: Condvar,
}

thread_local! {
    /// The worker that runs on this thread, during a call.
    static HERE: Cell<Option<&'static Worker>> = const { Cell::new(None) };
}

static IDLE: Mutex<Vec<&'static Worker>> = Mutex::new(Vec::new());

/// Whether this thread runs a budgeted call: a panic here is about the input, not a bug.
pub fn is_active() -> bool {
    HERE.get().is_some()
}

/// Charges `bytes` that are about to be allocated. Never returns if they exceed the budget.
pub(super) fn take(bytes: usize) {
    let Some(helper) = HERE.get() else { return };
    // A panic hook runs with locks of the standard library held: it must be able to finish.
    if std::thread::panicking() {
        return;
    }
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let left = helper.left.fetch_sub(bytes, Ordering::Relaxed);
    if left < bytes || helper.abandoned.load(Ordering::Relaxed) {
        // From here on nothing is charged, and nothing is allocated.
        HERE.set(None);
        helper.block_forever();
    }
}

pub(super) fn give_back(bytes: usize) {
    if let Some(helper) = HERE.get() {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        helper.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Runs `call` within a budget. `call` owns its data, because it may outlive the timeout.
///
/// # Errors
/// What it ran out of, or that it panicked.
pub fn within<T: Send + 'static>(
    budget: Budget,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BudgetExceeded> {
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
    let helper = Worker::any().map_err(|e| BudgetExceeded::NoThread(e.to_string()))?;
    helper.work(budget, job)?;
    let outcome = lock(&result).take();
    match outcome {
        Some(Ok(value)) => Ok(value),
        Some(Err(panic)) => Err(BudgetExceeded::Panicked(panic_message(&*panic))),
        None => Err(BudgetExceeded::Panicked("it ended without a result".into())),
    }
}

impl Worker {
    /// An idle worker, or a new one.
    fn any() -> std::io::Result<&'static Worker> {
        if let Some(helper) = lock(&IDLE).pop() {
            return Ok(helper);
        }
        let helper: &'static Worker = Box::leak(Box::new(Worker {
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

    /// The caller's side: hands over a job and waits for it.
    fn work(&'static self, budget: Budget, job: Job) -> Result<(), BudgetExceeded> {
        let bytes = i64::try_from(budget.bytes).unwrap_or(i64::MAX);
        self.left.store(bytes, Ordering::Relaxed);
        let mut state = lock(&self.state);
        *state = (State::Working, Some(job));
        self.changed.notify_all();
        let mut remaining = budget.time;
        loop {
            let waited = self.changed.wait_timeout(state, TICK);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            match state.0 {
                State::Done => break,
                State::BudgetExceeded => return Err(BudgetExceeded::Memory(budget.bytes)),
                _ if timeout.timed_out() && remaining <= TICK => {
                    state.0 = State::Abandoned;
                    self.abandoned.store(true, Ordering::Relaxed);
                    return Err(BudgetExceeded::Time(budget.time));
                }
                _ if timeout.timed_out() => remaining -= TICK,
                _ => {}
            }
        }
        state.0 = State::Idle;
        drop(state);
        lock(&IDLE).push(self);
        Ok(())
    }

    /// The thread's side: runs one call after another.
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

    /// Blocks a thread that has exceeded its budget, with the memory that it holds.
    fn block_forever(&self) -> ! {
        let mut state = lock(&self.state);
        if state.0 == State::Working {
            state.0 = State::BudgetExceeded;
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

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let panic_message = panic.downcast_ref::<String>().map(String::as_str);
    let panic_message = panic_message.or_else(|| panic.downcast_ref::<&str>().copied());
    llmtui_base::text::one_line(panic_message.unwrap_or("a panic without a message"))
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
    fn calls_within_budget_return_and_their_thread_is_reused() {
        for n in 0..1000usize {
            // Half a budget each time: freed memory may be allocated again.
            let sum = within(SMALL, move || {
                let some = black_box(vec![1u8; 500_000]);
                some.iter().map(|b| usize::from(*b)).sum::<usize>() + n
            });
            assert_eq!(sum, Ok(500_000 + n));
        }
    }

    // Without `black_box` the compiler may remove an unused block.
    #[test]
    fn large_and_many_small_allocations_end_the_call_but_nothing_else() {
        let large = within(SMALL, || black_box(vec![0u8; 2 << 20]).len());
        assert_eq!(large, Err(BudgetExceeded::Memory(1 << 20)));
        let doubled = within(SMALL, || {
            let mut text = "x".to_string();
            for _ in 0..40 {
                text = format!("{text}{text}");
            }
            text.len()
        });
        assert_eq!(doubled, Err(BudgetExceeded::Memory(1 << 20)));
        let many = within(SMALL, || {
            let boxes = (0..1_000_000u64).map(|n| black_box(Box::new(n)));
            boxes.collect::<Vec<_>>().len()
        });
        assert_eq!(many, Err(BudgetExceeded::Memory(1 << 20)));
        assert_eq!(
            within(SMALL, || 7),
            Ok(7),
            "the next call has its own budget"
        );
    }

    #[test]
    fn a_panic_is_an_error_with_its_words_and_a_call_within_a_call_shares_its_budget() {
        let broken = within(SMALL, || -> u8 { panic!("index 7 out of 3") });
        assert_eq!(
            broken,
            Err(BudgetExceeded::Panicked("index 7 out of 3".into()))
        );
        let inner = within(SMALL, || {
            within(SMALL, || black_box(vec![0u8; 2 << 20]).len())
        });
        assert_eq!(inner, Err(BudgetExceeded::Memory(1 << 20)));
    }

    #[test]
    fn an_endless_call_times_out() {
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
        assert_eq!(endless, Err(BudgetExceeded::Time(Duration::from_secs(1))));
    }
}
