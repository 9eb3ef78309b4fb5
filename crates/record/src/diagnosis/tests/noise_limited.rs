//! A plateau under a noise scale far above the batch.

use super::*;

/// A loss that stays, with a batch of one token.
fn plateau(noise_scale: f64) -> Tape {
    let mut tape = fresh();
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
