//! The consequence of the guard's verdict for a step: its update is skipped, it is a spike, or nothing. The rescue itself is
//! in `train/rescue`.

use super::broken::NonFinite;
use super::context::RunContext;
use super::guard::StepVerdict;
use crate::base::human;
use crate::spec::RescuePolicy;
use crate::wire::{Event, Outlier};

/// How a step went.
pub(super) enum StepOutcome {
    Whole,
    /// Its update was left out.
    Skipped,
    /// Not done: losses are outliers for too long. In words.
    Spike(String),
    /// Not done: a stop waits.
    BrokenOff,
    /// Not done: a value is non-finite.
    Broken(NonFinite),
}

/// Judges the current step by its readings; a loss over the model's own completions is not a valid one.
pub(super) fn judge(
    cx: &mut RunContext<'_, '_>,
    (loss, norm): (f64, f64),
    by_loss: bool,
) -> StepOutcome {
    let config = &cx.spec.rescue;
    if config.policy == RescuePolicy::Off && !config.skip_outliers {
        return StepOutcome::Whole;
    }
    let progress = &mut cx.state.progress;
    let step = progress.step + 1;
    let at = (step, progress.micro_step);
    let seen = progress
        .guard
        .judge(config, at, by_loss.then_some(loss), norm);
    let may_act = config.policy == RescuePolicy::Act && progress.rescues < config.at_most;
    let found = match seen {
        StepVerdict::Healthy => return StepOutcome::Whole,
        StepVerdict::Spike(found) | StepVerdict::Lasting(found) if may_act => {
            return StepOutcome::Spike(words(&found, step, progress.guard.high));
        }
        StepVerdict::Lasting(found) => {
            progress.guard.reset();
            found
        }
        StepVerdict::Spike(found) => {
            if config.policy != RescuePolicy::Off {
                let why = words(&found, step, config.patience);
                cx.port.warn(step, "spike", why, hint(config.policy));
            }
            found
        }
        StepVerdict::Outlier(found) => found,
    };
    if !config.skip_outliers {
        return StepOutcome::Whole;
    }
    cx.port.emit(Event::Skipped {
        step,
        outlier: found,
    });
    StepOutcome::Skipped
}

fn words(found: &Outlier, step: u64, in_a_row: u64) -> String {
    format!(
        "train loss {} at step {}, {:.0} standard deviations above {} for {in_a_row} steps",
        human::number(found.value.0),
        human::grouped(step),
        found.sigmas.0,
        human::number(found.usual.0)
    )
}

fn hint(policy: RescuePolicy) -> &'static str {
    match policy {
        RescuePolicy::Act => {
            "rescue.at_most rescues are used up: lower the learning rate, or inspect the batches"
        }
        _ => {
            "roll back to a checkpoint from before it and lower the learning rate; rescue.policy=act does both automatically"
        }
    }
}
