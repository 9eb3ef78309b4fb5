//! The optimizers of a run, built from its spec.

use crate::nn::{Model, Params};
use crate::optim::{Averaged, StatePart, TensorNorms, UpdateRule};
use crate::spec::RunSpec;
use candle_core::{Result, bail};

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

/// Releases the state of a rule before the one that replaces it is built: two sets of moments may not fit into memory.
pub(super) fn release(rule: &mut Box<dyn UpdateRule>) {
    *rule = Box::new(Released);
}

/// A rule without state, which updates nothing.
struct Released;

const RELEASED: &str = "the optimizer's state was released";

impl UpdateRule for Released {
    fn step(&mut self, _params: &mut Params, _lr: f64, _grad_scale: f64) -> Result<()> {
        bail!("{RELEASED}")
    }

    fn last_norms(&self) -> &[TensorNorms] {
        &[]
    }

    fn state(&self) -> Vec<StatePart> {
        Vec::new()
    }

    fn read_state(&self, _name: &str, _read: &mut dyn FnMut(&[f32])) -> Result<()> {
        bail!("{RELEASED}")
    }

    fn write_state(&mut self, _name: &str, _write: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        bail!("{RELEASED}")
    }
}
