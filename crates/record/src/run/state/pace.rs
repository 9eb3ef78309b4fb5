//! Step time and ETA: the time of a step without interruptions, and the time and interval of the interruptions
//! themselves. Based on event timestamps, so that a replay gives the same.

use super::parts::push_bounded;
use crate::base::clock::UnixMillis;
use crate::base::every::Every;
use crate::wire::{Envelope, Event, Phase};
use serde::Deserialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of recent step intervals.
pub const WINDOW: usize = 64;
/// Number of recent interruptions of a kind.
const INTERRUPTIONS: usize = 8;

/// One kind of interruption: evaluations, samples or checkpoints.
#[derive(Debug, Clone, Default)]
struct Interruption {
    /// Steps between two, from the spec; else from the last two seen.
    every: Option<u64>,
    last_step: Option<u64>,
    seconds: VecDeque<f64>,
}

impl Interruption {
    fn seen(&mut self, step: u64, seconds: f64) {
        if let Some(last) = self.last_step.filter(|last| *last > 0 && step > *last) {
            self.every = self.every.or(Some(step - last));
        }
        self.last_step = Some(step);
        if seconds.is_finite() && seconds >= 0.0 {
            push_bounded(&mut self.seconds, seconds, INTERRUPTIONS);
        }
    }

    /// Expected seconds of those between `step` (excluded) and `max_steps` (included).
    fn ahead(&self, step: u64, max_steps: u64) -> f64 {
        let (Some(every), false) = (self.every.filter(|e| *e > 0), self.seconds.is_empty()) else {
            return 0.0;
        };
        let count = (max_steps / every).saturating_sub(step / every);
        let mean = self.seconds.iter().sum::<f64>() / self.seconds.len() as f64;
        count as f64 * mean
    }
}

/// The pace of a run.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// (milliseconds, steps) to a logged step from the one before it, or from the end of what came between them.
    recent: VecDeque<(u64, u64)>,
    previous: Option<(UnixMillis, u64)>,
    /// The newest engine has taken a step. Its first one sets buffers up, and says little of the others.
    is_warm: bool,
    evaluations: Interruption,
    samples: Interruption,
    checkpoints: Interruption,
    /// Windows of the whole validation split, which the evaluation after the last step reads.
    whole_split: Option<f64>,
    /// Seconds per window in the newest evaluation.
    window_seconds: Option<f64>,
}

impl Pace {
    pub(super) fn observe(&mut self, envelope: &Envelope) {
        match &envelope.event {
            Event::Hello { .. } => *self = Pace::default(),
            Event::Started {
                spec,
                epoch_tokens,
                max_steps,
                ..
            } => {
                self.is_warm = false;
                self.whole_split = validation_windows(spec, *epoch_tokens);
                let every = |path: &str| {
                    let every = Every::deserialize(spec.pointer(path)?).ok()?;
                    Some(every.steps(*max_steps))
                };
                self.evaluations.every = every("/eval/every");
                self.samples.every = every("/sample/every");
                self.checkpoints.every = every("/checkpoint/every");
            }
            Event::Stepped { step, .. } => self.stepped(envelope.t, *step),
            Event::Evaluated {
                step,
                seconds,
                n_windows,
                ..
            } => {
                self.previous = Some((envelope.t, *step));
                self.window_seconds = (*n_windows > 0).then(|| seconds / *n_windows as f64);
                self.evaluations.seen(*step, *seconds);
            }
            Event::Sampled { step, seconds, .. } => {
                self.previous = Some((envelope.t, *step));
                self.samples.seen(*step, *seconds);
            }
            Event::Checkpointed { step, seconds, .. } => {
                self.previous = Some((envelope.t, *step));
                self.checkpoints.seen(*step, *seconds);
            }
            // A short run evaluates, samples or saves after each of its steps: the next one is timed from here.
            Event::PhaseChanged {
                phase: Phase::Training,
                step,
            } => self.previous = Some((envelope.t, *step)),
            Event::PhaseChanged { .. } => self.previous = None,
            Event::RolledBack { .. } | Event::StartedOver => self.previous = None,
            _ => {}
        }
    }

    fn stepped(&mut self, t: UnixMillis, step: u64) {
        let previous = self
            .previous
            .filter(|(_, from)| self.is_warm && step > *from);
        if let Some((before, from)) = previous {
            let ms = t.0.saturating_sub(before.0);
            push_bounded(&mut self.recent, (ms, step - from), WINDOW);
        }
        self.previous = Some((t, step));
        self.is_warm = true;
    }

    /// The longest of the recent times from one logged step to the next, in milliseconds.
    pub fn longest_ms(&self) -> Option<u64> {
        self.recent.iter().map(|(ms, _)| *ms).max()
    }

    /// Recent milliseconds per step: the mean of the middle four fifths, so that neither the clock's resolution
    /// nor a sleeping laptop matters. `None` before the second step.
    pub fn step_ms(&self) -> Option<f64> {
        let mut per_step: Vec<f64> = self
            .recent
            .iter()
            .map(|(ms, n)| *ms as f64 / *n as f64)
            .collect();
        per_step.sort_by(f64::total_cmp);
        let cut = per_step.len() / 10;
        let middle = &per_step[cut..per_step.len() - cut];
        let mean = middle.iter().sum::<f64>() / middle.len() as f64;
        (mean > 0.0).then_some(mean)
    }

    /// Time from `step` to `max_steps`, interruptions included.
    pub(super) fn remaining(&self, step: u64, max_steps: u64) -> Option<Duration> {
        let steps = max_steps.saturating_sub(step) as f64 * self.step_ms()? / 1e3;
        let interruptions = [&self.evaluations, &self.samples, &self.checkpoints];
        let ahead: f64 = interruptions.iter().map(|i| i.ahead(step, max_steps)).sum();
        let last = if step < max_steps {
            self.last_evaluation()
        } else {
            0.0
        };
        Duration::try_from_secs_f64(steps + ahead + last).ok()
    }

    /// Seconds of the evaluation after the last step, if the regular ones cover only part of the split.
    fn last_evaluation(&self) -> f64 {
        self.whole_split
            .zip(self.window_seconds)
            .map_or(0.0, |(windows, seconds)| windows * seconds)
    }
}

/// Windows of the validation split if regular evaluations cover only some (`eval.batches`): estimated from the training
/// split's tokens.
fn validation_windows(spec: &serde_json::Value, epoch_tokens: u64) -> Option<f64> {
    let number = |path: &str| spec.pointer(path).and_then(serde_json::Value::as_f64);
    number("/eval/batches")?;
    let fraction = number("/data/val_fraction")?;
    let seq_len = number("/model/seq_len").filter(|n| *n >= 1.0)?;
    let windows = epoch_tokens as f64 * fraction / (1.0 - fraction) / seq_len;
    (windows.is_finite() && windows > 0.0).then_some(windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, event: Event) -> Envelope {
        Envelope {
            v: 1,
            seq: 1,
            t: UnixMillis(ms),
            event,
        }
    }

    fn step(ms: u64, step: u64) -> Envelope {
        at(
            ms,
            Event::Stepped {
                step,
                tokens: 0,
                values: Default::default(),
            },
        )
    }

    fn evaluated(ms: u64, step: u64, seconds: f64) -> Envelope {
        let values = Default::default();
        at(
            ms,
            Event::Evaluated {
                step,
                tokens: 0,
                values,
                n_windows: 1,
                whole: false,
                seconds,
            },
        )
    }

    fn started(spec: serde_json::Value, resumed_from: Option<u64>) -> Event {
        Event::Started {
            name: String::new(),
            method: String::new(),
            spec,
            n_params: 1,
            vocab_size: 1,
            max_steps: 100,
            batch_tokens: 1,
            epoch_tokens: 1,
            resumed_from,
            precision: None,
            unigram_entropy: None,
        }
    }

    /// 40 ms a step; an evaluation of 2 s after every 10 steps.
    fn run(to: u64) -> (Pace, u64) {
        let (mut pace, mut t) = (Pace::default(), 1_000);
        for i in 1..=to {
            t += 40;
            pace.observe(&step(t, i));
            if i % 10 == 0 {
                t += 2_000;
                pace.observe(&evaluated(t, i, 2.0));
            }
        }
        (pace, t)
    }

    #[test]
    fn the_time_of_a_step_leaves_evaluations_out_and_the_remaining_time_counts_them() {
        let (pace, _) = run(55);
        assert_eq!(pace.step_ms(), Some(40.0));
        // 45 steps of 40 ms, evaluations at 60, 70, 80, 90, 100.
        assert_eq!(
            pace.remaining(55, 100),
            Some(Duration::from_millis(45 * 40 + 5 * 2_000))
        );
        assert_eq!(pace.remaining(100, 100), Some(Duration::ZERO));
    }

    #[test]
    fn the_last_evaluation_reads_the_whole_split_and_counts() {
        let (mut pace, _) = run(50);
        let spec = serde_json::json!({
            "eval": {"every": 10, "batches": 1}, "data": {"val_fraction": 0.1}, "model": {"seq_len": 64}
        });
        // 9,600 training tokens: 1,066 for validation, 16.7 windows of 64 at 2 s each.
        pace.whole_split = validation_windows(&spec, 9_600);
        let without = Duration::from_millis(50 * 40 + 5 * 2_000);
        let last = pace.remaining(50, 100).unwrap() - without;
        assert!((last.as_secs_f64() - 33.3).abs() < 0.1, "{last:?}");
        assert_eq!(pace.remaining(100, 100), Some(Duration::ZERO));
        assert_eq!(validation_windows(&serde_json::json!({}), 9_600), None);
    }

    #[test]
    fn the_cadence_of_the_spec_wins_over_the_one_seen() {
        the_cadence_wins(serde_json::json!({"every": 50}));
    }

    #[test]
    fn a_share_of_the_run_is_a_cadence_too() {
        the_cadence_wins(serde_json::json!({"every": 0.5}));
    }

    /// Of a run of 9 steps with something after each of them no screen said how long it would take.
    #[test]
    fn steps_with_an_evaluation_after_each_are_timed_from_its_end() {
        let phase = |ms, phase, step| at(ms, Event::PhaseChanged { phase, step });
        let mut pace = Pace::default();
        pace.observe(&phase(0, Phase::Training, 0));
        let mut t = 0;
        for i in 1..=2 {
            t += 30_000;
            pace.observe(&step(t, i));
            if i == 1 {
                assert_eq!(pace.remaining(1, 9), None);
            }
            pace.observe(&phase(t, Phase::Evaluating, i));
            t += 10_000;
            pace.observe(&evaluated(t, i, 10.0));
            pace.observe(&phase(t, Phase::Sampling, i));
            t += 5_000;
            pace.observe(&phase(t, Phase::Training, i));
        }
        assert_eq!(pace.step_ms(), Some(30_000.0));
        // 7 steps, and 7 evaluations.
        assert_eq!(pace.remaining(2, 9), Some(Duration::from_secs(7 * 40)));
    }

    /// A resumed run's first step, of half a minute, was its pace.
    #[test]
    fn the_first_step_of_each_engine_is_not_timed() {
        let mut pace = Pace::default();
        let phase = Phase::Training;
        for (t, from) in [(0, 50), (500_000, 60)] {
            pace.observe(&at(t, started(serde_json::Value::Null, Some(from))));
            pace.observe(&at(t, Event::PhaseChanged { phase, step: from }));
            pace.observe(&step(t + 30_000, from + 1));
            assert_eq!(pace.step_ms(), (from == 60).then_some(1_000.0));
            pace.observe(&step(t + 31_000, from + 2));
            assert_eq!(pace.step_ms(), Some(1_000.0));
        }
    }

    fn the_cadence_wins(eval: serde_json::Value) {
        let (mut pace, t) = run(10);
        let mut spec = serde_json::Map::new();
        spec.insert("eval".into(), eval);
        pace.observe(&at(t, started(spec.into(), None)));
        assert_eq!(
            pace.remaining(10, 100),
            Some(Duration::from_millis(90 * 40 + 2 * 2_000))
        );
    }

    #[test]
    fn a_sleeping_laptop_and_a_pause_do_not_count() {
        let (mut pace, mut t) = run(40);
        t += 3_600_000;
        pace.observe(&step(t, 41));
        t += 40;
        pace.observe(&step(t, 42));
        t += 3_600_000;
        pace.observe(&step(t, 43));
        assert!(
            (pace.step_ms().unwrap() - 40.0).abs() < 1.0,
            "{:?}",
            pace.step_ms()
        );
        pace.observe(&at(
            t,
            Event::PhaseChanged {
                phase: Phase::Paused,
                step: 43,
            },
        ));
        pace.observe(&step(t + 9_000_000, 44));
        assert!((pace.step_ms().unwrap() - 40.0).abs() < 1.0);
    }

    #[test]
    fn nothing_is_claimed_before_the_second_step() {
        assert_eq!(Pace::default().step_ms(), None);
        let mut pace = Pace::default();
        pace.observe(&step(5, 1));
        assert_eq!(pace.remaining(1, 10), None);
        pace.observe(&step(25, 3));
        assert_eq!(pace.step_ms(), Some(10.0), "a line for every second step");
    }
}
