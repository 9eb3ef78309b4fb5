//! Time, passed in so that tests can control it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, as used on the wire and in file names.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Time from `earlier` to `self`; zero if the wall clock was set back in between.
    pub fn since(self, earlier: UnixMillis) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A source of wall time and of monotonic time.
pub trait Clock: Send + Sync {
    /// Wall time; may jump when the machine's clock is set.
    fn now(&self) -> UnixMillis;
    /// Time since the clock was created; never decreases.
    fn elapsed(&self) -> Duration;
    /// Both.
    fn moment(&self) -> Moment {
        Moment {
            now: self.now(),
            elapsed: self.elapsed(),
        }
    }
}

/// One moment by both times of a clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// [`Clock::now`]: for ages of what files and events say.
    pub now: UnixMillis,
    /// [`Clock::elapsed`]: for how long something took or was silent, whatever is done to the machine's clock.
    pub elapsed: Duration,
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock(Instant);

impl SystemClock {
    pub fn new() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that reads the system clock"
        )]
        SystemClock(Instant::now())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that reads the system clock"
        )]
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        UnixMillis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Sleeps between two polls of something that sends no notification, such as another process or a lock. If it does send one,
/// wait for that with a timeout. `park_timeout` is no substitute: an `unpark` from any holder of the handle ends it early.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that sleeps: a pause between two looks"
)]
pub fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// A clock that advances only on request.
#[derive(Debug, Default)]
pub struct ManualClock(std::sync::atomic::AtomicU64);

impl ManualClock {
    pub fn at(millis: u64) -> Self {
        ManualClock(millis.into())
    }

    pub fn advance(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.0
            .fetch_add(millis, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_not_cut_short_by_a_stray_unpark() {
        std::thread::current().unpark();
        let (clock, length) = (SystemClock::new(), Duration::from_millis(30));
        pause(length);
        assert!(clock.elapsed() >= length);
    }
}
