//! The guard beside the loop: detects outliers and spikes of loss and gradient norm. Its state is part of a checkpoint, so a
//! resume judges as an uninterrupted run does.

use crate::diagnosis::{SOLVED, UNSOLVED_ONE};
use crate::metrics::estimators::outlier;
use crate::metrics::id;
use crate::spec::RescueConfig;
use crate::wire::{Num, Outlier};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What outliers are measured against: losses and gradient norms of the newest healthy steps, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpikeDetector {
    losses: VecDeque<f64>,
    norms: VecDeque<f64>,
    /// Losses in a row that are outliers.
    pub(super) high: u64,
    /// Steps in a row with any outlier.
    odd: u64,
    /// The first of them: its step and micro-step.
    since: Option<(u64, u64)>,
    /// Steps since a spike that was not acted on; 0 if there is none.
    standing: u64,
    /// How many of them had a high loss. An exploded loss jumps about and touches what was usual now and then: meanwhile
    /// nothing enters the windows.
    standing_high: u64,
}

/// The guard's verdict on a step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum StepVerdict {
    Healthy,
    Outlier(Outlier),
    Spike(Outlier),
    /// A spike that nothing was done about, as after an undone rescue, and that did not pass: high losses for half a window.
    Lasting(Outlier),
}

impl SpikeDetector {
    pub(super) fn is_new(&self) -> bool {
        *self == SpikeDetector::default()
    }

    /// Step and micro-step of the first of the current outliers.
    pub(super) fn since(&self) -> Option<(u64, u64)> {
        self.since
    }

    /// Resets the baseline.
    pub(super) fn reset(&mut self) {
        *self = SpikeDetector::default();
    }

    /// The reference has moved: the losses before compare with another one, and the next ones jump by design. Norms stay what outliers are
    /// measured against.
    pub(super) fn reference_moved(&mut self) {
        self.losses.clear();
        self.clear_outliers();
    }

    /// The outliers are over.
    pub(super) fn clear_outliers(&mut self) {
        (self.high, self.odd, self.since) = (0, 0, None);
        (self.standing, self.standing_high) = (0, 0);
    }

    /// Takes in a step. What is an outlier does not enter what the next ones are measured against, until half a window of
    /// them says that something else has become usual.
    pub(super) fn judge(
        &mut self,
        config: &RescueConfig,
        at: (u64, u64),
        loss: Option<f64>,
        norm: f64,
    ) -> StepVerdict {
        let look = |window: &VecDeque<f64>, metric: &str, x: f64| {
            let far = outlier::above(window, x, config.sigmas, config.window / 2)?;
            Some(Outlier {
                metric: metric.into(),
                value: Num(x),
                usual: Num(far.mean),
                sigmas: Num(far.sigmas),
            })
        };
        let of_loss = loss.and_then(|loss| look(&self.losses, id::TRAIN_LOSS, loss));
        let of_loss = of_loss.filter(|found| !is_left_over(found));
        let of_norm = look(&self.norms, id::GRAD_NORM, norm);
        self.high = if of_loss.is_some() { self.high + 1 } else { 0 };
        let lasting = self.spike_persists(of_loss.is_some(), config.window as u64 / 2);
        let Some(found) = of_loss.or(of_norm) else {
            if self.standing > 0 {
                (self.high, self.odd) = (0, 0);
                return StepVerdict::Healthy;
            }
            for (window, x) in [(&mut self.losses, loss), (&mut self.norms, Some(norm))] {
                window.extend(x);
                while window.len() > config.window {
                    window.pop_front();
                }
            }
            self.clear_outliers();
            return StepVerdict::Healthy;
        };
        self.since.get_or_insert(at);
        self.odd += 1;
        // Reported once: if that rescue is undone too, the baseline is reset.
        if lasting {
            (self.standing, self.standing_high) = (0, 0);
            return StepVerdict::Lasting(found);
        }
        if self.high == config.patience && self.standing == 0 {
            self.standing = 1;
            return StepVerdict::Spike(found);
        }
        if self.odd >= (config.window as u64 / 2).max(config.patience + 1) && self.standing == 0 {
            self.reset();
        }
        StepVerdict::Outlier(found)
    }

    /// Counts a step after a spike. True once `steps` have passed, most of them with a high loss: the spike persists.
    fn spike_persists(&mut self, high: bool, steps: u64) -> bool {
        if self.standing == 0 {
            return false;
        }
        self.standing += 1;
        self.standing_high += u64::from(high);
        if self.standing <= steps {
            return false;
        }
        let most = 2 * self.standing_high > self.standing;
        // This step decides only if it is high itself; a spike that has passed is over.
        if !most {
            self.clear_outliers();
        }
        most && high
    }
}

/// Whether a loss above its usual one is still that of a solved task, in nats: the deviations of losses near 0 are so small that one
/// unsolved example in a batch is many of them.
fn is_left_over(found: &Outlier) -> bool {
    found.usual.0.abs() <= SOLVED && found.value.0 - found.usual.0 <= UNSOLVED_ONE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> RescueConfig {
        RescueConfig {
            window: 32,
            ..RescueConfig::default()
        }
    }

    /// Steps with a loss near 3 and a norm near 1.
    fn usual(guard: &mut SpikeDetector, steps: std::ops::Range<u64>) {
        for step in steps {
            let noise = (step * 7919 % 101) as f64 / 1010.0;
            let seen = guard.judge(&config(), (step, step), Some(3.0 + noise), 1.0 + noise);
            assert_eq!(seen, StepVerdict::Healthy, "{step}");
        }
    }

    #[test]
    fn five_high_losses_in_a_row_are_a_spike_and_one_is_an_outlier() {
        let mut guard = SpikeDetector::default();
        usual(&mut guard, 1..40);
        let high =
            |guard: &mut SpikeDetector, step| guard.judge(&config(), (step, step), Some(9.0), 1.0);
        assert!(
            matches!(high(&mut guard, 40), StepVerdict::Outlier(found) if found.sigmas.0 > 6.0 && found.metric == "train/loss")
        );
        usual(&mut guard, 41..43);
        assert_eq!(guard.since(), None);
        for step in 43..47 {
            assert!(
                matches!(high(&mut guard, step), StepVerdict::Outlier(_)),
                "{step}"
            );
        }
        assert!(matches!(high(&mut guard, 47), StepVerdict::Spike(_)));
        assert_eq!(guard.since(), Some((43, 43)));
    }

    #[test]
    fn a_spike_that_nothing_was_done_about_is_said_once_more_and_then_is_usual() {
        let mut guard = SpikeDetector::default();
        usual(&mut guard, 1..40);
        let seen: Vec<u64> = (40..80)
            .filter(|step| {
                let seen = guard.judge(&config(), (*step, *step), Some(9.0), 1.0);
                matches!(seen, StepVerdict::Spike(_) | StepVerdict::Lasting(_))
            })
            .collect();
        assert_eq!(seen, [44, 60], "five in a row, and half a window after it");
        assert_eq!(guard.since(), None);
    }

    /// The loss jumps where the reference moves, and stays; a gradient that jumps is seen.
    #[test]
    fn losses_behind_a_move_of_the_reference_are_not_held_against_those_before() {
        let mut guard = SpikeDetector::default();
        usual(&mut guard, 1..40);
        guard.reference_moved();
        let norm = guard.judge(&config(), (40, 40), Some(9.0), 50.0);
        assert!(
            matches!(&norm, StepVerdict::Outlier(found) if found.metric == "grad_norm"),
            "{norm:?}"
        );
        for step in 41..60 {
            let noise = (step * 7919 % 101) as f64 / 1010.0;
            let seen = guard.judge(&config(), (step, step), Some(9.0 + noise), 1.0 + noise);
            assert_eq!(seen, StepVerdict::Healthy, "{step}");
        }
        let high = guard.judge(&config(), (60, 60), Some(20.0), 1.0);
        assert!(matches!(high, StepVerdict::Outlier(_)), "{high:?}");
    }

    #[test]
    fn a_gradient_alone_is_never_a_spike_and_what_stays_becomes_usual() {
        let mut guard = SpikeDetector::default();
        usual(&mut guard, 1..40);
        let mut odd = 0;
        for step in 40..80 {
            match guard.judge(&config(), (step, step), Some(3.0), 50.0) {
                StepVerdict::Outlier(found) => {
                    assert_eq!(found.metric, "grad_norm");
                    odd += 1;
                }
                StepVerdict::Healthy => {}
                StepVerdict::Spike(_) | StepVerdict::Lasting(_) => panic!("a spike at {step}"),
            }
        }
        assert_eq!(odd, 16, "half a window");
    }

    /// Rounding and single examples: nothing to go back for.
    #[test]
    fn losses_near_zero_are_outliers_where_they_leave_it() {
        let judge = |loss: f64| {
            let mut guard = SpikeDetector::default();
            for step in 1..40 {
                let noise = (step * 7919 % 101) as f64 / 1e5;
                guard.judge(&config(), (step, step), Some(0.004 + noise), 1.0 + noise);
            }
            let seen = guard.judge(&config(), (40, 40), Some(loss), 1.0);
            matches!(seen, StepVerdict::Outlier(_))
        };
        assert!(!judge(0.03) && !judge(0.2) && judge(0.3));
    }

    #[test]
    fn without_half_a_window_nothing_is_an_outlier() {
        let mut guard = SpikeDetector::default();
        usual(&mut guard, 1..16);
        assert_eq!(
            guard.judge(&config(), (16, 16), Some(99.0), 99.0),
            StepVerdict::Healthy
        );
    }
}
