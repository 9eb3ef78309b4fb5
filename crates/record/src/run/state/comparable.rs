//! Readings of a run that can be held against each other: the training loss of its newest steps, and the best evaluation beside
//! the last one, which may have read more rows than those before it.

use super::RunState;
use crate::base::human;
use crate::run::newest_loss::{WINDOW, newest_loss};
use crate::run::series::Series;
use crate::wire::{Best, id};

/// The best evaluation of a run whose last evaluation read other rows: two values that no one may compare.
#[derive(Debug, Clone, PartialEq)]
pub struct OtherRows {
    pub best: Best,
    /// Rows that the best evaluation read.
    pub rows: u64,
    /// The last evaluation: its step, its rows and its value over them.
    pub step: u64,
    pub last_rows: u64,
    pub last: f64,
    /// The last evaluation on the rows of the best one, where the log says it.
    pub last_on_same: Option<f64>,
}

impl OtherRows {
    /// `8 windows`; of prompts that are answered, `8 prompts`.
    pub fn of(&self, n: u64) -> String {
        let (one, many) = match self.best.metric == id::PASS_AT_1 {
            true => ("prompt", "prompts"),
            false => ("window", "windows"),
        };
        format!("{} {}", human::grouped(n), if n == 1 { one } else { many })
    }
}

impl RunState {
    /// The training loss that stands for the run now, nats per token: of the newest steps.
    pub fn newest_loss(&self) -> Option<f64> {
        self.newest_loss_at(u64::MAX)
    }

    /// The one that stood for it at a step; `None` where its readings are not kept one by one any more.
    pub fn newest_loss_at(&self, step: u64) -> Option<f64> {
        newest_loss(&newest(self.series.get(id::TRAIN_LOSS)?, step))
    }

    /// `None` while the run goes on, and where the last evaluation is the best one or read as many rows.
    pub fn best_on_other_rows(&self) -> Option<OtherRows> {
        let best = self.finished.as_ref()?.best.as_ref()?;
        let measured = || {
            let all = self.evaluations.iter().rev();
            all.filter_map(move |e| Some((e, *e.values.get(&best.metric)?)))
        };
        let (last, value) = measured().next()?;
        // Older engines sent no step.
        let (then, _) = measured().find(|(e, _)| e.step == best.step && best.step > 0)?;
        let saved = self.checkpoints.iter().rev().find(|c| c.step == last.step);
        let by = saved.and_then(|saved| saved.by.as_ref());
        let other = then.step != last.step && then.n_windows != last.n_windows;
        other.then(|| OtherRows {
            rows: then.n_windows,
            step: last.step,
            last_rows: last.n_windows,
            last: value,
            last_on_same: by
                .filter(|by| by.metric == best.metric)
                .map(|by| by.value.0),
            best: best.clone(),
        })
    }
}

/// Step and value of the newest finite readings up to a step, oldest first.
fn newest(series: &Series, step: u64) -> Vec<(u64, f64)> {
    let known = |p: &crate::run::series::Point| p.value.is_finite() && p.step <= step;
    let finite = series.recent().rev().filter(known);
    let mut newest: Vec<_> = finite.take(WINDOW).map(|p| (p.step, p.value)).collect();
    newest.reverse();
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Envelope, Event};
    use serde_json::{Value, json};

    fn state(events: Vec<Value>) -> RunState {
        let envelope = |(seq, event): (u64, Value)| -> Envelope {
            let event: Event = serde_json::from_value(event).unwrap();
            let t = crate::base::clock::UnixMillis(1_000 * seq);
            Envelope {
                v: 1,
                seq,
                t,
                event,
            }
        };
        let hello = json!({"type": "Hello", "run": "a", "engine": "0", "pid": 1, "host": "h"});
        let all = std::iter::once(hello).chain(events);
        RunState::from_events(&(1..).zip(all).map(envelope).collect::<Vec<_>>())
    }

    /// "best 3.575" stood beside "val 3.486", which was lower: the one was of 8 windows, the other of all.
    #[test]
    fn a_best_evaluation_of_fewer_rows_says_so_beside_the_last_one() {
        let ended = |n_last: u64| {
            let evaluated = |step: u64, loss: f64, n: u64| {
                json!({"type": "Evaluated", "step": step, "tokens": 1, "values": {"val/loss": loss},
                    "n_windows": n, "whole": n > 8, "seconds": 0.1})
            };
            let by = |step: u64, loss: f64| json!({"step": step, "metric": "val/loss", "value": loss, "direction": "lower"});
            state(vec![
                evaluated(10, 3.575, 8),
                evaluated(20, 3.486, n_last),
                json!({"type": "Checkpointed", "step": 20, "path": "checkpoints/step-000020", "bytes": 1, "seconds": 0.1,
                    "best": false, "val_loss": 3.486, "by": by(20, 3.691)}),
                json!({"type": "Finished", "outcome": "completed", "step": 20, "tokens": 1, "best": by(10, 3.575), "seconds": 1.0}),
            ])
        };
        let other = ended(3_485).best_on_other_rows().unwrap();
        assert_eq!((other.best.value.0, other.rows), (3.575, 8));
        assert_eq!(
            (other.step, other.last, other.last_rows),
            (20, 3.486, 3_485)
        );
        assert_eq!(other.last_on_same, Some(3.691));
        assert_eq!(other.of(other.last_rows), "3,485 windows");
        assert_eq!(ended(8).best_on_other_rows(), None, "like with like");
    }

    /// `runs` said 1.69, the title of the chart and the verdict 1.76 of the same run.
    #[test]
    fn one_training_loss_stands_for_the_run_and_one_speed_once_it_has_ended() {
        let steps = |end: bool| {
            let step = |step: u64| {
                let loss = if step.is_multiple_of(2) { 1.0 } else { 2.0 };
                let ms = if step > 60 { 200.0 } else { 50.0 };
                json!({"type": "Stepped", "step": step, "tokens": 100 * step,
                    "values": {"train/loss": loss, "step_ms": ms, "tok_per_sec": 1e5 / ms}})
            };
            let finished = json!({"type": "Finished", "outcome": "completed", "step": 100, "tokens": 10_000, "seconds": 1.0});
            state((1..=100).map(step).chain(end.then_some(finished)).collect())
        };
        let (live, ended) = (steps(false), steps(true));
        assert_eq!(live.newest_loss(), Some(1.5));
        let now = live.speed().tok_per_sec.unwrap();
        assert!((now - 500.0).abs() < 1e-6, "as it trains now: {now}");
        // 60 steps of 50 ms, 40 of 200.
        assert_eq!(ended.speed().tok_per_sec, ended.mean_tok_per_sec());
        let mean = ended.speed().tok_per_sec.unwrap();
        assert!((mean - 100.0 / 0.110).abs() < 1e-6, "{mean}");
    }
}
