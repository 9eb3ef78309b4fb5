//! Programs whose step restarts with each epoch (`epoch 2 | step 10`): the epochs are joined, so that a step counts over the
//! whole run. They are recognized by an integer epoch that rises while the step goes back; in a resumed run both go back.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Passes whose beginning is remembered; the oldest are given up.
const MAX_PASSES: usize = 1_000;

/// Joins the passes of one log.
#[derive(Debug, Default)]
pub struct EpochJoiner {
    /// Steps before each pass.
    before: BTreeMap<u64, u64>,
    now: Option<u64>,
    /// Steps before the current pass.
    offset: u64,
    /// The newest step as the log counts it, and its distance to the one before.
    last: u64,
    distance: u64,
}

impl EpochJoiner {
    /// Whether the step began again once.
    pub fn joined(&self) -> bool {
        self.before.values().any(|offset| *offset > 0)
    }

    /// The step of the whole run; `epoch` is what the record says of its pass, and `repeats`, asked with the newest step of the
    /// whole run, whether the record has a metric that was read at that step already.
    pub fn step(
        &mut self,
        step: u64,
        epoch: Option<f64>,
        repeats: impl FnOnce(u64) -> bool,
    ) -> u64 {
        let whole = epoch.filter(|x| x.fract() == 0.0 && (0.0..1e9).contains(x));
        match whole {
            Some(epoch) => self.pass(step, epoch as u64, repeats),
            // A record without an epoch belongs to the same pass; a fractional epoch does not identify one.
            None if epoch.is_some() => self.now = None,
            None => {}
        }
        self.distance = match step.checked_sub(self.last) {
            Some(0) => self.distance,
            Some(distance) => distance,
            None => 0,
        };
        self.last = step;
        self.offset.saturating_add(step)
    }

    fn pass(&mut self, step: u64, epoch: u64, repeats: impl FnOnce(u64) -> bool) {
        let before = self.now.replace(epoch);
        if before == Some(epoch) {
            return;
        }
        // At the same step it may be one more record of that step: an evaluation between two passes.
        let is_next = before.is_some_and(|before| epoch == before + 1);
        let began_again = is_next
            && match step.cmp(&self.last) {
                Ordering::Less => true,
                Ordering::Equal => repeats(self.offset.saturating_add(self.last)),
                Ordering::Greater => false,
            };
        if began_again {
            // Where a pass begins with step 0, its last step lies behind the last one that was logged.
            let rest = if step == 0 { self.distance.max(1) } else { 0 };
            self.offset = self.offset.saturating_add(self.last).saturating_add(rest);
        } else if before.is_some_and(|before| epoch < before) {
            // A resume: from there on the passes are counted anew.
            self.offset = self.before.get(&epoch).copied().unwrap_or(0);
            self.before.retain(|known, _| *known < epoch);
        }
        self.before.insert(epoch, self.offset);
        while self.before.len() > MAX_PASSES {
            self.before.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(records: &[(u64, f64)]) -> Vec<u64> {
        let mut passes = EpochJoiner::default();
        let steps = records
            .iter()
            .map(|(step, epoch)| passes.step(*step, Some(*epoch), |_| true));
        steps.collect()
    }

    #[test]
    fn a_step_that_begins_again_with_each_epoch_is_joined() {
        let log = [(10, 1.0), (20, 1.0), (10, 2.0), (20, 2.0), (10, 3.0)];
        assert_eq!(joined(&log), [10, 20, 30, 40, 50]);
        let from_zero = [(0, 0.0), (10, 0.0), (0, 1.0), (10, 1.0)];
        assert_eq!(joined(&from_zero), [0, 10, 20, 30]);
        let one_each = [(100, 1.0), (100, 2.0), (100, 3.0)];
        assert_eq!(joined(&one_each), [100, 200, 300]);
    }

    #[test]
    fn a_record_of_the_next_epoch_at_the_same_step_is_no_new_pass_unless_it_repeats_a_metric() {
        let mut passes = EpochJoiner::default();
        let mut step = |step, epoch, repeats| passes.step(step, Some(epoch), |_| repeats);
        assert_eq!(step(100, 0.0, false), 100);
        assert_eq!([step(100, 1.0, false), step(110, 1.0, false)], [100, 110]);
        assert_eq!(step(110, 2.0, true), 220);
        // It is asked with the step of the whole run.
        let mut asked = 0;
        passes.step(110, Some(3.0), |at| {
            asked = at;
            true
        });
        assert_eq!(asked, 220);
    }

    #[test]
    fn a_resume_goes_back_and_a_step_of_the_whole_run_is_left_alone() {
        let resumed = [(10, 1.0), (20, 1.0), (10, 2.0), (20, 1.0), (10, 2.0)];
        assert_eq!(joined(&resumed), [10, 20, 30, 20, 30]);
        let anew = [(10, 1.0), (10, 2.0), (10, 1.0), (10, 2.0)];
        assert_eq!(joined(&anew), [10, 20, 10, 20]);
        let whole = [(10, 1.0), (20, 1.0), (30, 2.0), (40, 3.0)];
        assert_eq!(joined(&whole), [10, 20, 30, 40]);
        // Fractions of an epoch: transformers' step is that of the whole run, and another run went before.
        let other = [(100, 0.2), (10, 1.0), (20, 2.0)];
        assert_eq!(joined(&other), [100, 10, 20]);
    }
}
