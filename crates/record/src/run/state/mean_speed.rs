//! The mean speed of a run: one number for its last page and for reports.

use super::RunState;
use crate::wire::id;

impl RunState {
    /// Target tokens per second, over all steps that count: the tokens of a step over the mean time of one. Pauses, evaluations
    /// and checkpoints are no part of the time of a step, and of steps that were rolled back neither tokens nor time count.
    /// `None` where the log says no speed.
    pub fn mean_tok_per_sec(&self) -> Option<f64> {
        let per_step = self.tokens as f64 / self.step as f64;
        let by_steps = self.mean(id::STEP_MS).map(|ms| 1e3 * per_step / ms);
        let known = by_steps.filter(|x| x.is_finite() && *x > 0.0);
        // Logs of other programs may say a rate alone, or no tokens.
        known.or_else(|| self.mean(id::TOK_PER_SEC))
    }

    /// The mean of all readings of a metric.
    pub(super) fn mean(&self, id: &str) -> Option<f64> {
        let series = self.series.get(id)?;
        let (from, to) = series.steps()?;
        let whole = series.columns(from as f64, to as f64 + 1.0, 1).pop()??;
        whole.mean().filter(|x| *x > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Envelope, Event, Num, Phase};

    /// Steps of 50 ms and `tokens` tokens each, and what lies between them.
    fn run(tokens: u64, between: impl Fn(u64) -> Vec<(u64, Event)>, values: &[&str]) -> RunState {
        let (mut state, mut seq, mut t) = (RunState::new(), 0, 1_000);
        let mut add = |t: u64, event: Event| {
            seq += 1;
            state.apply(&Envelope {
                v: 1,
                seq,
                t: UnixMillis(t),
                event,
            });
        };
        let hello = Event::Hello {
            run: "a".into(),
            engine: "0".into(),
            pid: 1,
            host: "h".into(),
        };
        add(t, hello);
        for step in 1..=40 {
            t += 50;
            let read = |id: &&str| match *id {
                id::STEP_MS => (id.to_string(), Num(50.0)),
                _ => (id.to_string(), Num(7.0)),
            };
            let stepped = Event::Stepped {
                step,
                tokens: step * tokens,
                values: values.iter().map(read).collect(),
            };
            add(t, stepped);
            for (wait, event) in between(step) {
                t += wait;
                add(t, event);
            }
        }
        state
    }

    #[test]
    fn a_pause_makes_no_run_slower() {
        let phase = |phase| Event::PhaseChanged { phase, step: 20 };
        let paused = run(
            500,
            |step| match step {
                20 => vec![(0, phase(Phase::Paused)), (20_000, phase(Phase::Training))],
                _ => Vec::new(),
            },
            &[id::STEP_MS],
        );
        assert_eq!(paused.seconds, 22.0, "the pause is time of the run");
        assert_eq!(paused.mean_tok_per_sec(), Some(10_000.0));
    }

    #[test]
    fn steps_that_were_rolled_back_count_neither_by_tokens_nor_by_time() {
        let back = run(
            500,
            |step| match step {
                30 => vec![(0, Event::RolledBack { step: 10 })],
                _ => Vec::new(),
            },
            &[id::STEP_MS],
        );
        assert_eq!(back.mean_tok_per_sec(), Some(10_000.0));
    }

    #[test]
    fn a_log_without_tokens_or_times_says_its_own_rate_or_none() {
        let nothing = |_| Vec::new();
        let rate = run(0, nothing, &[id::STEP_MS, id::TOK_PER_SEC]);
        assert_eq!(rate.mean_tok_per_sec(), Some(7.0));
        assert_eq!(
            run(500, nothing, &[id::TOK_PER_SEC]).mean_tok_per_sec(),
            Some(7.0)
        );
        assert_eq!(run(500, nothing, &[]).mean_tok_per_sec(), None);
        assert_eq!(RunState::new().mean_tok_per_sec(), None);
    }
}
