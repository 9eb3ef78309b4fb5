//! The current speed of a run: one value for the header, for the titles of charts and for the lines of `train`, so that
//! tokens per second times the step time are the tokens of a step. Evaluations, samples and checkpoints are excluded; the
//! remaining time includes them (`pace`).

use super::RunState;
use crate::run::series::Point;
use crate::wire::id;

/// Newest readings that count: enough that digits stand still, few enough that a change is seen within seconds.
const WINDOW: usize = 32;

/// Means over the newest readings. What is not known and does not follow is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Speed {
    /// Target tokens per second of the steps.
    pub tok_per_sec: Option<f64>,
    /// Milliseconds of a step.
    pub step_ms: Option<f64>,
    /// 0 to 1.
    pub mfu: Option<f64>,
}

impl Speed {
    /// The mean of a metric that is a speed; `None` of all others.
    pub fn of(&self, metric: &str) -> Option<f64> {
        match metric {
            id::TOK_PER_SEC => self.tok_per_sec,
            id::STEP_MS => self.step_ms,
            id::MFU => self.mfu,
            _ => None,
        }
    }
}

/// A reading of the step time: of so many steps, each of which took so long.
struct Timed {
    step: u64,
    steps: f64,
    seconds: f64,
}

impl RunState {
    /// How fast it trains now; once it has ended, over all its steps, as reports say it.
    pub fn speed(&self) -> Speed {
        let now = self.recent_speed();
        match self.mean_tok_per_sec().filter(|_| self.finished.is_some()) {
            None => now,
            Some(mean) => Speed {
                tok_per_sec: Some(mean),
                step_ms: self.mean(id::STEP_MS).or(now.step_ms),
                mfu: self.mean(id::MFU),
            },
        }
    }

    fn recent_speed(&self) -> Speed {
        let head = self.head.as_ref();
        let tokens = head.map_or(0, |head| head.batch_tokens_at(self.step)) as f64;
        let (rates, timed) = (self.newest(id::TOK_PER_SEC), self.timed());
        let rate_at = |step| rates.iter().find(|p| p.step == step).map(|p| p.value);
        // Steps for which both are known, or a product of the two means is no number of tokens.
        let both: Vec<(f64, &Timed)> = timed
            .iter()
            .filter_map(|timed| Some((rate_at(timed.step)?, timed)))
            .collect();
        let (tok_per_sec, step_ms) = if !both.is_empty() {
            let seconds: f64 = both.iter().map(|(_, t)| t.steps * t.seconds).sum();
            let steps: f64 = both.iter().map(|(_, t)| t.steps).sum();
            let read: f64 = both.iter().map(|(r, t)| r * t.steps * t.seconds).sum();
            (Some(read / seconds), Some(1e3 * seconds / steps))
        } else if !rates.is_empty() {
            // Steps of as many tokens each: the mean is over their times.
            let times: f64 = rates.iter().map(|p| 1.0 / p.value).sum();
            let mean = rates.len() as f64 / times;
            (Some(mean), (tokens > 0.0).then(|| 1e3 * tokens / mean))
        } else {
            let steps: f64 = timed.iter().map(|t| t.steps).sum();
            let seconds: f64 = timed.iter().map(|t| t.steps * t.seconds).sum();
            let logged = (!timed.is_empty()).then(|| 1e3 * seconds / steps);
            // A log with neither has the times of its lines.
            let step_ms = logged.or_else(|| self.pace.step_ms());
            let rate = step_ms.filter(|_| tokens > 0.0);
            (rate.map(|ms| 1e3 * tokens / ms), step_ms)
        };
        let used = self.newest(id::MFU);
        let mean = used.iter().map(|p| p.value).sum::<f64>() / used.len() as f64;
        Speed {
            tok_per_sec,
            step_ms,
            mfu: (!used.is_empty()).then_some(mean),
        }
    }

    /// Tokens per second of the steps: see [`Speed`].
    pub fn tok_per_sec(&self) -> Option<f64> {
        self.speed().tok_per_sec
    }

    /// The newest readings of a metric that is measured, newest first.
    fn newest(&self, metric: &str) -> Vec<Point> {
        let series = self.series.get(metric);
        let points = series.map(|series| series.recent().rev().take(WINDOW));
        points
            .into_iter()
            .flatten()
            .filter(|point| point.value.is_finite() && point.value > 0.0)
            .collect()
    }

    /// The newest step times, each with the steps since the reading before it.
    fn timed(&self) -> Vec<Timed> {
        let Some(series) = self.series.get(id::STEP_MS) else {
            return Vec::new();
        };
        // One more than counts, whose step says where the oldest begins.
        let points: Vec<Point> = series.recent().rev().take(WINDOW + 1).collect();
        let before = |i: usize| points.get(i + 1).map(|older| older.step);
        let timed = points.iter().enumerate().take(WINDOW).map(|(i, point)| {
            let from = before(i).unwrap_or_else(|| {
                // The first of all: a log may begin in the midst of a run, where no more than its own distance is known.
                let newer = i
                    .checked_sub(1)
                    .map(|i| points[i].step.saturating_sub(point.step));
                point.step.saturating_sub(newer.unwrap_or(1).max(1))
            });
            Timed {
                step: point.step,
                steps: point.step.saturating_sub(from).max(1) as f64,
                seconds: point.value / 1e3,
            }
        });
        timed
            .filter(|timed| timed.seconds.is_finite() && timed.seconds > 0.0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Envelope, Event, Num, Values};

    /// A run with these lines: step, step time, tokens of each step.
    fn run(lines: &[(u64, f64, f64)]) -> RunState {
        let values = |ms: f64, tokens: f64| -> Values {
            let rate = 1e3 * tokens / ms;
            [(id::STEP_MS, ms), (id::TOK_PER_SEC, rate)]
                .map(|(id, x)| (id.to_string(), Num(x)))
                .into()
        };
        let lines = lines.iter().map(|(s, ms, n)| (*s, values(*ms, *n)));
        logged(lines)
    }

    fn logged(lines: impl IntoIterator<Item = (u64, Values)>) -> RunState {
        let mut state = RunState::new();
        for (seq, (step, values)) in (1..).zip(lines) {
            state.apply(&Envelope {
                v: 1,
                seq,
                t: UnixMillis(1_000 * seq),
                event: Event::Stepped {
                    step,
                    tokens: step,
                    values,
                },
            });
        }
        state
    }

    fn close(a: Option<f64>, b: f64) {
        let a = a.expect("it is known");
        assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    }

    #[test]
    fn tokens_per_second_times_the_step_time_are_the_tokens_of_a_step() {
        // Every second step is four times slower: means of the readings would give 768 tokens as 1,200.
        let lines: Vec<(u64, f64, f64)> = (1..=100)
            .map(|i| (i, if i % 2 == 0 { 80.0 } else { 20.0 }, 768.0))
            .collect();
        let speed = run(&lines).speed();
        close(speed.step_ms, 50.0);
        close(speed.tok_per_sec, 768.0 / 0.05);
    }

    #[test]
    fn a_line_counts_by_its_steps_and_steps_of_other_sizes_by_their_tokens() {
        // Steps 1, 2 to 10, 11 to 20.
        let speed = run(&[(1, 100.0, 64.0), (10, 10.0, 64.0), (20, 20.0, 128.0)]).speed();
        let (seconds, tokens) = (0.1 + 9.0 * 0.01 + 10.0 * 0.02, 10.0 * 64.0 + 10.0 * 128.0);
        close(speed.step_ms, 1e3 * seconds / 20.0);
        close(speed.tok_per_sec, tokens / seconds);
        // A log that begins at step 500.
        let speed = run(&[(500, 10.0, 64.0), (510, 30.0, 64.0)]).speed();
        close(speed.step_ms, 20.0);
    }

    #[test]
    fn old_readings_do_not_count() {
        let lines: Vec<(u64, f64, f64)> = (1..=200)
            .map(|i| {
                (
                    i,
                    if i <= 200 - WINDOW as u64 {
                        900.0
                    } else {
                        40.0
                    },
                    8.0,
                )
            })
            .collect();
        close(run(&lines).speed().step_ms, 40.0);
    }

    #[test]
    fn a_log_that_tells_one_of_the_two_is_not_completed_by_guessing() {
        let of = |id: &'static str, readings: [f64; 2]| {
            let values = |x| [(id.to_string(), Num(x))].into();
            logged((1..).zip(readings.map(values))).speed()
        };
        let rates = of(id::TOK_PER_SEC, [100.0, 300.0]);
        close(rates.tok_per_sec, 150.0);
        assert_eq!(rates.step_ms, None);
        let times = of(id::STEP_MS, [10.0, 30.0]);
        close(times.step_ms, 20.0);
        assert_eq!(times.tok_per_sec, None);
        let broken = of(id::STEP_MS, [f64::NAN, 30.0]);
        close(broken.step_ms, 30.0);
        close(of("mfu", [0.3, 0.5]).mfu, 0.4);
        assert_eq!(RunState::new().speed(), Speed::default());
    }
}
