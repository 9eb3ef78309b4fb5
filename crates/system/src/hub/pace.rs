//! Recent download rate in bytes per second.

use std::collections::VecDeque;
use std::time::Duration;

/// Length of the window.
const WINDOW: Duration = Duration::from_secs(5);
/// Interval between samples.
const STEP: Duration = Duration::from_millis(250);

/// Samples of successive downloads.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    file: String,
    /// (time, bytes), oldest first.
    samples: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// Records that `done` bytes of a file are present at `now`, and returns bytes per second; `None` while it is too early.
    pub fn note(&mut self, file: &str, done: u64, now: Duration) -> Option<f64> {
        let another = self.file != file || self.samples.back().is_some_and(|(_, d)| *d > done);
        if another {
            self.file = file.into();
            self.samples.clear();
        }
        while self
            .samples
            .front()
            .is_some_and(|(at, _)| self.samples.len() > 1 && now.saturating_sub(*at) > WINDOW)
        {
            self.samples.pop_front();
        }
        let due = |(at, _): &(Duration, u64)| now.saturating_sub(*at) >= STEP;
        if self.samples.back().is_none_or(due) {
            self.samples.push_back((now, done));
        }
        let (at, before) = *self.samples.front()?;
        let seconds = now.saturating_sub(at).as_secs_f64();
        (seconds >= STEP.as_secs_f64()).then(|| done.saturating_sub(before) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_recent_samples_count_and_a_resumed_download_starts_at_its_offset() {
        let mut pace = Pace::default();
        let at = Duration::from_millis;
        // Bytes from an earlier attempt were not received now.
        assert_eq!(pace.note("a", 1_000_000, at(0)), None);
        assert_eq!(pace.note("a", 1_000_100, at(100)), None);
        assert_eq!(pace.note("a", 1_001_000, at(1000)), Some(1000.0));
        for second in 2..20 {
            pace.note("a", 1_000_000 + 1000 * second, at(1000 * second));
        }
        let faster = pace.note("a", 1_069_000, at(20_000));
        assert_eq!(faster, Some(10_800.0));
        assert_eq!(pace.note("b", 10, at(20_100)), None);
    }
}
