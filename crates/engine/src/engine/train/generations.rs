//! When PyTorch ranks are lost: a new generation from the newest checkpoint, after a pause, unless the cause would recur or
//! there is no progress. A machine that does not answer is waited for: it may reboot.

use super::Trainer;
use crate::base::human;
use crate::engine::EngineError;
use crate::engine::roles::Reference;
use crate::engine::state::{Progress, Settings};
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
/// How long a machine that does not answer is called again, and the longest pause in between.
const WAIT: Duration = Duration::from_secs(15 * 60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

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

/// Calls to machines that do not answer. They are no losses: no rank of a new generation has started.
#[derive(Debug)]
struct Calls {
    begun: Duration,
    pause: Duration,
}

impl Calls {
    fn new(now: Duration) -> Calls {
        Calls {
            begun: now,
            pause: PAUSE,
        }
    }

    /// The pause before the next call; `None` once [`WAIT`] is over.
    fn next_pause(&mut self, now: Duration) -> Option<Duration> {
        if now.saturating_sub(self.begun) >= WAIT {
            return None;
        }
        let longer = (2 * self.pause).min(LONGEST_PAUSE);
        Some(std::mem::replace(&mut self.pause, longer))
    }
}

impl Trainer<'_, '_> {
    /// Starts the next generation and goes back to the newest checkpoint, or ends the run.
    pub(super) fn restart_ranks(&mut self, mut lost: WorkerFailure) -> Result<(), EngineError> {
        let (step, before) = (self.cx.step(), self.cx.state.settings(self.cx.spec));
        loop {
            self.pause_after(&lost, step)?;
            lost = match self.start_generation(step)? {
                Ok(()) => match (self.restore_newest(before), self.cx.state.models.lost()) {
                    (Err(_), Some(again)) => again,
                    (done, _) => return done,
                },
                Err(again) => again,
            };
        }
    }

    /// Reports a loss and waits, if another generation may help.
    fn pause_after(&mut self, lost: &WorkerFailure, step: u64) -> Result<(), EngineError> {
        if lost.kind == FailureKind::Stopped {
            return Err(lost.clone().into());
        }
        let now = self.cx.port.clock.elapsed();
        let pause = match self.generations.judge(lost, step, now) {
            Verdict::GiveUp(why) if why.is_empty() => return Err(lost.clone().into()),
            Verdict::GiveUp(why) => {
                let what = format!("{why}; the last time: {lost}");
                return Err(WorkerFailure {
                    what,
                    ..lost.clone()
                }
                .into());
            }
            Verdict::Again(pause) => pause,
        };
        let message = format!("{lost}: the ranks restart from the latest checkpoint");
        self.cx
            .port
            .warn(step, "ranks_lost", message, lost.kind.hint());
        self.cx.port.enter(Phase::Preparing, step);
        self.wait(pause)
    }

    fn wait(&mut self, pause: Duration) -> Result<(), EngineError> {
        let begun = self.cx.port.clock.elapsed();
        while self.cx.port.clock.elapsed() - begun < pause {
            if self.cx.port.stop_requested() {
                return Err(EngineError::Stopped);
            }
            crate::base::clock::pause(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Starts the next generation, once every machine answers; the inner error is a loss like any other.
    fn start_generation(&mut self, step: u64) -> Result<Result<(), WorkerFailure>, EngineError> {
        let mut calls: Option<Calls> = None;
        loop {
            let (state, port) = (&mut self.cx.state, &mut *self.cx.port);
            let Some(remote) = &mut state.models.remote else {
                return Ok(Ok(()));
            };
            let lost = match remote.restart(&mut || port.stop_requested()) {
                Ok(()) => {
                    let words = remote.words();
                    port.note(step, words);
                    return Ok(Ok(()));
                }
                Err(lost) => lost,
            };
            match lost.kind {
                FailureKind::Stopped => return Err(EngineError::Stopped),
                FailureKind::Unreachable => self.call_again_later(lost, step, &mut calls)?,
                // For one, a port that is in use.
                _ => return Ok(Err(lost)),
            }
        }
    }

    /// Reports which machine does not answer and waits before the next call, or ends the run.
    fn call_again_later(
        &mut self,
        lost: WorkerFailure,
        step: u64,
        calls: &mut Option<Calls>,
    ) -> Result<(), EngineError> {
        let now = self.cx.port.clock.elapsed();
        let first = calls.is_none();
        let pause = calls.get_or_insert_with(|| Calls::new(now)).next_pause(now);
        let minutes = WAIT.as_secs() / 60;
        let Some(pause) = pause else {
            let what = format!("no answer for {minutes} minutes; the last time: {lost}");
            return Err(WorkerFailure { what, ..lost }.into());
        };
        let next = format!("the next call is in {} s", pause.as_secs());
        match first {
            true => {
                let message = format!("{lost}: waits up to {minutes} minutes for it, {next}");
                let hint = lost.kind.hint();
                self.cx
                    .port
                    .warn(step, "machine_unreachable", message, hint);
            }
            false => self.cx.port.note(step, format!("{lost}: {next}")),
        }
        self.wait(pause)
    }

    /// Restores the newest readable checkpoint, or the initial state, and the frozen reference, which was lost with the ranks:
    /// all of it in place, because this machine has memory for one state. `before` are the settings at the loss.
    fn restore_newest(&mut self, before: Settings) -> Result<(), EngineError> {
        let newest = self.checkpoints.newest();
        let (spec, state) = (self.cx.spec, &mut self.cx.state);
        let frozen = matches!(state.models.reference, Reference::FrozenThere(_));
        if newest.is_none() || frozen {
            state.restart(spec, &self.cx.data)?;
        }
        if frozen {
            let size = spec.train.micro_batch_size;
            state
                .models
                .attach_reference(&*spec.method, &self.cx.data, size)?;
            state.models.let_reference_move(spec)?;
        }
        let step = match newest {
            Some(step) => {
                self.checkpoints.roll_back(&mut self.cx, step)?;
                step
            }
            None => {
                state.progress = Progress::default();
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

    /// Two calls within seconds were all that a machine got that reboots.
    #[test]
    fn a_machine_that_does_not_answer_is_called_for_a_quarter_of_an_hour() {
        let mut now = Duration::from_secs(100);
        let mut calls = Calls::new(now);
        let mut pauses = Vec::new();
        while let Some(pause) = calls.next_pause(now) {
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        let waited = now - Duration::from_secs(100);
        assert!(
            waited >= WAIT && waited < WAIT + LONGEST_PAUSE,
            "{waited:?}"
        );
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
