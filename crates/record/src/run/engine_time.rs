//! How long engines have held a run: the one definition for lists, comparisons, screens and reports. A fold over events.

use crate::base::clock::UnixMillis;
use crate::base::human;
use crate::wire::Event;
use std::time::Duration;

/// The total time of all engine processes of a run. A finished engine counts the time in its final event; one that is running or died
/// counts from its first event to its last. Pauses between engines do not count, nor time in the queue; rolled-back steps do.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct EngineTime {
    /// Of engines that have ended.
    before: Duration,
    /// First and last event of one that has said no end.
    open: Option<(UnixMillis, UnixMillis)>,
}

impl EngineTime {
    pub fn take(&mut self, t: UnixMillis, event: &Event) {
        match event {
            Event::Hello { .. } => {
                // One that is still open has died.
                self.before = self.total();
                self.open = Some((t, t));
            }
            Event::Finished { seconds, .. } => {
                let said = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
                self.before = self.before.saturating_add(said);
                self.open = None;
            }
            Event::Queued { .. } => self.open = None,
            // Its turn has come.
            Event::PhaseChanged { .. } if self.open.is_none() => self.open = Some((t, t)),
            _ => self.until(t),
        }
    }

    /// Something was said at that time. Behind an engine's end it is no engine's time.
    pub fn until(&mut self, t: UnixMillis) {
        if let Some((_, last)) = &mut self.open {
            *last = t.max(*last);
        }
    }

    /// Of all engines, up to the last event.
    pub fn total(&self) -> Duration {
        let open = self.open.map(|(first, last)| last.since(first));
        self.before.saturating_add(open.unwrap_or_default())
    }

    pub fn seconds(&self) -> f64 {
        self.total().as_secs_f64()
    }

    pub fn millis(&self) -> u64 {
        u64::try_from(self.total().as_millis()).unwrap_or(u64::MAX)
    }
}

/// `1:03`, or `1:03 (2:41 in all)` where earlier engines held the run too. Both in seconds.
pub fn words(last: f64, whole: f64) -> String {
    let (last, whole) = (human::seconds(last), human::seconds(whole));
    match last == whole {
        true => last,
        false => format!("{last} ({whole} in all)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Outcome, Phase};

    fn hello() -> Event {
        Event::Hello {
            run: "a".into(),
            engine: "0".into(),
            pid: 1,
            host: "h".into(),
        }
    }

    fn finished(seconds: f64) -> Event {
        Event::Finished {
            outcome: Outcome::Stopped,
            step: 1,
            tokens: 0,
            val_loss: None,
            best: None,
            train_loss: None,
            seconds,
            message: String::new(),
        }
    }

    #[test]
    fn a_dead_engine_counts_until_its_last_event_and_pauses_do_not_count() {
        let mut spent = EngineTime::default();
        let mut at = |t: u64, event: Event| {
            spent.take(UnixMillis(t), &event);
            spent.millis()
        };
        let step = || Event::RolledBack { step: 1 };
        assert_eq!(at(1_000, hello()), 0);
        assert_eq!(at(99_000, step()), 98_000);
        // Killed; an hour later the next engine goes on.
        assert_eq!(at(3_700_000, hello()), 98_000);
        assert_eq!(at(3_704_000, step()), 102_000);
        assert_eq!(at(3_704_500, finished(4.25)), 102_250);
        assert_eq!(at(9_000_000, step()), 102_250, "no engine said it");
        assert_eq!(at(9_000_000, hello()), 102_250);
        assert_eq!(at(9_001_000, finished(f64::NAN)), 102_250);
    }

    #[test]
    fn the_last_engine_and_all_of_them_are_told_apart() {
        assert_eq!(words(63.0, 63.2), "1:03");
        assert_eq!(words(63.0, 161.0), "1:03 (2:41 in all)");
    }

    #[test]
    fn time_in_the_queue_is_no_engine_time() {
        let mut spent = EngineTime::default();
        let phase = |phase| Event::PhaseChanged { phase, step: 0 };
        let events = [
            (1_000, hello()),
            (
                1_500,
                Event::Queued {
                    after: "other".into(),
                },
            ),
            (
                90_000,
                Event::HardwareSampled {
                    values: Default::default(),
                },
            ),
            (100_000, phase(Phase::Preparing)),
            (102_000, phase(Phase::Training)),
        ];
        for (t, event) in events {
            spent.take(UnixMillis(t), &event);
        }
        assert_eq!(spent.millis(), 2_000);
        spent.take(UnixMillis(102_500), &finished(2.5));
        assert_eq!(spent.millis(), 2_500);
    }
}
