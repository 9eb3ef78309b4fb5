//! A rescue: back to a checkpoint before the spike, then on with a lower learning rate and without the batches. All of it is
//! saved at once, so that a resume is bit-exact.

use super::Trainer;
use crate::base::human;
use crate::engine::EngineError;
use crate::engine::broken::NonFinite;
use crate::engine::state::{Progress, Undo};
use crate::spec::{RescuePolicy, TrainConfig};
use crate::wire::{Event, Num, Phase};

impl Trainer<'_, '_> {
    /// Where rescues may come, the beginning can be gone back to as well.
    pub(super) fn save_a_point_to_go_back_to(&mut self) -> Result<(), EngineError> {
        let acts = self.cx.spec.rescue.policy == RescuePolicy::Act;
        if acts && self.cx.step() == 0 && self.checkpoints.saved_at().is_none() {
            self.checkpoints.save_or_warn(&mut self.cx)?;
        }
        Ok(())
    }

    /// After a value that is non-finite: a rescue, or the end of the run.
    pub(super) fn rescue_or_fail(&mut self, broken: &NonFinite) -> Result<(), EngineError> {
        let why = format!(
            "{} was {} at step {}",
            broken.what,
            broken.value,
            human::grouped(broken.step)
        );
        // Weights and evaluations show the effect of the step before.
        let done = broken.step <= self.cx.step();
        if self.rescue(&why, done)? {
            return Ok(());
        }
        Err(self.cx.fail_non_finite(broken))
    }

    /// After a spike: a rescue, or continue with a new baseline.
    pub(super) fn rescue_or_continue(&mut self, why: &str) -> Result<(), EngineError> {
        if !self.rescue(why, false)? {
            self.cx.state.progress.guard.reset();
            let hint =
                "no checkpoint before it is readable: checkpoint.every sets how often one is saved";
            self.cx
                .port
                .warn(self.cx.state.progress.step, "spike", why.into(), hint);
        }
        Ok(())
    }

    /// Whether it could be done. `done`: the last step is what broke, not the one that was begun.
    fn rescue(&mut self, why: &str, done: bool) -> Result<bool, EngineError> {
        let (rescue, train) = (&self.cx.spec.rescue, &self.cx.spec.train);
        let left = self.cx.state.progress.clone();
        let settings = self.cx.state.settings(self.cx.spec);
        if rescue.policy != RescuePolicy::Act || left.rescues >= rescue.at_most {
            return Ok(false);
        }
        let undo = self.save_undo_state();
        let Some((step, stable)) = self.restore_checkpoint(done)? else {
            self.discard_undo_state();
            return Ok(false);
        };
        let (from, skipped) = passed_over(train, &left, done);
        let of_spec = self.cx.spec.optimizer.lr();
        let state = &mut self.cx.state;
        // A rate that was raised since the checkpoint is not what to halve; one that a rescue lowered is.
        let lr = |progress: &Progress| progress.adjustments.lr.unwrap_or(of_spec);
        let (before, kept) = (lr(&left), lr(&state.progress));
        let lr = before.min(kept) * rescue.lr_factor;
        let moments_reset = !stable || !state.moments_are_finite()?;
        if moments_reset {
            // Of an average and its weights, training continues with the weights.
            state.show_average(false)?;
            state.reset_optimizer(self.cx.spec)?;
        }
        let progress = &mut state.progress;
        progress.adjustments.lr = Some(lr);
        progress.rescues = left.rescues + 1;
        progress.skips = left.skips;
        progress.skips.push(skipped);
        progress.skips.sort_unstable();
        progress.guard.clear_outliers();
        progress.undo = undo.map(|to| Undo {
            to,
            rescue: step,
            why: why.into(),
        });
        progress.advance(0);
        let count = progress.rescues;
        self.after_rollback(step, settings);
        self.cx.port.emit(Event::Rescued {
            step,
            from,
            why: why.into(),
            skipped,
            lr: (Num(before), Num(lr)),
            moments_reset,
            count,
            at_most: rescue.at_most,
            undo,
        });
        self.checkpoints.save_or_warn(&mut self.cx)?;
        self.cx.port.enter(Phase::Training, step);
        Ok(true)
    }

    /// Takes up the first of the checkpoints that can be read; its step, and whether it is stable. `done`: as in [`Self::rescue`].
    fn restore_checkpoint(&mut self, done: bool) -> Result<Option<(u64, bool)>, EngineError> {
        for (step, stable) in self.checkpoints.to_go_back_to(&self.cx, done) {
            match self.checkpoints.roll_back(&mut self.cx, step) {
                Ok(()) => return Ok(Some((step, stable))),
                Err(EngineError::Setup(why)) => {
                    let hint = "an older checkpoint is used instead; delete the broken one";
                    self.cx.port.warn(step, "checkpoint_broken", why, hint);
                }
                Err(other) => return Err(other),
            }
        }
        Ok(None)
    }
}

/// The step at which it began to go wrong, and the micro-steps that are passed over: from there to the end of the step that broke.
/// `done`: that is the last step, not the one that was begun.
fn passed_over(train: &TrainConfig, left: &Progress, done: bool) -> (u64, (u64, u64)) {
    let (here, end) = match done && left.step > 0 {
        true => {
            let taken = train.accum(left.step) as u64;
            let begun = left.micro_step.saturating_sub(taken);
            ((left.step, begun), left.micro_step)
        }
        false => {
            let end = left.micro_step + train.accum(left.step + 1) as u64;
            ((left.step + 1, left.micro_step), end)
        }
    };
    let (from, first) = left.guard.since().unwrap_or(here);
    (from, (first, end))
}
