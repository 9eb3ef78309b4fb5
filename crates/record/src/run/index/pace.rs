//! How fast a run goes now, from the times of its newest steps: what a list, which keeps no fold of each run, says of the time left.
//! A fold knows more ([`crate::run::state`]).

use super::scan::loss;
use crate::run::newest_loss;
use crate::wire::{Event, decode_envelope, id};
use std::collections::VecDeque;

/// Number of steps of the log that count: as in a fold.
const WINDOW: usize = crate::run::state::PACE_WINDOW;
/// Lines that are held: those of the pace, and those of the training loss that is shown.
const LINES: usize = newest_loss::WINDOW;
const _: () = assert!(LINES >= WINDOW);
/// Longer than usual by this factor, and longer than this time in milliseconds: the machine's clock was set in between.
const JUMP: (f64, f64) = (50.0, 600_000.0);

/// The newest lines of steps as they stand in the log: one of a thousand is decoded.
#[derive(Debug, Default)]
pub(super) struct NewestSteps {
    lines: VecDeque<String>,
    /// So many at the front do not count for the pace.
    forgotten: usize,
    /// So many at the front have given their losses.
    read: usize,
}

impl NewestSteps {
    pub fn push(&mut self, line: &str) {
        let mut own = String::new();
        if self.lines.len() >= LINES {
            own = self.lines.pop_front().unwrap_or_default();
            self.forgotten = self.forgotten.saturating_sub(1);
            self.read = self.read.saturating_sub(1);
        }
        line.clone_into(&mut own);
        self.lines.push_back(own);
    }

    /// What came before does not count for the pace any more.
    pub fn forget(&mut self) {
        self.forgotten = self.lines.len();
    }

    /// Adds time (milliseconds since 1970) and number of each step to those found before.
    pub fn add_to(&self, found: &mut Vec<(u64, u64)>) {
        let newest = self.lines.len().saturating_sub(WINDOW);
        for line in self.lines.iter().skip(self.forgotten.max(newest)) {
            let Ok(envelope) = decode_envelope(line) else {
                continue;
            };
            if let Event::Stepped { step, .. } = envelope.event {
                found.push((envelope.t.0, step));
            }
        }
        let before = found.len().saturating_sub(WINDOW);
        found.drain(..before);
    }

    /// Step and training loss of the lines that were not asked for before.
    pub fn losses(&mut self) -> Vec<(u64, f64)> {
        let unread = self.lines.iter().skip(self.read);
        let found = unread.filter_map(|line| match decode_envelope(line).ok()?.event {
            Event::Stepped { step, values, .. } => Some((step, loss(&values, id::TRAIN_LOSS)?)),
            _ => None,
        });
        let found = found.collect();
        self.read = self.lines.len();
        found
    }
}

/// Seconds per step, evaluations and the like between the steps included; `None` before the second step.
pub(super) fn step_seconds(found: &[(u64, u64)]) -> Option<f64> {
    let between = |pair: &[(u64, u64)]| {
        let (before, now) = (pair[0], pair[1]);
        let (ms, steps) = (now.0.checked_sub(before.0)?, now.1.checked_sub(before.1)?);
        (steps > 0).then_some((ms as f64, steps as f64))
    };
    let mut all: Vec<(f64, f64)> = found.windows(2).filter_map(between).collect();
    all.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (ms, steps) = all.get(all.len() / 2)?;
    let usual = ms / steps;
    let is_jump = |&(ms, steps): &(f64, f64)| ms / steps > JUMP.0 * usual && ms > JUMP.1;
    let counted = all.iter().filter(|it| !is_jump(it));
    let (ms, steps) = counted.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    (ms > 0.0).then_some(ms / steps / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{ManualClock, UnixMillis};
    use crate::run::RunDir;
    use crate::wire::{Envelope, VERSION, Values, encode};

    #[test]
    fn a_clock_that_was_set_does_not_count_and_an_evaluation_does() {
        const DAY: u64 = 86_400_000;
        // A second for each step, ten more for an evaluation behind every tenth.
        let log = |set: &dyn Fn(u64) -> u64| -> Vec<(u64, u64)> {
            let time = |step| 2 * DAY + 1_000 * step + 10_000 * (step / 10);
            (1..=41)
                .map(|step| (set(step) + time(step), step))
                .collect()
        };
        let plain = step_seconds(&log(&|_| 0)).unwrap();
        assert!((plain - 2.0).abs() < 0.01, "{plain}");
        let forward = log(&|step| if step > 15 { DAY } else { 0 });
        let back = log(&|step| if step > 15 { 0 } else { DAY });
        for jumped in [forward, back] {
            let found = step_seconds(&jumped).unwrap();
            assert!((found - plain).abs() < 0.1, "{found}");
        }
        assert_eq!(step_seconds(&[]), None);
        assert_eq!(step_seconds(&[(5, 1)]), None);
        assert_eq!(step_seconds(&[(5, 1), (5, 2)]), None);
    }

    /// A list said that a run had weeks left, because its machine's clock had been set.
    #[test]
    fn a_summary_has_the_pace_of_the_newest_steps() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "x", "", "", &ManualClock::at(0)).unwrap();
        let hello = Event::Hello {
            run: run.id().into(),
            engine: "0".into(),
            pid: 1,
            host: "h".into(),
        };
        let stepped = |step| Event::Stepped {
            step,
            tokens: 0,
            values: Values::default(),
        };
        let day = |step: u64| if step > 520 { 86_400 } else { 0 };
        let begun = [(0, hello), (5, Event::RolledBack { step: 500 })];
        let steps = (501..=540).map(|step| (day(step) + 2 * step, stepped(step)));
        let log = begun.into_iter().chain(steps).enumerate();
        let line = |(i, (t, event)): (usize, (u64, Event))| {
            encode(&Envelope {
                v: VERSION,
                seq: i as u64 + 1,
                t: UnixMillis(t * 1_000),
                event,
            })
        };
        let text: String = log.map(line).collect();
        std::fs::write(run.events_path(), text).unwrap();
        let summary = crate::run::index::summarize(&run).unwrap();
        assert_eq!((summary.step, summary.step_seconds), (540, Some(2.0)));
        assert!(summary.seconds > 86_400.0);
    }
}
