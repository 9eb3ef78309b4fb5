//! A plateau with a noise scale far above the batch.

use super::*;

/// A constant loss, with a batch of one token.
fn plateau(noise_scale: f64) -> Tape {
    plateau_of(fresh(), noise_scale)
}

fn plateau_of(mut tape: Tape, noise_scale: f64) -> Tape {
    for step in 1..=1_000 {
        let loss = 3.0 + noise(step);
        tape.step(step, &[("train/loss", loss), ("noise_scale", noise_scale)]);
    }
    tape
}

#[test]
fn a_plateau_warns_where_the_batch_is_far_below_the_noise_scale() {
    let found = plateau(50.0).found("noise_limited").expect("it is noise");
    assert_eq!(found.status, Status::Warn);
    assert!(
        found.fix.contains("train.grad_accum_steps"),
        "{}",
        found.fix
    );
    assert_eq!(plateau(5.0).found("noise_limited"), None);
}

/// After the ramp the batch is large enough; the steps of its first stage do not count then.
#[test]
fn a_batch_that_grows_is_judged_by_its_size_at_that_step() {
    let ramped = |until_step: u64| {
        let mut tape = fresh();
        let stage = serde_json::json!({"until_step": until_step, "grad_accum_steps": 1});
        let spec = serde_json::json!({"train": {"grad_accum_steps": 10, "batch_ramp": [stage]}});
        tape.begin_with("pretrain", spec, 10);
        plateau_of(tape, 50.0).found("noise_limited")
    };
    let found = ramped(2_000).expect("a token a step");
    assert!(found.fix.contains("train.batch_ramp"), "{}", found.fix);
    assert_eq!(ramped(500), None);
}
