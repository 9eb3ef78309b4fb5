//! Logs with few steps, and those with a row per epoch: an evaluation is compared with the readings there.

use super::*;

fn gap(tape: &Tape) -> f64 {
    let found = tape.found("overfitting").unwrap();
    found.evidence.0[0].value.unwrap().0
}

#[test]
fn the_gap_of_a_sparse_log_is_that_of_the_readings_at_the_evaluation() {
    // Trainers log every tenth step: the loss falls fast.
    let mut tape = fresh();
    for step in (10..=100).step_by(10) {
        tape.step(step, &[("train/loss", 4.0 - 0.03 * step as f64)]);
        if step % 20 == 0 {
            tape.evaluate(step, 4.1 - 0.03 * step as f64);
        }
    }
    assert!((gap(&tape) - 0.1).abs() < 1e-9, "{}", gap(&tape));
    // Training continues after the evaluation.
    tape.step(110, &[("train/loss", 0.1)]);
    assert!((gap(&tape) - 0.1).abs() < 1e-9, "{}", gap(&tape));
}

#[test]
fn the_gap_of_a_fast_fall_is_that_at_the_step_of_the_evaluation() {
    // Every step is logged, and the noise is as large as the gap.
    for noisy in [0.0, 0.1] {
        let mut tape = fresh();
        for step in 0..60 {
            let noise = if step % 2 == 0 { noisy } else { -noisy };
            tape.step(step, &[("train/loss", 4.0 - 0.03 * step as f64 + noise)]);
            if step % 10 == 0 {
                tape.evaluate(step, 4.1 - 0.03 * step as f64);
            }
            if step == 50 {
                assert!((gap(&tape) - 0.1).abs() < 0.03, "{}", gap(&tape));
            }
        }
        assert!((gap(&tape) - 0.1).abs() < 0.03, "{}", gap(&tape));
    }
}

#[test]
fn the_gap_of_a_short_run_that_levels_off_is_that_to_its_neighbours() {
    for (steps, half_life, noisy) in [
        (40, 5.0, 0.04),
        (40, 5.0, 0.0),
        (12, 4.0, 0.04),
        (100, 15.0, 0.03),
    ] {
        let loss = |s: u64| 0.28 + 3.5 * (-(s as f64) / half_life).exp() + noisy / 0.03 * noise(s);
        let mut tape = fresh().steps(1, steps, loss);
        let near: f64 = (steps - 3..=steps).map(loss).sum::<f64>() / 4.0;
        let val = near + 0.02;
        tape.evaluate(steps / 2, val);
        tape.evaluate(steps, val);
        let fall = loss(steps - 3) - loss(steps);
        assert!(
            (gap(&tape) - 0.02).abs() < 0.04 + fall.abs() / 2.0,
            "{steps}: {}",
            gap(&tape)
        );
        // It continues: readings on both sides of the evaluation.
        let tape = tape.steps(steps + 1, steps + steps / 2, loss);
        let here = 0.28 + 3.5 * (-(steps as f64) / half_life).exp();
        assert!(
            (gap(&tape) - (val - here)).abs() < 0.05,
            "{steps}: {}",
            gap(&tape)
        );
    }
}

#[test]
fn the_gap_of_a_long_noisy_run_is_that_to_the_mean_of_fifty_steps() {
    let loss = |s: u64| 1.5 + 5.0 * noise(7 * s + s / 6);
    let mut tape = fresh().steps(1, 1000, loss);
    tape.evaluate(500, 1.7);
    tape.evaluate(1000, 1.7);
    let mean = (950..=1000).map(loss).sum::<f64>() / 51.0;
    assert!((gap(&tape) - (1.7 - mean)).abs() < 1e-9, "{}", gap(&tape));
}

#[test]
fn the_gap_of_a_table_of_epochs_is_that_of_its_row() {
    // One record per epoch, with both losses.
    let mut tape = fresh();
    for step in 1..=40 {
        let loss = 4.0 - 0.09 * step as f64;
        tape.step(step, &[("train/loss", loss)]);
        tape.evaluate(step, loss + 0.2);
    }
    assert!((gap(&tape) - 0.2).abs() < 1e-9, "{}", gap(&tape));
}

#[test]
fn a_sparse_log_overfits_as_a_dense_one_does() {
    let mut tape = fresh();
    for step in (10..=600).step_by(10) {
        tape.step(step, &[("train/loss", learning(step))]);
    }
    let losses = [3.0, 2.6, 2.4, 2.5, 2.6, 2.7];
    for (loss, i) in losses.into_iter().zip(1..) {
        tape.evaluate(100 * i, loss);
    }
    let found = tape.found("overfitting").unwrap();
    assert_eq!(found.status, Status::Warn);
    let said = found.evidence.to_string();
    let (then, now) = (learning(300), learning(600));
    let words = format!("train loss {then:.3} then, {now:.3} now");
    assert!(said.ends_with(&words), "{said}: {words}");
}

/// Twenty readings of every fifth step are a hundred steps: any loss halves in them.
#[test]
fn a_sparse_log_has_no_sudden_drop_but_masked_labels() {
    let run = |every: u64, loss: &dyn Fn(u64) -> f64| {
        let mut tape = fresh();
        for step in (every..=100 * every).step_by(usize::try_from(every).unwrap()) {
            let value = loss(step);
            tape.step(step, &[("train/loss", value), ("entropy", value)]);
        }
        tape.found("sudden_drop")
    };
    // Over 150 steps from 1 to 0.1.
    let falls = |step: u64| 0.1 + 0.9 / (1.0 + ((step as f64 - 440.0) / 12.0).exp());
    assert_eq!(run(5, &falls), None);
    // Every step is logged: within 20 steps.
    let sudden = |step: u64| if step > 90 { 0.05 } else { 2.0 };
    let found = run(1, &sudden).unwrap();
    assert_eq!(found.status, Status::Warn);
    let said = found.evidence.to_string();
    assert!(said.contains("within 20 steps"), "{said}");
    // Without a supervised token the loss is 0 in whatever log.
    let masked = |step: u64| if step > 450 { 0.0 } else { 2.0 };
    let found = run(5, &masked).unwrap();
    let said = found.evidence.to_string();
    assert!(
        found.cause.contains("masked") && said.contains("within 20 readings"),
        "{said}"
    );
}

#[test]
fn counts_of_a_sparse_log_are_of_readings() {
    let mut tape = fresh();
    for step in (10..=2_000).step_by(10) {
        let spike = if step > 1_000 && step % 100 == 0 {
            3.0
        } else {
            0.0
        };
        let norm = if spike > 0.0 { 9.0 } else { 1.0 };
        tape.step(
            step,
            &[
                ("train/loss", 2.0 + noise(step / 10) + spike),
                ("grad_norm", norm),
            ],
        );
    }
    let said = tape.found("odd_batches").unwrap().evidence.to_string();
    assert!(
        said.contains("single spikes of the loss in 200 readings"),
        "{said}"
    );
    let said = tape.found("gradient_spike").unwrap().evidence.to_string();
    assert!(said.contains("spikes in 200 readings"), "{said}");
}
