//! The loss curve against that of a reference run.

use super::*;
use crate::wire::id::{COLLAPSE_NOISE, COLLAPSE_RESIDUAL};

/// A run of 1,000 steps with these residuals in its second half.
fn run(noise: f64, residual: impl Fn(u64) -> f64) -> Tape {
    let mut tape = fresh().steps(1, 500, learning);
    for step in 501..=1_000 {
        let values = [
            ("train/loss", learning(step)),
            ("grad_norm", 1.0),
            (COLLAPSE_RESIDUAL, residual(step)),
            (COLLAPSE_NOISE, noise),
        ];
        tape.step(step, &values);
    }
    tape
}

fn drift(from: u64, rate: f64) -> impl Fn(u64) -> f64 {
    move |step| rate * step.saturating_sub(from) as f64
}

#[test]
fn a_drift_is_found_from_where_it_leaves_the_noise() {
    let found = run(0.001, drift(700, 1e-4)).found("loss_curve").unwrap();
    assert_eq!(found.status, Status::Fail);
    let evidence = found.evidence.to_string();
    assert!(evidence.contains("+0.030"), "{evidence}");
    assert!(evidence.contains("outside since step 75"), "{evidence}");
    assert!(found.cause.contains("numerical fault"), "{}", found.cause);
    let down = run(0.001, drift(700, -1e-4)).found("loss_curve").unwrap();
    assert_eq!(down.status, Status::Warn);
    assert!(down.cause.contains("easier"), "{}", down.cause);
}

#[test]
fn noise_single_values_and_small_drifts_are_none() {
    let quiet = |noise, residual: &dyn Fn(u64) -> f64| {
        assert_eq!(run(noise, residual).found("loss_curve"), None);
    };
    quiet(0.001, &|_| 0.004);
    quiet(0.02, &|_| 0.05);
    quiet(0.001, &|step| if step % 3 == 0 { 0.05 } else { 0.0 });
    quiet(0.001, &|step| if step % 2 == 0 { 0.05 } else { -0.05 });
    assert_eq!(fresh().steps(1, 500, learning).found("loss_curve"), None);
}

/// Curves of other recipes differ in shape, which is no fault of the run.
#[test]
fn a_curve_that_is_off_from_the_start_is_another_recipe() {
    let found = run(0.001, |_| 0.03).found("loss_curve").unwrap();
    assert_eq!(found.status, Status::Warn);
    assert!(found.cause.contains("another shape"), "{}", found.cause);
}
