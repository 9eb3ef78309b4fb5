//! Texts that the log view shares with rescues and with the marks on charts.

use crate::base::{human, text};
use crate::wire::{Event, Outlier};

/// `lr 1.00e-3 → 5.00e-4`
pub(super) fn adjusted(key: &str, old: f64, new: f64) -> String {
    let key = text::one_line(key);
    format!("{key} {} → {}", human::number(old), human::number(new))
}

/// What the undo of a rescue did; empty for other events.
pub(super) fn undone(event: &Event) -> String {
    let Event::RescueUndone {
        step,
        why,
        lr,
        whole,
        lost,
        ..
    } = event
    else {
        return String::new();
    };
    let state = match whole {
        true => "the state from before it",
        false => "the newest checkpoint before it",
    };
    let (at, lr) = (human::grouped(*step), adjusted("lr", lr.0.0, lr.1.0));
    let lost = match lost {
        0 => String::new(),
        lost => format!("; {} steps discarded", human::grouped(*lost)),
    };
    let why = text::one_line(why);
    format!(
        "rescue undone ({why}): {state} continues at step {at}, {lr}, its batches are used{lost}"
    )
}

/// `grad_norm 9.3 is 41 standard deviations above 0.21`
pub(super) fn outlier(found: &Outlier) -> String {
    format!(
        "{} {} is {:.0} standard deviations above {}",
        text::one_line(&found.metric),
        human::number(found.value.0),
        found.sigmas.0,
        human::number(found.usual.0)
    )
}
