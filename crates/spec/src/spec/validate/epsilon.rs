//! The minimum epsilon of an update rule's divisions.

use super::IssueCollector;
use crate::optim::{Epsilon, EpsilonTerm};
use crate::spec::RunConfig;

/// Squares of gradients below 1e-19 are below the smallest normal f32 (1.2e-38) and count as 0: the quotient is then the
/// gradient over eps, which has to stay far from the largest f32.
const BESIDE_ROOTS: f64 = 1e-20;
/// Where eps is added to the squares themselves, it has to be a normal f32.
const BESIDE_SQUARES: f64 = 1e-37;

pub(super) fn epsilon(config: &RunConfig, judge: &mut IssueCollector) {
    let Some(Epsilon {
        key,
        value,
        added_to,
    }) = config.optimizer.epsilon()
    else {
        return;
    };
    let (least, usual) = match added_to {
        EpsilonTerm::SecondMomentRoot => (BESIDE_ROOTS, "1e-8"),
        EpsilonTerm::SquaredGradient => (BESIDE_SQUARES, "1e-30"),
    };
    let word = config.optimizer.entry().id;
    judge.want(
        value >= least,
        &[&format!("optimizer.{word}.{key}")],
        format!(
            "with {value} an update divides by 0 where gradients are 0 or their squares round to 0: weights become NaN"
        ),
        format!("{usual} is typical; the minimum is {least:e}"),
    );
}
