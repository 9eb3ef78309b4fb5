//! Averages of the weights (`train.ema_decay`) across a branch that begins one where its parent kept none, or keeps none where its
//! parent did.

use super::error::CheckpointError;
use crate::hf::safetensors::TensorFile;
use crate::nn::Model;
use crate::optim::{EMA_BEGUN, EMA_OTHER, StatePart, UpdateRule};

/// The optimizer's parts that a checkpoint is to hold: none of an average that begins with this state.
pub(super) fn expected(file: &TensorFile, rule: &dyn UpdateRule) -> Vec<StatePart> {
    let begins = begins(file, rule);
    let of_average = |part: &StatePart| [EMA_BEGUN, EMA_OTHER].contains(&part.name);
    let parts = rule.state().into_iter();
    parts.filter(|part| !(begins && of_average(part))).collect()
}

/// After weights and moments were read: an average of the state that the checkpoint lacks begins at its weights, and where the
/// checkpoint's weights are an average that the state does not keep, the trained ones take its place.
///
/// # Errors
/// Trained weights of another number.
pub(super) fn reconcile(
    file: &TensorFile,
    policy: &mut Model,
    rule: &mut dyn UpdateRule,
) -> Result<(), CheckpointError> {
    if begins(file, rule) {
        // It was begun with the weights of before, when the average was shown.
        rule.write_state(EMA_BEGUN, &mut |begun| begun.fill(0.0))?;
    }
    match averages(rule) {
        true => Ok(()),
        false => take_trained(file, policy),
    }
}

/// Puts the trained weights in the place of their average, where the checkpoint has both.
///
/// # Errors
/// Trained weights of another number.
pub(super) fn take_trained(file: &TensorFile, policy: &mut Model) -> Result<(), CheckpointError> {
    if file.contains(EMA_OTHER) {
        let params = policy.params_mut();
        let trained = file.read(EMA_OTHER, &[params.n_trainable()])?;
        params.write_trained(&trained)?;
    }
    Ok(())
}

fn averages(rule: &dyn UpdateRule) -> bool {
    rule.state().iter().any(|part| part.name == EMA_OTHER)
}

fn begins(file: &TensorFile, rule: &dyn UpdateRule) -> bool {
    averages(rule) && !file.contains(EMA_OTHER)
}
