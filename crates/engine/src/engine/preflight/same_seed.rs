//! The same seed gives bit-identical weights, loss and gradients. Without it no run can be repeated or resumed exactly.

use super::{Check, Finding, Subject, hash};
use crate::data::Batch;
use crate::engine::EngineError;
use crate::engine::roles::add_own_reference;
use crate::engine::state::TrainState;
use crate::engine::update::{At, gradients};

pub const CHECK: Check = Check {
    id: "same_seed",
    title: "The same seed gives the same numbers",
    computes: true,
    run,
};

/// Sequences of the probe.
const ROWS: usize = 2;

/// What must repeat, to the bit.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    weights: u64,
    loss: f64,
    grad_norm: f64,
}

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let batch = subject.first_batch(ROWS);
    let spec = subject.spec;
    let first = read(subject.state, &batch, spec)?;
    let second = read(subject.twin()?, &batch, spec)?;
    Ok(judge(&first, &second))
}

fn read(
    state: &mut TrainState,
    batch: &Batch,
    spec: &crate::spec::RunSpec,
) -> Result<Reading, EngineError> {
    let model = &mut state.models.policy;
    let mut batch = batch.clone();
    add_own_reference(&*spec.method, model, &mut batch)?;
    let found = gradients(&*spec.method, model, &[batch], At::default())?;
    model.params_mut().zero_grads()?;
    Ok(Reading {
        weights: model.params().read_held(hash)?,
        loss: found.loss,
        grad_norm: found.norm,
    })
}

fn judge(first: &Reading, second: &Reading) -> Finding {
    let differs = if first.weights != second.weights {
        "initial weights"
    } else if first.loss.to_bits() != second.loss.to_bits() {
        "the loss"
    } else if first.grad_norm.to_bits() != second.grad_norm.to_bits() {
        "the gradient"
    } else {
        return Finding::pass(format!(
            "two models from one seed: loss {:.6}, gradient norm {:.6}, bit-identical",
            first.loss, first.grad_norm
        ));
    };
    Finding::fail(
        format!("{differs} of two models from one seed differ: {first:?}, {second:?}"),
        "something depends on a clock, hash order or a thread race",
        "a resume will not be exact: please report it with the spec",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn one_bit_is_enough_to_fail() {
        let a = Reading {
            weights: hash(&[1.0, 2.0]),
            loss: 4.0,
            grad_norm: 2.0,
        };
        assert_eq!(judge(&a, &a).status, Status::Pass);
        let next = |x: f64| f64::from_bits(x.to_bits() + 1);
        let variants = [
            (
                Reading {
                    weights: hash(&[1.0, f32::from_bits(2.0f32.to_bits() + 1)]),
                    ..a
                },
                "weights",
            ),
            (
                Reading {
                    loss: next(4.0),
                    ..a
                },
                "loss",
            ),
            (
                Reading {
                    grad_norm: next(2.0),
                    ..a
                },
                "gradient",
            ),
        ];
        for (b, word) in variants {
            let verdict = judge(&a, &b);
            assert_eq!(verdict.status, Status::Fail);
            assert!(
                verdict.evidence.to_string().contains(word),
                "{}",
                verdict.evidence
            );
        }
    }
}
