//! The least that an update rule may add to what it divides by.

use super::Judge;
use crate::optim::OptimizerConfig;
use crate::spec::RunConfig;

/// Squares of gradients below 1e-19 are below the smallest normal f32 (1.2e-38) and count as 0: the quotient is then the
/// gradient over eps, which has to stay far from the largest f32.
const BESIDE_ROOTS: f64 = 1e-20;
/// Where eps is added to the squares themselves, it has to be a normal f32.
const BESIDE_SQUARES: f64 = 1e-37;

pub(super) fn epsilon(config: &RunConfig, judge: &mut Judge) {
    let (key, eps, least, usual) = match &config.optimizer {
        OptimizerConfig::AdamW(rule) => ("eps", rule.eps, BESIDE_ROOTS, "1e-8"),
        OptimizerConfig::AdamW8bit(rule) => ("eps", rule.eps, BESIDE_ROOTS, "1e-8"),
        OptimizerConfig::ScheduleFree(rule) => ("eps", rule.eps, BESIDE_ROOTS, "1e-8"),
        OptimizerConfig::Soap(rule) => ("eps", rule.eps, BESIDE_ROOTS, "1e-8"),
        OptimizerConfig::Muon(rule) => ("adamw_eps", rule.adamw_eps, BESIDE_ROOTS, "1e-8"),
        OptimizerConfig::Adafactor(rule) => ("eps", rule.eps, BESIDE_SQUARES, "1e-30"),
        OptimizerConfig::Lion(_) | OptimizerConfig::Sophia(_) => return,
    };
    let word = config.optimizer.entry().id;
    judge.want(
        eps >= least,
        &[&format!("optimizer.{word}.{key}")],
        format!(
            "with {eps} the update divides by 0 when gradients are 0 or their squares underflow: weights become NaN"
        ),
        format!("{usual} is typical; the minimum is {least:e}"),
    );
}
