//! The optimizers of a run, built from its spec.

use crate::nn::Model;
use crate::optim::{Averaged, UpdateRule};
use crate::spec::RunSpec;
use candle_core::Result;

/// The update rule of a spec with fresh state; its matmuls are computed as the model's are.
pub(super) fn update_rule(spec: &RunSpec, model: &Model) -> Result<Box<dyn UpdateRule>> {
    let mut rule = spec.optimizer.build(model.params())?;
    rule.set_compute_dtype(model.arithmetic());
    Ok(rule)
}

/// The same, and an average of the weights beside it where the spec wants one.
pub(super) fn averaged_rule(spec: &RunSpec, model: &Model) -> Result<Box<dyn UpdateRule>> {
    let rule = update_rule(spec, model)?;
    Ok(match spec.train.ema_decay {
        Some(decay) => Box::new(Averaged::new(rule, decay, model.params())),
        None => rule,
    })
}
