//! A correctly wired model can memorize one small batch. Tested on a copy, in a fraction of a second.

use super::{Check, Finding, Subject};
use crate::base::finding::Status;
use crate::data::Batch;
use crate::engine::EngineError;
use crate::engine::roles::add_own_reference;
use crate::engine::update::{At, Rates, update};
use std::time::Duration;

pub const CHECK: Check = Check {
    id: "overfit",
    title: "Can overfit one batch",
    computes: true,
    run,
};

/// The batch: short, so that many steps fit.
const ROWS: usize = 2;
const LEN: usize = 32;
/// Supervised tokens that a probe should have: prompts before the first answer may be long.
const ENOUGH: usize = 16;
/// Steps done at most, and those that are done however long they take.
const MAX_STEPS: usize = 80;
const MIN_STEPS: usize = 6;
/// An unoptimized build needs longer for as many steps.
const TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2000 } else { 250 });
/// Learning rate of the probe, whatever the run's: wiring is tested here, not tuning.
const LR: f64 = 2e-3;
/// The same for weights that are trained already, where steps as large as a random model's only break them.
const GIVEN_LR: f64 = 2e-4;
/// How much larger the rate of adapters is: they start at zero, and few steps fit (Schulman et al. 2025).
const ADAPTER_LR: f64 = 10.0;
/// Memorized: this share of the first loss is left.
const MEMORIZED: f64 = 0.5;
/// When the time is up: the loss must at least be this share lower.
const FALLING: f64 = 0.05;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let verdict = memorize(subject, LR)?;
    if verdict.status == Status::Pass || subject.spec.train.from.is_none() {
        return Ok(verdict);
    }
    // Once more from the weights as they were given.
    subject.twin = None;
    memorize(subject, GIVEN_LR)
}

fn memorize(subject: &mut Subject<'_>, lr: f64) -> Result<Finding, EngineError> {
    let mut batch = probe(&subject.first_batch(ROWS));
    let (spec, clock) = (subject.spec, subject.clock);
    let lr = match spec.adapter {
        Some(_) => ADAPTER_LR * lr,
        None => lr,
    };
    let state = subject.twin()?;
    add_own_reference(&*spec.method, &mut state.models.policy, &mut batch)?;
    let rates = Rates { lr, clip_norm: 1.0 };
    let begun = clock.elapsed();
    let mut step = || -> Result<f64, EngineError> {
        let (model, optimizer) = (&mut state.models.policy, &mut *state.optimizer);
        let (method, batches) = (&*spec.method, std::slice::from_ref(&batch));
        let (found, _) = update(method, model, optimizer, batches, At::default(), rates)?;
        Ok(found.loss)
    };
    judge(&mut step, &mut || clock.elapsed() - begun >= TIME)
}

/// The beginning of the rows; as much of them as it takes to have something to learn.
fn probe(full: &Batch) -> Batch {
    let mut len = LEN;
    loop {
        let batch = full.cut(len);
        if batch.supervised() >= ENOUGH || len >= full.seq_len {
            return batch;
        }
        len *= 2;
    }
}

/// Trains by `step`, which gives the loss before its update, until the batch is memorized, out of steps, or out of time.
fn judge(
    step: &mut dyn FnMut() -> Result<f64, EngineError>,
    time_is_up: &mut dyn FnMut() -> bool,
) -> Result<Finding, EngineError> {
    let first = step()?;
    let (mut last, mut steps) = (first, 1);
    while steps < MAX_STEPS && last > MEMORIZED * first && !(steps >= MIN_STEPS && time_is_up()) {
        last = step()?;
        steps += 1;
    }
    let evidence = format!("loss {first:.3} → {last:.3} in {steps} steps on one small batch");
    if last <= MEMORIZED * first {
        return Ok(Finding::pass(evidence));
    }
    if last < (1.0 - FALLING) * first {
        return Ok(Finding::pass(format!(
            "{evidence}, still falling at the time limit"
        )));
    }
    Ok(Finding::fail(
        evidence,
        "the model cannot overfit one batch: gradients do not reach the weights, or targets are unrelated to inputs",
        "inspect rows in the Data pane; try `optimizer.adamw` and a preset's model",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(loss: impl Fn(usize) -> f64, steps_in_time: usize) -> Finding {
        let n = std::cell::Cell::new(0);
        judge(
            &mut || {
                n.set(n.get() + 1);
                Ok(loss(n.get() - 1))
            },
            &mut || n.get() >= steps_in_time,
        )
        .unwrap()
    }

    #[test]
    fn learning_passes_and_standing_still_fails() {
        assert_eq!(
            verdict(|n| 4.0 * 0.9f64.powi(n as i32), 1000).status,
            Status::Pass
        );
        let slow = verdict(|n| 4.0 - 0.05 * n as f64, 3);
        assert_eq!(
            slow.status,
            Status::Pass,
            "a big model has time for few steps"
        );
        assert!(
            slow.evidence.to_string().contains("at the time limit"),
            "{}",
            slow.evidence
        );
        assert_eq!(verdict(|_| 4.0, 1000).status, Status::Fail);
        assert_eq!(verdict(|n| 4.0 + n as f64, 1000).status, Status::Fail);
        assert_eq!(
            verdict(|n| if n > 2 { f64::NAN } else { 4.0 }, 1000).status,
            Status::Fail
        );
    }
}
