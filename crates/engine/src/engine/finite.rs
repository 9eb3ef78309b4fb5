//! Whether the state of a run is finite: a NaN is never saved.

use crate::nn::Model;
use crate::optim::UpdateRule;

/// An update rule's state.
pub(super) fn state_is_finite(rule: &dyn UpdateRule) -> candle_core::Result<bool> {
    let mut finite = true;
    for part in rule.state() {
        let mut look = |values: &[f32]| finite &= values.iter().all(|x| x.is_finite());
        rule.read_state(part.name, &mut look)?;
    }
    Ok(finite)
}

/// The weights that a model holds in f32.
pub(super) fn held_are_finite(model: &Model) -> candle_core::Result<bool> {
    let finite = |weights: &[f32]| weights.iter().all(|x| x.is_finite());
    model.params().read_held(finite)
}
