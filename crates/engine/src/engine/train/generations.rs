//! When PyTorch ranks are lost: a new generation from the newest checkpoint, after a pause, unless the cause would recur or
//! there is no progress.

use super::Trainer;
use crate::base::human;
use crate::engine::EngineError;
use crate::engine::reference;
use crate::engine::state::TrainState;
use crate::wire::Phase;
use crate::workers::{FailureKind, WorkerFailure};
use std::collections::VecDeque;
use std::time::Duration;

/// Losses within [`WINDOW`] after which a run gives up.
const MOST: usize = 3;
const WINDOW: Duration = Duration::from_secs(30 * 60);
/// Generations in a row that do no step beyond the one before.
const IN_VAIN: u32 = 2;
/// The first pause; each further one within the window is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// History of the rank generations.
#[derive(Debug, Default)]
pub(super) struct Generations {
    /// When ranks were lost, newest last.
    lost_at: VecDeque<Duration>,
    /// The furthest step before a loss.
    furthest: u64,
    in_vain: u32,
}

/// What to do about a loss.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Another generation after this pause.
    Again(Duration),
    /// The sentence says why not.
    GiveUp(String),
}

impl Generations {
    fn judge(&mut self, lost: &WorkerFailure, step: u64, now: Duration) -> Verdict {
        if !lost.kind.is_transient() {
            return Verdict::GiveUp(String::new());
        }
        self.lost_at.retain(|then| now - *then < WINDOW);
        self.lost_at.push_back(now);
        self.in_vain = match step > self.furthest {
            true => 0,
            false => self.in_vain + 1,
        };
        self.furthest = self.furthest.max(step);
        if self.lost_at.len() > MOST {
            return Verdict::GiveUp(format!(
                "ranks were lost {} times within 30 minutes",
                self.lost_at.len()
            ));
        }
        if self.in_vain >= IN_VAIN {
            return Verdict::GiveUp(format!(
                "{IN_VAIN} restarts got no further than step {}",
                self.furthest
            ));
        }
        let doublings = u32::try_from(self.lost_at.len()).unwrap_or(1) - 1;
        Verdict::Again(PAUSE * 2u32.pow(doublings))
    }
}

impl Trainer<'_, '_> {
    /// Starts the next generation and goes back to the newest checkpoint, or ends the run.
    pub(super) fn restart_ranks(&mut self, lost: WorkerFailure) -> Result<(), EngineError> {
        let step = self.cx.step();
        if lost.kind == FailureKind::Stopped {
            return Err(lost.into());
        }
        let verdict = self
            .generations
            .judge(&lost, step, self.cx.port.clock.elapsed());
        let pause = match verdict {
            Verdict::GiveUp(why) if why.is_empty() => return Err(lost.into()),
            Verdict::GiveUp(why) => {
                let what = format!("{why}; the last time: {lost}");
                return Err(WorkerFailure { what, ..lost }.into());
            }
            Verdict::Again(pause) => pause,
        };
        let message = format!("{lost}: the ranks restart from the latest checkpoint");
        self.cx
            .port
            .warn(step, "ranks_lost", message, lost.kind.hint());
        self.cx.port.enter(Phase::Preparing, step);
        let begun = self.cx.port.clock.elapsed();
        while self.cx.port.clock.elapsed() - begun < pause {
            if self.cx.port.stop_requested() {
                return Err(EngineError::Stopped);
            }
            crate::base::clock::pause(Duration::from_millis(50));
        }
        let (state, port) = (&mut self.cx.state, &mut *self.cx.port);
        let Some(remote) = &mut state.models.remote else {
            return Err(lost.into());
        };
        if let Err(again) = remote.restart(&mut || port.stop_requested()) {
            return match again.kind {
                FailureKind::Stopped => Err(EngineError::Stopped),
                // A rebooted machine, a port that is in use.
                _ => self.restart_ranks(again),
            };
        }
        let words = remote.words();
        self.cx.port.note(step, words);
        self.restore_newest()
    }

    /// Restores the newest readable checkpoint, or the initial state, and the frozen reference, which was lost with the ranks.
    fn restore_newest(&mut self) -> Result<(), EngineError> {
        let (spec, data) = (self.cx.spec, self.cx.data.clone());
        let before = self.cx.state.settings(spec);
        let mut fresh = TrainState::fresh(spec, &data)?;
        fresh.carrier = self.stepper.carrier();
        fresh.models.remote = self.cx.state.models.remote.take();
        let (job, port, step) = (self.cx.job, &mut *self.cx.port, self.cx.state.progress.step);
        reference::attach(job, port, (&mut fresh.models, &data), step)?;
        self.cx.state = fresh;
        self.cx.state.changed_here();
        let step = match self.checkpoints.newest() {
            Some(step) => {
                self.checkpoints.roll_back(&mut self.cx, step)?;
                step
            }
            None => {
                let state = &self.cx.state;
                state.carrier.restore_state(&state.progress.probes);
                0
            }
        };
        self.after_rollback(step, before);
        self.cx.port.note(
            step,
            format!("continues from step {}", human::grouped(step)),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(kind: FailureKind) -> WorkerFailure {
        WorkerFailure {
            kind,
            rank: Some(1),
            what: "rank 1 went".into(),
        }
    }

    #[test]
    fn pauses_grow_and_three_losses_in_half_an_hour_are_the_most() {
        let mut all = Generations::default();
        let at = Duration::from_secs;
        for (i, pause) in [1, 2, 4].into_iter().enumerate() {
            let i = i as u64;
            let verdict = all.judge(&lost(FailureKind::Killed), 10 * (i + 1), at(60 * i));
            assert_eq!(verdict, Verdict::Again(at(pause)));
        }
        let verdict = all.judge(&lost(FailureKind::Killed), 100, at(200));
        assert!(matches!(verdict, Verdict::GiveUp(why) if why.contains("4 times")));
        // Half an hour later it is as if nothing had been.
        let mut all = Generations::default();
        all.judge(&lost(FailureKind::Hang), 10, at(0));
        let verdict = all.judge(&lost(FailureKind::Hang), 20, WINDOW + at(1));
        assert_eq!(verdict, Verdict::Again(at(1)));
    }

    #[test]
    fn no_progress_and_causes_that_stay_end_it() {
        let mut all = Generations::default();
        let at = Duration::from_secs;
        assert!(matches!(
            all.judge(&lost(FailureKind::Peers), 5, at(0)),
            Verdict::Again(_)
        ));
        assert!(matches!(
            all.judge(&lost(FailureKind::Peers), 5, at(9)),
            Verdict::Again(_)
        ));
        assert!(matches!(
            all.judge(&lost(FailureKind::Peers), 5, at(99)),
            Verdict::GiveUp(_)
        ));
        for kind in [
            FailureKind::Memory,
            FailureKind::Bug,
            FailureKind::Version,
            FailureKind::Start,
        ] {
            assert_eq!(
                Generations::default().judge(&lost(kind), 5, at(0)),
                Verdict::GiveUp(String::new())
            );
        }
    }
}
